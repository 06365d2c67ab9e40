"""Compares stops, trips and mileage of milepost, movingpandas and trackintel on labelled days.

    make trips        installs both tools into a venv of their own; takes some minutes

Prints a Markdown table. The labelled days are those of corpus.py.

milepost: computed by truth.py; test_labelled_days_match_truth checks that the views agree with it.
movingpandas: stops of at least three minutes within 100 m, because movingpandas has no defaults;
the mileage is the length of the trajectory. trackintel: its defaults; the mileage is the length of
the triplegs.
"""
from __future__ import annotations

import sys
import warnings
from datetime import timedelta

import geopandas
import movingpandas
import pandas
import trackintel

import truth
from corpus import Score, corpus

warnings.filterwarnings("ignore")


def milepost(labelled):
    """Returns what milepost finds in a labelled day: stops, mileage in metres and number of trips.

    The functions of the other tools return the same.
    """
    found = truth.episodes(labelled.fixes)
    stops = [(row["began"], row["ended"]) for row in found if row["kind"] == "stop"]
    return stops, sum(row["metres"] for row in found), sum(row["kind"] == "trip" for row in found)


def frame(labelled):
    fixes = labelled.fixes
    times = pandas.to_datetime([fix["ms"] for fix in fixes], unit="ms", utc=True)
    points = geopandas.points_from_xy([fix["lng"] for fix in fixes], [fix["lat"] for fix in fixes])
    return geopandas.GeoDataFrame(
        {"user_id": 0, "tracked_at": times}, geometry=points, crs="EPSG:4326"
    )


def milliseconds(time) -> int:
    return round(pandas.Timestamp(time).timestamp() * 1000)


def with_movingpandas(labelled):
    data = frame(labelled).set_index("tracked_at")
    data.index = data.index.tz_localize(None)
    trajectory = movingpandas.Trajectory(data, "user_id")
    found = movingpandas.TrajectoryStopDetector(trajectory).get_stop_time_ranges(
        min_duration=timedelta(seconds=180), max_diameter=100
    )
    stops = [(milliseconds(stop.t_0), milliseconds(stop.t_n)) for stop in found]
    return stops, trajectory.get_length(), max(0, len(stops) - 1)


def with_trackintel(labelled):
    fixes, stays = trackintel.Positionfixes(frame(labelled)).generate_staypoints()
    stops = [
        (milliseconds(row.started_at), milliseconds(row.finished_at)) for row in stays.itertuples()
    ]
    _, legs = trackintel.Positionfixes(fixes).generate_triplegs(
        trackintel.Staypoints(stays) if len(stays) else None
    )
    metres = 0.0
    for line in legs.geometry:
        ends = [(lat, lng) for lng, lat in line.coords]
        metres += sum(truth.metres(*a, *b) for a, b in zip(ends, ends[1:]))
    return stops, metres, len(legs)


def main(rates="5,30", errors="3,15") -> None:
    days = corpus(tuple(map(int, rates.split(","))), tuple(map(int, errors.split(","))))
    tools = {"milepost": milepost, "movingpandas": with_movingpandas, "trackintel": with_trackintel}
    print(
        "| day | "
        + " | ".join(f"{tool}: F1 | mileage off | trips" for tool in tools)
        + " |\n|---|"
        + "--:|" * 3 * len(tools)
    )
    for row in dict.fromkeys(day.row for day in days):
        cells = []
        for tool, find in tools.items():
            score = Score()
            for day in (day for day in days if day.row == row):
                score.add(day, *find(day))
            off = (
                f"{score.mileage_error:.1%}"
                if score.true_metres
                else f"{score.error_metres / 1000:.1f} km"
            )
            cells.append(f"{score.f1:.2f} | {off} | {score.trips} of {score.true_trips}")
        print(f"| {row} | " + " | ".join(cells) + " |", flush=True)


main(*sys.argv[1:])
