"""Simulated devices whose route is known.

Each method of a device moves the driver, and records the fixes that the device sends.
"""
from __future__ import annotations

import random
from datetime import datetime
from zoneinfo import ZoneInfo

from truth import destination


def epoch_ms(text: str, tz: str = "UTC") -> int:
    return round(datetime.fromisoformat(text).replace(tzinfo=ZoneInfo(tz)).timestamp() * 1000)


class Device:
    """Sends a fix at its start, and then one every `every` seconds.

    milepost receives each fix `lag` seconds later. Speeds are in m/s, bearings in degrees clockwise
    from north.
    """

    def __init__(
        self,
        driver: str,
        start: str,
        lat: float,
        lng: float,
        every: float = 5,
        tz: str = "UTC",
        lag: float = 1,
    ):
        self.driver, self.every, self.lag = driver, every, lag
        self.ms, self.lat, self.lng, self.seq = epoch_ms(start, tz), lat, lng, 0
        self.chance = random.Random(driver)
        self.fixes: list[dict] = []
        self._send(self.lat, self.lng, 0)

    def drive(self, bearing: float, speed: float, seconds: float) -> "Device":
        for _ in range(round(seconds / self.every)):
            self.ms += round(self.every * 1000)
            self.lat, self.lng = destination(self.lat, self.lng, bearing, speed * self.every)
            self._send(self.lat, self.lng, speed)
        return self

    def stand(self, seconds: float, noise_m: float = 4) -> "Device":
        for _ in range(round(seconds / self.every)):
            self.ms += round(self.every * 1000)
            place = destination(
                self.lat, self.lng, self.chance.uniform(0, 360), abs(self.chance.gauss(0, noise_m))
            )
            self._send(*place, 0)
        return self

    def silent(self, seconds: float) -> "Device":
        """Sends nothing for this time."""
        self.ms += round(seconds * 1000)
        return self

    def jump(self, lat: float, lng: float) -> "Device":
        """Moves to another place, without a fix and in no time."""
        self.lat, self.lng = lat, lng
        return self

    def _send(self, lat, lng, speed):
        self.seq += 1
        self.fixes.append(
            {
                "driver": self.driver,
                "ms": self.ms,
                "lat": lat,
                "lng": lng,
                "seq": self.seq,
                "speed": speed,
                "received": self.ms + round(self.lag * 1000),
            }
        )


def square() -> Device:
    """Drives a square with sides of 3,600 m, at 12 m/s."""
    device = Device("square", "2026-06-01T08:00:00", 48.1, 11.5)
    for bearing in (0, 90, 180, 270):
        device.drive(bearing, 12, 300)
    return device


def lunch() -> Device:
    """Drives for half an hour, stands for 45 minutes at lunch, and drives back for half an hour."""
    return (
        Device("lunch", "2026-06-01T11:00:00", 52.5, 13.4)
        .drive(45, 10, 1800)
        .stand(2700)
        .drive(225, 10, 1800)
    )


def night() -> Device:
    """Drives across midnight in Berlin, with a fix a minute."""
    return (
        Device("night", "2026-06-01T23:30:30", 52.5, 13.4, every=60, tz="Europe/Berlin")
        .drive(90, 20, 3600)
        .stand(7200)
    )


def parked(driver: str, start: str, hours: int, tz: str) -> Device:
    """Stands, and sends a fix every ten minutes."""
    return Device(driver, start, 40.0, -74.0, every=600, tz=tz).stand(hours * 3600)


def dateline() -> Device:
    """Drives east in Fiji, stops near the antimeridian, and drives on across it."""
    return (
        Device("dateline", "2026-06-01T08:00:00", -17.0, 179.9)
        .drive(90, 15, 700)
        .stand(900)
        .drive(90, 15, 1200)
    )


def pole() -> Device:
    """Passes the North Pole at a distance of a few metres, and stops there."""
    device = (
        Device("pole", "2026-06-01T08:00:00", 89.95, 30).drive(0, 10, 555).stand(1200, noise_m=3)
    )
    return device.drive(180, 10, 600)


def silent() -> Device:
    """Is silent for two hours, and then sends from another place.

    Later, is silent for half an hour without moving.
    """
    device = (
        Device("silent", "2026-06-01T06:00:00", 51.5, -0.1)
        .drive(0, 10, 900)
        .silent(7200)
        .jump(51.7, 0.2)
    )
    return device.drive(90, 10, 900).silent(1800).drive(90, 10, 600)


def wild(number: int) -> Device:
    """Moves at random, with intervals of one second to 25 minutes between two fixes.

    Includes silences, noise, fixes with equal times, sequence numbers that restart, unknown speeds
    and bad accuracies.
    """
    device = Device(
        f"wild{number}", "2026-06-01T00:00:00", 10 * number - 80, 37 * number % 360 - 180
    )
    chance = random.Random(number)
    for _ in range(60):
        device.every = chance.choice((1, 5, 7.5, 20, 90, 200, 400, 1500))
        act = chance.randrange(6)
        if act == 0:
            device.stand(device.every * chance.randrange(1, 12), chance.choice((1, 10, 60)))
        elif act == 1:
            device.silent(chance.choice((10, 179, 181, 1000, 3599, 3601, 9000)))
        elif act == 2:
            # The next fix has the time of the last one.
            device.ms -= round(device.every * 1000)
            device.drive(chance.uniform(0, 360), 0.001, device.every)
        elif act == 3 and chance.random() < 0.3:
            device.seq = 0
        else:
            device.drive(
                chance.uniform(0, 360),
                chance.choice((0.5, 1.05, 1.2, 3, 14)),
                device.every * chance.randrange(1, 15),
            )
    for fix in device.fixes:
        if chance.random() < 0.2:
            fix["speed"] = None
        if chance.random() < 0.1:
            fix["acc"] = chance.choice((5, 200, 201, 5000))
    return device


def walker() -> Device:
    """Walks for two hours at 1.0 m/s without a stop: 7,200 m, with a fix every 5 s."""
    return Device("walker", "2026-06-01T08:00:00", 52.5, 13.4).drive(70, 1.0, 7200)


def courier() -> Device:
    """Makes ten deliveries on the way out and ten on the way back, across midnight UTC.

    For each delivery, drives 400 m and stands for four minutes.
    """
    device = Device("courier", "2026-06-01T23:01:00", 52.5, 13.4, every=10)
    for number in range(20):
        device.drive(90 if number < 10 else 270, 8, 50).stand(240)
    return device


def jam() -> Device:
    """Crawls for an hour at 0.4 m/s in a traffic jam, across midnight UTC."""
    return (
        Device("jam", "2026-06-01T23:20:00", 52.5, 13.4, every=10)
        .drive(0, 15, 300)
        .drive(0, 0.4, 3600)
        .drive(0, 15, 300)
    )


def jumper() -> Device:
    """Drives 3,000 m at 10 m/s, with three wrong fixes.

    One fix is 100 km off, one is 900 m off, and one has an accuracy of 900 m. Two hours later, a
    long drive follows. Its last fix, shortly before midnight UTC, is far off.
    """
    device = Device("jumper", "2026-06-01T12:00:00", 52.5, 13.4).drive(90, 10, 300)
    device.fixes[20].update(lat=53.4, speed=99.0)
    lat, lng = destination(device.fixes[30]["lat"], device.fixes[30]["lng"], 0, 900)
    device.fixes[30].update(lat=lat, lng=lng, speed=98.0)
    device.fixes[40].update(lng=13.44, acc=900.0, speed=97.0)
    device.silent(2 * 3600).drive(90, 10, 35_000)
    device.fixes[-1].update(acc=30.0)
    last = max(
        place
        for place, fix in enumerate(device.fixes)
        if fix["ms"] < epoch_ms("2026-06-02T00:00:00")
    )
    device.fixes[last].update(lat=50.0)
    return device


def flight() -> Device:
    """Drives, and ten minutes later sends from another town: no vehicle is that fast.

    20 hours after that, sends from a place 11 km away.
    """
    device = (
        Device("flight", "2026-06-01T12:00:00", 52.5, 13.4)
        .drive(90, 10, 600)
        .silent(600)
        .jump(48.1, 11.5)
    )
    return device.drive(90, 10, 600).silent(20 * 3600).jump(48.2, 11.5).drive(90, 10, 300)


def vague() -> Device:
    """Sends two fixes in the evening, and an inaccurate fix on the next day.

    Sends two more fixes on the day after that.
    """
    device = (
        Device("vague", "2026-06-01T22:20:00", 52.5, 13.4, every=600)
        .drive(0, 1, 600)
        .silent(11 * 3600)
    )
    device.drive(0, 0.001, 600).silent(24 * 3600).drive(0, 1, 1200)
    device.fixes[2].update(acc=500.0)
    return device


def blind() -> Device:
    """Sends inaccurate fixes only."""
    device = Device("blind", "2026-06-02T10:00:00", 52.5, 13.4, every=60).drive(0, 10, 300)
    for fix in device.fixes:
        fix.update(acc=201.0)
    return device


def twins() -> Device:
    """Drives north for ten minutes, without sequence numbers.

    At the fifth minute, sends two more fixes with the same time, far to the south and to the north.
    """
    device = Device("twins", "2026-06-01T10:00:00", 52.5, 13.4, every=60).drive(0, 2, 600)
    device.fixes += [{**device.fixes[5], "lat": lat} for lat in (51.0, 54.0)]
    for fix in device.fixes:
        fix.update(seq=0)
    return device


def equals() -> Device:
    """Sends two last fixes with the same time."""
    device = Device("equals", "2026-06-01T10:00:00", 52.5, 13.4, every=60).drive(0, 8, 60)
    device.ms -= 60_000
    return device.drive(0, 1, 60)


def fleet() -> list[Device]:
    return [
        walker(), courier(), jam(), jumper(), flight(), vague(), blind(), twins(), equals(),
        square(), lunch(), night(), dateline(), pole(), silent(),
        parked("autumn-berlin", "2026-10-24T18:00:00", 48, "Europe/Berlin"),
        parked("spring-new-york", "2026-03-07T18:00:00", 48, "America/New_York"),
        *(wild(number) for number in range(12)),
    ]


def working_day() -> list[Device]:
    """The day of docs/analysts.md: five drivers in Berlin, 1 June 2026."""
    def device(driver, start, **more):
        return Device(driver, start, 52.5200, 13.4050, tz="Europe/Berlin", **{"every": 15, **more})

    anna = (
        device("anna", "2026-06-01T08:00:00").drive(90, 12, 1500).stand(2100).drive(270, 12, 1500)
    )
    ben = device("ben", "2026-06-01T09:00:00")
    for bearing in (0, 60, 120, 180, 240, 300):
        ben.drive(bearing, 10, 360).stand(300)
    chloe = (
        device("chloe", "2026-06-01T10:00:00")
        .drive(200, 16, 900)
        .silent(4800)
        .jump(52.4, 13.2)
        .drive(20, 16, 600)
    )
    chloe.drive(20, 31, 240).drive(20, 16, 300)
    dmitri = device("dmitri", "2026-06-01T22:30:00").drive(300, 20, 5400).stand(900)
    eva = device("eva", "2026-06-01T12:00:00", lag=2).drive(45, 9, 1800).stand(1500)
    for fix in eva.fixes[40:60]:
        fix["received"] += 300_000
    eva.fixes = [fix for fix in eva.fixes if fix["seq"] not in (70, 71, 72, 90)]
    return [anna, ben, chloe, dmitri, eva]
