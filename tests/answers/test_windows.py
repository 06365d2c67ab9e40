"""Asks the views of `fleet_ask` about all of time: windows that begin or end beyond every fix."""
from __future__ import annotations

from devices import Device
from test_fences import insert_fence

# Each view with what it needs in addition to driver, from, to and tz.
VIEWS = {
    "days": "",
    "episodes": "",
    "track": "",
    "speeding": "speed = 5, ",
    "near": "lat = 52.3, lng = 13.0, metres = 40000, ",
    "fence_visits": "fence = 'town', ",
    "health": "",
}
WIDE = [
    ("1970-01-01", "2026-07-01"),
    ("1900-01-01", "2026-07-01"),
    ("2026-05-01", "2149-06-06"),
    ("2026-05-01", "2200-01-01"),
    ("2026-05-01", "9999-12-31"),
]


def test_window_wider_than_the_data_gives_all_of_it(db):
    insert_fence(db, "town", [[[(12.9, 51.9), (13.1, 51.9), (13.1, 52.4), (12.9, 52.4)]]])
    car = Device("anna", "2026-06-01T08:00:00", 52.0, 13.0, every=10).stand(900)
    car.fixes[40] = {**car.fixes[40], "lat": 52.3}  # a jump
    car.drive(90, 15, 1200).stand(900)
    db.insert(car.fixes)
    db.refresh()

    def answer(view, since, until, tz):
        rows = db.rows(
            f"SELECT * FROM {{db}}_ask.{view}({VIEWS[view]}driver = '', from = '{since}', "
            f"to = '{until}', tz = '{tz}')"
        )
        return sorted(map(str, rows))

    for tz in ("UTC", "Pacific/Kiritimati", "America/Los_Angeles"):
        for view in VIEWS:
            expected = answer(view, "2026-05-01", "2026-07-01", tz)
            assert expected
            for window in WIDE:
                assert answer(view, *window, tz) == expected, (view, tz, window)
