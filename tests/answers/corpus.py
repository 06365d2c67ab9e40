"""Labelled days.

A labelled day has the true positions of a vehicle, second by second, and the fixes that a receiver
would send. The true positions are simulated, so the true stops and the true mileage are known. The
fixes are computed from these positions: with a given rate, an error of position and one kind of
fault. This file does not use milepost's definition of stops and trips.
"""
from __future__ import annotations

import functools
import math
import os
import random
from dataclasses import dataclass, field

START_MS = 1_780_282_800_000  # 2026-06-01T03:00:00Z
STOP_S = 180  # a dispatcher's stop: the wheels stood for three minutes
MERIDIAN_M, EQUATOR_M = 111_132.954, 6_378_137.0
# Seconds between two fixes, and root mean squares of the error of position in metres.
RATES = (1, 5, 15, 30, 60, 300)
ERRORS = (3, 8, 15, 30, 50)
# Part of the random seed of vehicles, routes and errors. The limits of trips were chosen with the
# empty seed, so any other value gives days that were not used to choose the limits.
DRAW = os.environ.get("CORPUS_DRAW", "")


@dataclass
class Journey:
    """A vehicle's movement, with one state per second."""
    seed: str
    lat: float = 52.5
    lng: float = 13.4
    heading: float = 0.7
    speed: float = 0.0
    states: list[tuple[float, float, float]] = field(default_factory=list)  # lat, lng, speed
    metres: float = 0.0
    stops: list[tuple[int, int]] = field(default_factory=list)  # seconds from the start

    def __post_init__(self):
        self.chance = random.Random(self.seed + DRAW)
        self.states.append((self.lat, self.lng, 0.0))

    def _step(self, speed: float) -> None:
        mean, self.speed = (self.speed + speed) / 2, speed
        phi = math.radians(self.lat)
        # Metres of a degree of latitude, and of longitude, on WGS84.
        north = MERIDIAN_M - 559.822 * math.cos(2 * phi) + 1.175 * math.cos(4 * phi)
        flattened = math.sqrt(1 - 0.00669437999 * math.sin(phi) ** 2)
        east = math.pi / 180 * EQUATOR_M * math.cos(phi) / flattened
        self.lat += mean * math.cos(self.heading) / north
        self.lng += mean * math.sin(self.heading) / east
        self.metres += mean
        self.states.append((self.lat, self.lng, speed))

    def stand(self, seconds: int) -> "Journey":
        began = len(self.states) - 1
        for _ in range(seconds):
            self._step(0.0)
        if seconds >= STOP_S:
            self.stops.append((began, began + seconds))
        return self

    def _roll(self, metres: float, cruise: float, push: float, wobble: float, until: float) -> None:
        """Accelerates to the speed `cruise`, and brakes to the speed `until` at the end.

        Speeds are in m/s. push: acceleration and braking, m/s². wobble: standard deviation of the
        random change of heading in each second, radians.
        """
        end = self.metres + metres
        while self.metres < end:
            remaining = end - self.metres
            target = min(cruise, math.sqrt(until**2 + 2 * push * remaining), self.speed + push)
            self.heading += self.chance.gauss(0, wobble)
            # Do not get so slow that the end is never reached.
            self._step(max(target, min(cruise, 0.6)))

    def drive(
        self,
        metres: float,
        cruise: float,
        block: tuple[float, float],
        push: float = 1.5,
        wobble: float = 0.004,
        turn: float = 0.5,
        light: float = 0.15,
        slow: float = 4.5,
    ) -> "Journey":
        """Drives along blocks of a street.

        A block ends with a turn, a traffic light, both or neither. block: range of the length of a
        block, metres. turn, light: shares of blocks that end with a turn, or with a light. slow:
        speed in a turn, m/s.
        """
        end = self.metres + metres
        while self.metres < end:
            is_turn, is_light = self.chance.random() < turn, self.chance.random() < light
            length = min(self.chance.uniform(*block), end - self.metres)
            is_last = self.metres + length >= end - 1
            until = min(slow, cruise) if is_turn else cruise
            self._roll(length, cruise, push, wobble, 0.0 if is_light or is_last else until)
            if is_light and not is_last:
                self.speed = 0.0
                self.stand(self.chance.randrange(8, 70))
            if is_turn:
                bend = self.chance.choice((-1, 1)) * self.chance.uniform(0.9, 1.7)
                for _ in range(3):
                    self.heading += bend / 3
                    self._step(min(slow, cruise))
        self.speed = 0.0
        return self

    def circle(self, metres: float, radius: float, speed: float) -> "Journey":
        """Drives on a circle with this radius, at a constant speed."""
        end = self.metres + metres
        while self.metres < end:
            self.heading += speed / radius
            self._step(speed)
        self.speed = 0.0
        return self


def town_car(seed="town car") -> Journey:
    """A parcel van in a town, which stops at 14 doors."""
    day = Journey(seed).stand(1500)
    for _ in range(14):
        day.drive(day.chance.uniform(1500, 5500), 13.5, (90, 450)).stand(
            day.chance.randrange(240, 1500)
        )
    return day


def truck() -> Journey:
    """A truck on motorways between yards, four times."""
    day = Journey("truck").stand(2400)
    for _ in range(4):
        day.drive(1500, 12, (150, 500)).drive(
            day.chance.uniform(30_000, 60_000),
            23,
            (3000, 9000),
            push=0.6,
            wobble=0.002,
            turn=0.2,
            light=0,
            slow=20,
        )
        day.drive(1200, 12, (150, 500)).stand(day.chance.randrange(1500, 3600))
    return day


def bicycle() -> Journey:
    day = Journey("bicycle").stand(900)
    for _ in range(9):
        day.drive(
            day.chance.uniform(1200, 4000), 5.2, (60, 350), push=0.8, wobble=0.01, slow=3
        ).stand(day.chance.randrange(240, 1200))
    return day


def walker() -> Journey:
    day = Journey("walker").stand(1200)
    for _ in range(7):
        day.drive(
            day.chance.uniform(500, 1500), 1.35, (60, 220), push=0.8, wobble=0.02, light=0.05
        ).stand(day.chance.randrange(300, 1800))
    return day


def train() -> Journey:
    day = Journey("train").stand(1200)
    for number in range(6):
        day.drive(
            day.chance.uniform(20_000, 45_000),
            50,
            (5000, 12_000),
            push=0.5,
            wobble=0.0015,
            turn=0,
            light=0,
        )
        day.stand(60 if number % 2 else day.chance.randrange(240, 500))
    return day.stand(600)


def ferry() -> Journey:
    day = Journey("ferry", lat=54.6, lng=10.2).stand(1500)
    for _ in range(4):
        day.drive(
            day.chance.uniform(9000, 16_000),
            8.5,
            (4000, 8000),
            push=0.05,
            wobble=0.001,
            turn=0.3,
            light=0,
            slow=7,
        )
        day.stand(day.chance.randrange(900, 2400))
        day.heading += math.pi
    return day


def parked() -> Journey:
    return Journey("parked").stand(8 * 3600)


def commuter() -> Journey:
    """Drives to work and back home, and to a place nearby at noon. The car is parked in between."""
    day = Journey("commuter").stand(3 * 3600).drive(14_000, 16, (200, 900)).stand(4 * 3600)
    return (
        day.drive(1800, 12, (100, 400))
        .stand(1500)
        .drive(1800, 12, (100, 400))
        .stand(4 * 3600)
        .drive(14_000, 16, (200, 900))
        .stand(3 * 3600)
    )


@functools.cache
def unit_errors(seed: str, seconds: int) -> list[tuple[float, float]]:
    """Returns an error of position for each second, north and east, each of variance 1.

    Nine tenths of the variance decay with a time constant of 40 s; the rest is white noise.
    """
    chance, memory = random.Random(f"errors of {seed}{DRAW}"), math.exp(-1 / 40)
    drift_m, noise_m = math.sqrt(0.9), math.sqrt(0.1)
    step_m = drift_m * math.sqrt(1 - memory**2)
    drift, errors = [chance.gauss(0, drift_m), chance.gauss(0, drift_m)], []
    for _ in range(seconds):
        drift = [memory * axis + chance.gauss(0, step_m) for axis in drift]
        errors.append((drift[0] + chance.gauss(0, noise_m), drift[1] + chance.gauss(0, noise_m)))
    return errors


def fixes_of(
    driver: str,
    day: Journey,
    rate_s: int,
    error_m: float,
    has_speed: bool = True,
    spikes: float = 0.0,
    tunnels: int = 0,
    canyons: int = 0,
    sleeps: bool = False,
) -> list[dict]:
    """Returns the fixes that a receiver sends.

    error_m: root mean square of its error (`unit_errors`). spikes: share of wrong fixes, which are
    200 to 900 m off. tunnels: number of silences of up to 150 s while driving. canyons: number of
    periods of 2 to 4 min with four times the error. sleeps: after standing for two minutes, the
    device sends a last fix; it sends the next fix when it wakes, 20 s before it moves.
    """
    chance = random.Random(f"{driver}/{rate_s}/{error_m}{DRAW}")
    errors = unit_errors(day.seed, len(day.states))
    axis = error_m / math.sqrt(2)
    moving = dict.fromkeys(second for second, (_, _, speed) in enumerate(day.states) if speed > 2)
    dark, rough = set(), set()
    for _ in range(tunnels):
        begin = chance.choice(tuple(moving))
        dark.update(
            second for second in range(begin, begin + chance.randrange(40, 150)) if second in moving
        )
    for _ in range(canyons):
        begin = chance.choice(tuple(moving))
        rough.update(range(begin, begin + chance.randrange(120, 240)))
    asleep, awake = set(), set()
    for began, ended in day.stops if sleeps else ():
        asleep.update(range(began + 120, ended - 20))
        awake.update((began + 119, ended - 20))
    fixes, phase = [], chance.randrange(rate_s)
    for second, (lat, lng, speed) in enumerate(day.states):
        if (second % rate_s != phase or second in dark or second in asleep) and second not in awake:
            continue
        scale = 4 if second in rough else 1
        north, east = (scale * axis * error for error in errors[second])
        if chance.random() < spikes:
            distance, bearing = chance.uniform(200, 900), chance.uniform(0, 2 * math.pi)
            north, east = distance * math.cos(bearing), distance * math.sin(bearing)
        fix = {
            "driver": driver,
            "ms": START_MS + second * 1000,
            "seq": len(fixes) + 1,
            "lat": lat + north / 111_200,
            "lng": lng + east / (111_320 * math.cos(math.radians(lat))),
        }
        if has_speed:
            fix["speed"] = round(max(0.0, speed + chance.gauss(0, 0.2)), 2) if speed else 0.0
        fixes.append(fix)
    return fixes


@dataclass
class Labelled:
    """A labelled day.

    Its row in the printed table, the rate and the error of its fixes, the fixes, and the true
    movement.
    """
    row: str
    rate_s: int
    error_m: float
    fixes: list[dict]
    day: Journey

    @property
    def driver(self) -> str:
        return self.fixes[0]["driver"]

    @property
    def stops(self) -> list[tuple[int, int]]:
        return [(START_MS + a * 1000, START_MS + b * 1000) for a, b in self.day.stops]

    @property
    def trips(self) -> int:
        return max(0, len(self.day.stops) - 1)


def corpus(rates=RATES, errors=ERRORS) -> list[Labelled]:
    """Returns a labelled day for each row, rate and error."""
    rows = [
        ("town", town_car(), {}),
        ("town, no speed", town_car(), {"has_speed": False}),
        ("town, spikes", town_car("spikes"), {"spikes": 0.01, "has_speed": False}),
        (
            "town, tunnels and canyons",
            town_car("canyon"),
            {"tunnels": 5, "canyons": 6, "has_speed": False},
        ),
        ("truck", truck(), {}),
        ("bicycle", bicycle(), {"has_speed": False}),
        ("walker", walker(), {"has_speed": False}),
        ("train", train(), {"has_speed": False, "tunnels": 3}),
        ("ferry", ferry(), {"has_speed": False}),
        ("parked, spikes", parked(), {"spikes": 0.004}),
        ("sleeper", commuter(), {"sleeps": True}),
    ]
    found = []
    for row, day, trouble in rows:
        for rate in rates:
            for error in errors:
                fixes = fixes_of(f"{row}/{rate}/{error}", day, rate, error, **trouble)
                found.append(Labelled(row, rate, error, fixes, day))
    return found


def matched(found: list[tuple[int, int]], true_stops: list[tuple[int, int]]) -> int:
    """Returns how many true stops were found.

    A true stop was found if its overlap with a found stop lasts for at least half of the time that
    the two cover together. Each found stop can match only one true stop.
    """
    free, hits = set(range(len(found))), 0
    for began, ended in true_stops:
        for index in sorted(free):
            a, b = found[index]
            if 2 * (min(b, ended) - max(a, began)) >= max(b, ended) - min(a, began):
                free.discard(index)
                hits += 1
                break
    return hits


@dataclass
class Score:
    """Sums over labelled days: what a tool found, and the true values."""
    hits: int = 0  # true stops that were found
    found_stops: int = 0
    true_stops: int = 0
    metres: float = 0.0
    true_metres: float = 0.0
    error_metres: float = 0.0
    trips: int = 0
    true_trips: int = 0

    def add(
        self, labelled: Labelled, stops: list[tuple[int, int]], metres: float, trips: int
    ) -> "Score":
        self.hits += matched(stops, labelled.stops)
        self.found_stops += len(stops)
        self.true_stops += len(labelled.stops)
        self.metres += metres
        self.true_metres += labelled.day.metres
        self.error_metres += abs(metres - labelled.day.metres)
        self.trips += trips
        self.true_trips += labelled.trips
        return self

    @property
    def precision(self) -> float:
        return self.hits / self.found_stops if self.found_stops else 1.0

    @property
    def recall(self) -> float:
        return self.hits / self.true_stops if self.true_stops else 1.0

    @property
    def f1(self) -> float:
        return (
            2 * self.hits / (self.found_stops + self.true_stops)
            if self.found_stops + self.true_stops
            else 1.0
        )

    @property
    def mileage_error(self) -> float:
        """Sum of the absolute errors of the mileage, divided by the true mileage.

        For parked days, the sum in kilometres.
        """
        return self.error_metres / (self.true_metres or 1000)
