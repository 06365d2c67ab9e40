"""Tests that wrong positions and speeds cause no trips, and that true movements are kept."""
from __future__ import annotations

from datetime import date

import pytest

import truth
from devices import Device, epoch_ms
from test_definition import (
    ask,
    assert_same_days,
    assert_same_episodes,
    assert_same_quarters,
    episodes_of,
)

JUNE = {"from": "2026-05-25", "to": "2026-07-01", "tz": "UTC"}


def insert_and_check(db, fixes: list[dict]) -> dict[str, list[str]]:
    """Inserts the fixes, and checks that all views match truth.py.

    Returns the kinds of each driver's episodes, in the order of time.
    """
    db.insert(fixes)
    db.refresh()
    rows = episodes_of(db)
    assert_same_episodes(rows, truth.episodes(fixes))
    assert_same_quarters(db, fixes)
    for tz in ("UTC", "Asia/Kathmandu"):
        assert_same_days(db, fixes, date(2026, 5, 25), date(2026, 7, 1), tz)
    return {
        driver: [
            row["kind"]
            for row in sorted(rows, key=lambda row: row["began"])
            if row["driver_id"] == driver
        ]
        for driver in {fix["driver"] for fix in fixes}
    }


def moved(fix: dict, bearing: float, metres: float, **more) -> dict:
    return {
        **fix,
        **dict(zip(("lat", "lng"), truth.destination(fix["lat"], fix["lng"], bearing, metres))),
        **more,
    }


def day_of(db, driver: str) -> dict:
    (row,) = ask(db, "days", driver=driver, **JUNE)
    return row


def dropped(db, driver: str) -> list[int]:
    return [
        row["seq"]
        for row in ask(
            db, "track", "seq", "WHERE dropped != '' ORDER BY seq", driver=driver, **JUNE
        )
    ]


def test_parked_device_with_rare_fixes_does_not_move(db):
    """Parked devices send a fix every 5 to 60 minutes, always with speed 0.

    One fix an hour is 300 m off, but at most every fourth fix of a device.
    """
    fixes = []
    for every in (300, 600, 1800, 3600, 3601):
        car = Device(f"car{every}", "2026-06-01T00:10:00", 48, 11, every=every).stand(
            23 * 3600, noise_m=6
        )
        wrong = range(3, len(car.fixes) - 2, max(4, 3600 // every))
        fixes += [
            moved(fix, 77 * number, 300) if number in wrong else fix
            for number, fix in enumerate(car.fixes)
        ]
    kinds = insert_and_check(db, fixes)
    for driver in kinds:
        day = day_of(db, driver)
        assert kinds[driver] == ["stop"], (driver, day)
        figures = [day[name] for name in ("metres", "untracked_m", "trips", "stops")]
        assert figures == [0, 0, 0, 1], (driver, day)


def test_short_moves_of_devices_with_rare_fixes_are_trips(db):
    """A device with a fix every 10 minutes moves away and comes back.

    A fix away counts as wrong only if it is a single one, has speed 0, and is at most 1 km away.
    Each move here breaks one of these conditions. The shuttle breaks none, but moves all the time.
    """
    home = Device("home", "2026-06-01T08:00:00", 48, 11, every=600).stand(4 * 3600, noise_m=6).fixes
    away = {
        "far": {12: (5000, 0)},
        "a kilometre and more": {12: (1100, 0)},
        "moving": {12: (400, 3)},
        "twice": {12: (400, 0), 13: (400, 0)},
        "no speed": {12: (400, None)},
        "shuttle": {number: (400, 0) for number in range(1, 25, 2)},
    }
    fixes = [
        (
            moved(fix, 40, places[number][0], driver=driver, speed=places[number][1])
            if number in places
            else {**fix, "driver": driver}
        )
        for driver, places in away.items()
        for number, fix in enumerate(home)
    ]
    kinds = insert_and_check(db, fixes)
    for driver, places in away.items():
        assert "trip" in kinds[driver] and dropped(db, driver) == [], (driver, kinds[driver])
        # The shuttle is away twelve times, 400 m each.
        away_m, _ = places.get(12, (12 * 400, 0))
        assert abs(day_of(db, driver)["metres"] - 2 * away_m) < 250, (driver, day_of(db, driver))


def test_zero_speed_is_ignored_while_the_position_moves(db):
    """A car is carried by a ferry or a tow truck, between two drives of its own.

    While the car is carried, its device sends a speed of 0.
    """
    fixes = []
    for driver, speed in (("ferry", 5.5), ("tow", 15), ("slow", 2)):
        car = (
            Device(driver, "2026-06-01T08:00:00", 52.5, 13.4, every=15)
            .stand(600)
            .drive(90, 12, 600)
            .stand(600)
        )
        aboard = len(car.fixes)
        car.drive(200, speed, 7200)
        for fix in car.fixes[aboard:]:
            fix["speed"] = 0
        fixes += car.stand(600).drive(90, 12, 600).stand(600).fixes
    kinds = insert_and_check(db, fixes)
    for driver, speed in (("ferry", 5.5), ("tow", 15), ("slow", 2)):
        assert kinds[driver] == ["stop", "trip"] * 3 + ["stop"]
        # The stop includes the first kilometre of the crossing, because up to there the speed of 0
        # is believed.
        stop, crossing, _, last_trip = sorted(
            (row for row in episodes_of(db, driver)), key=lambda row: row["began"]
        )[2:6]
        assert (
            stop["seconds"] <= 600 + 1000 / speed + 30
            and abs(crossing["metres"] - speed * 7200) < 60
            and abs(last_trip["metres"] - 7200) < 60
        )


def test_zero_speed_is_used_while_reflections_shift_the_position(db):
    """A standing device with a fix every 15 s sends speed 0.

    Its positions drift 200 m away and back within ten minutes.
    """
    car = (
        Device("car", "2026-06-01T08:00:00", 48, 11, every=15)
        .stand(3600, noise_m=6)
        .drive(0, 10, 600)
        .stand(600)
    )
    fixes = [
        moved(fix, 90, 10 * (20 - abs(20 - (number - 100)))) if 100 <= number < 140 else fix
        for number, fix in enumerate(car.fixes)
    ]
    kinds = insert_and_check(db, fixes)
    assert kinds == {"car": ["stop", "trip", "stop"]} and dropped(db, "car") == []
    assert abs(day_of(db, "car")["metres"] - 6000) < 60


def parked_overnight(driver: str, every: int) -> list[dict]:
    """Drives, is silent for twelve hours, sends fixes for three minutes, and drives back."""
    car = (
        Device(driver, "2026-06-01T08:00:00", 48, 11, every=every)
        .stand(600)
        .drive(90, 12, 600)
        .stand(300)
        .silent(12 * 3600)
    )
    return car.stand(180).drive(270, 12, 600).stand(600).fixes


@pytest.mark.parametrize("metres", [3000, 5000])
def test_wrong_first_fix_after_a_silence_is_a_jump(db, metres):
    fixes = []
    for every in (15, 30, 60):
        track = parked_overnight(f"cold{every}", every)
        (first,) = [
            number
            for number, fix in enumerate(track)
            if number and fix["ms"] - track[number - 1]["ms"] > 3_600_000
        ]
        fixes += [
            moved(fix, 45, metres) if number == first else fix for number, fix in enumerate(track)
        ]
        fixes += [
            moved(fix, 45, metres if number == 0 and every < 60 else 0, driver=f"start{every}")
            for number, fix in enumerate(track)
        ]
    kinds = insert_and_check(db, fixes)
    for driver in kinds:
        day = day_of(db, driver)
        assert kinds[driver] == ["stop", "trip", "stop", "trip", "stop"], (driver, kinds[driver])
        assert (
            abs(day["metres"] - 2 * 7200) < 60
            and day["untracked_m"] == 0
            and day["standing_s"] > 12 * 3600
        ), (driver, day)
        assert len(dropped(db, driver)) == (driver != "start60")
        first_stop = min(episodes_of(db, driver), key=lambda row: row["began"])
        assert truth.metres(first_stop["lat"], first_stop["lng"], 48, 11) < 5


def test_wrong_first_fix_after_a_silence_over_midnight_is_a_jump(db):
    car = (
        Device("car", "2026-06-01T16:00:00", 48, 11, every=15)
        .stand(600)
        .drive(90, 12, 600)
        .stand(300)
        .silent(12 * 3600)
    )
    first = len(car.fixes)
    car.stand(300).drive(270, 12, 600).stand(600)
    fixes = [
        moved(fix, 45, 5000) if number == first else fix for number, fix in enumerate(car.fixes)
    ]
    assert insert_and_check(db, fixes) == {"car": ["stop", "trip", "stop", "trip", "stop"]}
    days = ask(db, "days", driver="car", **JUNE)
    assert sum(row["untracked_m"] for row in days) == 0 and sum(row["stops"] for row in days) == 3


def test_true_first_fix_after_a_silence_is_kept(db):
    """In all of these cases, the first fix after the silence is right.

    Cases: the next one or two fixes are wrong; the car was moved during the silence; the car drives
    on fast, at once.
    """
    track = parked_overnight("car", 15)
    (first,) = [
        number
        for number, fix in enumerate(track)
        if number and fix["ms"] - track[number - 1]["ms"] > 3_600_000
    ]

    def with_moves(driver, moves):
        return [
            moved(fix, 45, moves.get(number, 0), driver=driver) for number, fix in enumerate(track)
        ]

    fixes = with_moves("one wrong fix later", {first + 1: 5000})
    fixes += with_moves("two wrong fixes later", {first + 1: 5000, first + 2: 5000})
    fixes += with_moves("elsewhere", {number: 5000 for number in range(first, len(track))})
    motorway = (
        Device("motorway", "2026-06-01T08:00:00", 48, 11, every=30)
        .stand(300)
        .drive(90, 35, 300)
        .silent(4000)
        .drive(90, 35, 300)
        .drive(90, 12, 300)
    )
    kinds = insert_and_check(db, fixes + motorway.fixes)
    assert (
        dropped(db, "one wrong fix later") == [track[first + 1]["seq"]]
        and dropped(db, "elsewhere") == []
        and dropped(db, "motorway") == []
    )
    assert track[first]["seq"] not in dropped(db, "two wrong fixes later")
    assert kinds["elsewhere"] == ["stop", "trip", "stop", "gap", "trip", "stop"]


@pytest.mark.parametrize("hours", [24, 60])
def test_days_and_stops_agree_for_devices_with_few_fixes(db, hours):
    """Devices send a fix every day, or every two and a half days.

    One driver stays at home, and one is at another place at each fix. Two drivers first do one of
    these and then the other.
    """
    start = epoch_ms("2026-06-01T03:10:00")
    places = {
        "home": [0] * 6,
        "tour": list(range(6)),
        "back": [1, 2, 3, 0, 0, 0],
        "tour then": [0, 0, 0, 1, 2, 2],
    }
    fixes = [
        {
            "driver": driver,
            "ms": start + number * hours * 3_600_000,
            "lat": 52 + 0.3 * place,
            "lng": 13.4,
            "speed": 0,
            "seq": number + 1,
        }
        for driver, row in places.items()
        for number, place in enumerate(row)
    ]
    kinds = insert_and_check(db, fixes)
    assert {driver: row.count("stop") for driver, row in kinds.items()} == {
        "home": 1,
        "tour": 0,
        "back": 1,
        "tour then": 2,
    }
    for driver, row in kinds.items():
        days = ask(db, "days", driver=driver, **JUNE)
        assert sum(day["stops"] for day in days) == row.count("stop"), (driver, days)
        for day in days:  # a window of one day has the same figures
            (alone,) = ask(
                db,
                "days",
                driver=driver,
                tz="UTC",
                **{"from": day["day"], "to": f"{day['day']} 23:59"},
            )
            assert alone == day


def test_health_counts_dropped_fixes(db):
    """Two devices 5 km apart send with the same driver id, so nearly every fix is a jump.

    Only the column `dropped` of `health` and of `track` shows this.
    """
    one = Device("two", "2026-06-01T08:00:00", 52.5, 13.4, every=30).drive(0, 12, 3600)
    other = Device("two", "2026-06-01T08:00:15", 52.45, 13.4, every=30).stand(3600)
    alone = Device("one", "2026-06-01T08:00:00", 52.5, 13.4, every=30).drive(0, 12, 3600)
    alone.fixes[7]["acc"] = 900
    db.insert(one.fixes + other.fixes + alone.fixes)

    def counts():
        """Returns the numbers of fixes and of dropped fixes, by driver."""
        rows = ask(db, "health", driver="", **JUNE)
        return {row["driver_id"]: (row["fixes"], row["dropped"]) for row in rows}

    assert counts() == {"two": (242, 0), "one": (121, 0)}  # the days are not computed yet
    db.refresh()
    assert counts() == {
        "two": (242, len(ask(db, "track", "seq", "WHERE dropped != ''", driver="two", **JUNE))),
        "one": (121, 1),
    }
    assert counts()["two"][1] > 100
    (row,) = ask(
        db, "health", "fixes, dropped", driver="one", **{**JUNE, "from": "2026-06-01 08:04"}
    )
    assert row == {"fixes": 113, "dropped": 0}


def test_short_round_trips_are_trips(db):
    """A shuttle drives 2.1 km, is back at its terminal after four minutes, and waits four minutes.

    A parked car with spikes still has a single stop.
    """
    shuttle = Device("shuttle", "2026-06-01T08:00:00", 48, 11, every=15).stand(600, noise_m=6)
    for _ in range(10):
        shuttle.drive(90, 10, 105).drive(270, 10, 105).stand(240, noise_m=6)
    parked = Device("parked", "2026-06-01T08:00:00", 48, 11, every=15).stand(7200, noise_m=6).fixes
    # Each spike has two fixes, in the same direction.
    spikes = {at: 77 * number for number in range(20, 460, 40) for at in (number, number + 1)}
    parked = [
        moved(fix, spikes[number], 150) if number in spikes else fix
        for number, fix in enumerate(parked)
    ]
    kinds = insert_and_check(db, shuttle.fixes + parked)
    assert kinds["shuttle"].count("trip") == 10, kinds["shuttle"]
    assert kinds["shuttle"].count("stop") == 11, kinds["shuttle"]
    assert day_of(db, "shuttle")["metres"] == pytest.approx(21_000, rel=0.05)
    assert kinds["parked"] == ["stop"]


def between_stops(driver: str, every_s: int, drive_s: int) -> Device:
    """Stands for ten minutes, drives north at 40 m/s, and stands again."""
    device = Device(driver, "2026-06-01T08:00:00", 48, 11, every=every_s)
    return device.stand(600).drive(0, 40, drive_s).stand(600)


def test_false_speed_of_a_parked_device_is_ignored(db):
    """A parked device sends 60 m/s once, which is false.

    Three other devices send true speeds: one drives 600 m between two stops, one repeats its
    position, and one brakes hard.
    """
    fixes = []
    for every in (1, 15, 60):
        car = Device(f"parked{every}", "2026-06-01T08:00:00", 48, 11, every=every).stand(
            1800, noise_m=2
        )
        car.fixes[len(car.fixes) // 2]["speed"] = 60
        fixes += car.fixes
    fixes += between_stops("leg", every_s=15, drive_s=15).fixes
    car = between_stops("repeats", every_s=1, drive_s=100)
    fixes += [
        {**fix, "lat": car.fixes[number // 5 * 5]["lat"], "lng": car.fixes[number // 5 * 5]["lng"]}
        for number, fix in enumerate(car.fixes)
    ]
    car = Device("brakes", "2026-06-01T08:00:00", 48, 11, every=1).drive(0, 10, 60)
    for speed in (36, 28, 20, 12, 4):
        car.drive(0, speed, 1)
    fixes += car.stand(600).fixes
    insert_and_check(db, fixes)
    tops = {row["driver_id"]: row["speed_max"] for row in ask(db, "days", driver="", **JUNE)}
    assert tops == {
        "parked1": 0,
        "parked15": 0,
        "parked60": 0,
        "leg": 40,
        "repeats": 40,
        "brakes": 36,
    }


def test_second_wrong_fix_does_not_hide_the_first_one(db):
    """Two wrong fixes, with a right fix between them, occur while driving and while parked.

    A tractor that turns at both ends of a field, with a fix at each end, has no wrong fix.
    """
    parked = Device("parked", "2026-06-01T08:00:00", 48, 11, every=30).stand(1800, noise_m=2).fixes
    driving = (
        Device("driving", "2026-06-01T08:00:00", 48, 11, every=30)
        .stand(600, noise_m=2)
        .drive(90, 12, 1200)
        .stand(600, noise_m=2)
        .fixes
    )
    fixes = [
        {**moved(fix, 0, 730 if number in (30, 32) else 0), "speed": None}
        for track in (parked, driving)
        for number, fix in enumerate(track)
    ]
    tractor = Device("tractor", "2026-06-01T08:00:00", 48, 11, every=50).stand(600, noise_m=2)
    for bearing in (90, 270) * 20:
        tractor.drive(bearing, 6, 50)
    fixes += [{**fix, "speed": None} for fix in tractor.stand(600, noise_m=2).fixes]
    kinds = insert_and_check(db, fixes)
    # The right fix between the two wrong ones may be dropped, too.
    assert {31, 33} <= set(dropped(db, "parked")) <= {31, 32, 33} and kinds["parked"] == ["stop"]
    assert {31, 33} <= set(dropped(db, "driving")) <= {31, 32, 33}
    assert day_of(db, "driving")["metres"] == pytest.approx(14_400, rel=0.02)
    assert dropped(db, "tractor") == [] and day_of(db, "tractor")["metres"] > 11_000


def test_speed_that_a_parked_device_repeats_is_not_speeding(db):
    """Devices drive at 30 m/s for half an hour, and repeat this speed while they are parked.

    They are parked for two hours. One device never drives. Other devices send true speeds: one
    repeats its positions, one drives 600 m between two stops, one drives in circles, and one is in
    a tunnel, where it sends the position of the entrance.
    """
    fixes, parked_at = [], 0
    for every in (1, 15, 60, 300):
        car = (
            Device(f"car{every}", "2026-06-01T08:00:00", 48, 11, every=every)
            .stand(600)
            .drive(90, 30, 1800)
        )
        parked_at = len(car.fixes)
        car.stand(7200, noise_m=5)
        for fix in car.fixes[parked_at:]:
            fix["speed"] = 30
        fixes += car.drive(270, 30, 1800).stand(600).fixes
    fixes += [
        {**fix, "speed": 30}
        for fix in Device("parked", "2026-06-01T08:00:00", 48, 11, every=30).stand(7200).fixes
    ]
    car = between_stops("repeats", every_s=1, drive_s=100)
    fixes += [
        {**fix, "lat": car.fixes[number // 5 * 5]["lat"]} for number, fix in enumerate(car.fixes)
    ]
    fixes += between_stops("leg", every_s=15, drive_s=15).fixes
    car = Device("circles", "2026-06-01T08:00:00", 48, 11, every=1).stand(60)
    for second in range(1200):
        car.drive(9 * second, 30, 1)
    fixes += car.stand(60).fixes
    car = Device("tunnel", "2026-06-01T08:00:00", 48, 11, every=5).stand(600).drive(90, 30, 600)
    entrance = car.fixes[-1]
    inside = len(car.fixes)
    car.drive(90, 30, 120)
    for fix in car.fixes[inside:]:
        fix["lng"] = entrance["lng"]
    fixes += car.drive(90, 30, 600).stand(60).fixes
    db.insert(fixes)
    db.refresh()
    rows = ask(
        db,
        "speeding",
        "driver_id, seconds, fixes, began, ended",
        "ORDER BY driver_id, began",
        driver="",
        speed=27.78,
        **JUNE,
    )
    found = {
        driver: [row for row in rows if row["driver_id"] == driver]
        for driver in {fix["driver"] for fix in fixes}
    }
    start = epoch_ms("2026-06-01T08:00:00")
    for every in (1, 15, 60, 300):
        spans = [
            ((epoch_ms(row["began"]) - start) / 1000, (epoch_ms(row["ended"]) - start) / 1000)
            for row in found[f"car{every}"]
        ]
        # A row may extend into the parked time by 15 seconds, or by one interval if that is longer.
        spare = max(15, every)
        for began, ended in spans:
            assert (
                600 <= began and ended <= 2400 + spare or 9600 - spare <= began and ended <= 11_400
            ), (every, spans)
        if every < 180:
            duration_s = sum(ended - began for began, ended in spans)
            assert len(spans) == 2 and duration_s >= 2 * (1800 - every), (every, spans)
    assert found["parked"] == []
    assert [
        (len(found[driver]), found[driver][0]["fixes"], found[driver][0]["seconds"])
        for driver in ("repeats", "leg", "circles")
    ] == [(1, 100, 99), (1, 1, 0), (1, 1200, 1199)], found
    assert [row["seconds"] for row in found["tunnel"]] == [1315], found["tunnel"]


def test_near_ignores_dropped_fixes(db):
    """One fix of a parked car is 300 m off, and one has an accuracy of 900 m.

    Another driver is really at the place of these fixes.
    """
    car = Device("car", "2026-06-01T08:00:00", 48, 11, every=15).stand(1800)
    wrong = moved(car.fixes[60], 90, 300)
    fixes = [
        wrong if number == 60 else moved(fix, 90, 300, acc=900) if number == 80 else fix
        for number, fix in enumerate(car.fixes)
    ]
    fixes += [{**moved(fix, 90, 300), "driver": "there"} for fix in car.fixes[:5]]
    db.insert(fixes)
    here = {"lat": wrong["lat"], "lng": wrong["lng"], "metres": 60.0, "driver": "", **JUNE}
    assert {row["driver_id"]: row["fixes"] for row in ask(db, "near", **here)} == {
        "car": 1,
        "there": 5,
    }
    db.refresh()
    assert {row["driver_id"]: row["fixes"] for row in ask(db, "near", **here)} == {"there": 5}


def test_short_stays_elsewhere_do_not_split_a_stop(db):
    """A phone indoors sends a place 130 m away, for one to four minutes at a time.

    It takes the place of another access point for its own. A courier who drives to a door 600 m
    away, parks there for two minutes, and drives back, makes a trip nevertheless.
    """
    fixes = []
    for every in (20, 60):
        phone = Device(f"phone{every}", "2026-06-01T08:00:00", 48, 11, every=every).stand(
            6 * 3600, noise_m=5
        )
        for number, fix in enumerate(phone.fixes):
            # In each period of 23 minutes, the first 0 to 4 minutes are elsewhere.
            period, minute = divmod(number * every // 60, 23)
            fixes.append({**moved(fix, 60, 130 if minute < period % 5 else 0), "speed": None})
    courier = Device("courier", "2026-06-01T08:00:00", 48, 11, every=10).stand(600)
    fixes += courier.drive(90, 10, 60).stand(120).drive(270, 10, 60).stand(600).fixes
    kinds = insert_and_check(db, fixes)
    assert kinds == {"phone20": ["stop"], "phone60": ["stop"], "courier": ["stop", "trip", "stop"]}
    assert abs(day_of(db, "courier")["metres"] - 1200) < 60 and day_of(db, "phone60")["metres"] == 0


def test_times_without_seconds_do_not_change_the_mileage(db):
    """Four fixes of each minute have the same time. One fix is 9 km off."""
    car = (
        Device("car", "2026-06-01T08:00:00", 48, 11, every=15)
        .stand(1200)
        .drive(90, 12, 1800)
        .stand(1200)
        .drive(200, 12, 900)
        .stand(600)
    )
    fixes = [{**fix, "ms": fix["ms"] // 60_000 * 60_000} for fix in car.fixes]
    fixes[130] = moved(fixes[130], 0, 9000)
    assert insert_and_check(db, fixes) == {"car": ["stop", "trip", "stop", "trip", "stop"]}
    day = day_of(db, "car")
    assert day["metres"] == pytest.approx(2700 * 12, rel=0.01) and day["untracked_m"] == 0


def test_impossible_leg_between_equal_times_is_a_gap(db):
    """Two devices more than 5 km apart use one driver id: one until 08:10:07, one from then on.

    So two fixes have the same time. This time is no whole minute: otherwise up to a minute might be
    between the two fixes.
    """
    one = Device("two", "2026-06-01T08:00:07", 48, 11, every=30).drive(90, 12, 600)
    other = Device("two", "2026-06-01T08:10:07", 48.05, 11.1, every=30).drive(90, 12, 600)
    db.insert(one.fixes + [{**fix, "seq": fix["seq"] + 100} for fix in other.fixes])
    db.refresh()
    gaps = [row["untracked_m"] for row in episodes_of(db, "two") if row["kind"] == "gap"]
    assert gaps and abs(sum(gaps) - day_of(db, "two")["untracked_m"]) < 0.1
