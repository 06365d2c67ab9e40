"""sql/queries, sql/exports and every query of docs/analysts.md, as they are written.

ANSWERS_WRITE=1 puts the engine's answers into docs/analysts.md, in the place of those that are there.
"""
from __future__ import annotations

import csv
import io
import json
import os
import re
import struct
import time
import xml.etree.ElementTree
import zlib

import pytest

import truth
from conftest import REPOSITORY
from devices import Device, epoch_ms, working_day

QUERIES = {path.name: path.read_text() for path in sorted((REPOSITORY / "sql/queries").glob("*.sql"))}
EXPORTS = {path.name: path.read_text() for path in sorted((REPOSITORY / "sql/exports").glob("*.sql"))}
DOCUMENT = REPOSITORY / "docs/analysts.md"
DAY = {"driver": "", "from": "2026-06-01", "to": "2026-06-02", "tz": "Europe/Berlin"}
BOX = {"south": "52.4", "west": "13.3", "north": "52.6", "east": "13.6"}
# What to ask each file, and who must be in the answer.
ASKED = {
    "busiest_places.sql": (DAY, None),
    "how_far_did_each_drive.sql": (DAY, {"anna", "ben", "chloe", "dmitri", "eva"}),
    "track_of_a_driver.sql": ({**DAY, "driver": "anna"}, None),
    "trips.sql": (DAY, {"anna", "ben", "chloe", "dmitri", "eva"}),
    "trips_of_months.sql": ({**DAY, "to": "2026-06-03"}, {"anna", "ben", "chloe", "dmitri", "eva"}),
    "what_was_refused.sql": ({}, None),
    "where_do_they_drive.sql": ({**DAY, **BOX, "letters": "6"}, None),
    "where_do_they_stop.sql": ({**DAY, "to": "2026-06-03", "minutes": "10"}, None),
    "where_is_everybody.sql": ({}, {"lately"}),
    "where_was_nobody_listening.sql": (DAY, {"anna", "ben", "chloe", "eva"}),
    "which_devices_are_ill.sql": (DAY, {"eva"}),
    "who_is_in_the_box.sql": (BOX, {"anna", "ben", "chloe", "lately"}),
    "who_is_silent.sql": ({}, {"hours-ago"}),
    "who_stood_still.sql": ({**DAY, "to": "2026-06-03"}, {"anna", "dmitri", "eva"}),
    "who_was_about.sql": ({**DAY, "lat": "52.52", "lng": "13.405", "metres": "200"}, {"anna", "ben", "chloe", "dmitri", "eva"}),
    "who_was_near.sql": ({**DAY, "lat": "52.52", "lng": "13.405", "metres": "200"}, {"anna", "ben", "chloe", "dmitri", "eva"}),
    "who_was_too_fast.sql": ({**DAY, "kmh": "100"}, {"chloe"}),
}


@pytest.fixture(scope="module")
def lively(engine, make_db):
    """The day that the document asks about, with somebody who sends now, somebody who was silent for hours, and a refusal."""
    db, now = make_db(engine), round(time.time() * 1000)
    for device in working_day():
        db.insert(device.fixes)
    db.insert([{"driver": "lately", "ms": now - 5000, "lat": 52.5, "lng": 13.4},
               {"driver": "hours-ago", "ms": now - 3 * 3_600_000, "lat": 0, "lng": 1}])
    db.refresh()
    db.ask("INSERT INTO {db}.rejects (received_at, driver_id, reason, detail, count) VALUES (now64(3), 'd9', 'lat_range', 'lat is 91', 3)")
    return db


def here(sql: str) -> str:
    """The statement for the test's database."""
    return re.sub(r"\bfleet(_ask)?\.", r"{db}\1.", sql)


def run(db, sql: str, parameters: dict, **settings) -> bytes:
    given = {f"param_{name}": value for name, value in parameters.items()}
    # A query's own parameters are in braces, too: only the database's name is to be put in.
    return db.answer(here(sql), **given, **settings)[0]


@pytest.mark.parametrize("name", QUERIES)
def test_a_query_answers(lively, name):
    parameters, drivers = ASKED[name]
    assert QUERIES[name].startswith("-- "), "it says what it answers"
    rows = [json.loads(line) for line in run(lively, QUERIES[name], parameters, default_format="JSONEachRow").splitlines()]
    assert rows
    if drivers is not None:
        assert {row["driver_id"] for row in rows} == drivers


def test_who_parks_with_a_device_that_sleeps_stands_still(db):
    device = Device("sleepy", "2026-06-01T08:00:00", 52.5, 13.4).drive(90, 10, 600).silent(6 * 3600)
    db.insert(device.drive(90, 10, 600).fixes)
    rows = [json.loads(line) for line in run(db, QUERIES["who_stood_still.sql"], DAY, default_format="JSONEachRow").splitlines()]
    assert [(row["driver_id"], row["kind"], row["minutes"]) for row in rows] == [("sleepy", "gap", 360)]


def test_there_is_a_dozen_and_each_is_asked():
    assert set(ASKED) == set(QUERIES) and len(QUERIES) >= 12


def export(db, name: str, **more) -> bytes:
    return run(db, EXPORTS[name], {**DAY, **more})


def test_gpx(day):
    name = "{http://www.topografix.com/GPX/1/1}"
    (segment,) = xml.etree.ElementTree.fromstring(export(day, "track.gpx.sql", driver="anna")).iter(f"{name}trkseg")
    anna = truth.by_driver(working_day()[0].fixes)["anna"]
    assert [(float(point.get("lat")), float(point.get("lon"))) for point in segment] == [(fix["lat"], fix["lng"]) for fix in anna]
    assert segment[0].find(f"{name}time").text == "2026-06-01T06:00:00Z"


def test_geojson(day):
    tracks = json.loads(export(day, "tracks.geojson.sql"))["features"]
    assert [one["properties"]["driver_id"] for one in tracks] == ["anna", "ben", "chloe", "dmitri", "eva"]
    anna = truth.by_driver(working_day()[0].fixes)["anna"]
    assert tracks[0]["geometry"] == {"type": "LineString", "coordinates": [[fix["lng"], fix["lat"]] for fix in anna]}
    points = json.loads(export(day, "positions.geojson.sql"))["features"]
    assert points[0]["geometry"] == {"type": "Point", "coordinates": [anna[-1]["lng"], anna[-1]["lat"]]}
    assert points[0]["properties"]["driver_id"] == "anna" and points[0]["properties"]["heading"] is None


def test_csv(day):
    rows = list(csv.DictReader(io.StringIO(export(day, "days.csv.sql").decode())))
    assert [row["driver_id"] for row in rows] == ["anna", "ben", "chloe", "dmitri", "eva"]
    assert abs(float(rows[0]["km"]) - 36) < 0.05


@pytest.mark.parametrize("name, count, columns", [("fixes.parquet.sql", None, 9), ("positions.parquet.sql", 5, 5)])
def test_parquet(day, name, count, columns, tmp_path):
    file = tmp_path / "export.parquet"
    file.write_bytes(export(day, name))
    expected = count or int(day.ask("SELECT count() FROM {db}.fixes WHERE ts < '2026-06-01 22:00:00'"))
    assert day.ask(f"SELECT count(), uniqExact(driver_id) FROM file('{file}', Parquet)") == f"{expected}\t5\n"
    assert len(day.ask(f"DESCRIBE file('{file}', Parquet)").splitlines()) == columns
    if "positions" in name:
        assert b'"primary_column":"geometry"' in file.read_bytes().replace(b" ", b""), "no GeoParquet"


def pixels(png: bytes) -> list[list[tuple[int, int, int]]]:
    """The rows of a picture of three bytes a point (PNG specification, sections 9 and 11)."""
    assert png[:8] == b"\x89PNG\r\n\x1a\n"
    at, data, width = 8, b"", 0
    while at < len(png):
        length, kind = struct.unpack_from(">I4s", png, at)
        body, at = png[at + 8:at + 8 + length], at + 12 + length
        if kind == b"IHDR":
            width, _, depth, colours = struct.unpack_from(">IIBB", body)
            assert (depth, colours) == (8, 2)
        data += body if kind == b"IDAT" else b""
    raw, size = zlib.decompress(data), 3 * width
    rows, above = [], bytearray(size)
    for start in range(0, len(raw), size + 1):
        kind, line = raw[start], bytearray(raw[start + 1:start + 1 + size])
        for place in range(size):
            left, up, corner = (line[place - 3], above[place], above[place - 3]) if place > 2 else (0, above[place], 0)
            guess = left + up - corner
            paeth = min((left, up, corner), key=lambda one: abs(guess - one))
            line[place] = (line[place] + (0, left, up, (left + up) // 2, paeth)[kind]) % 256
        rows.append([tuple(line[place:place + 3]) for place in range(0, size, 3)])
        above = line
    return rows


def test_png(day):
    south, west, north, east = 52.4, 13.2, 52.7, 13.8
    box = {"south": str(south), "west": str(west), "north": str(north), "east": str(east)}
    rows = pixels(export(day, "heatmap.png.sql", **box))
    assert [len(rows), len(rows[0])] == [1024, 1024]
    counts: dict[tuple[int, int], int] = {}
    for track in truth.by_driver([fix for device in working_day() for fix in device.fixes]).values():
        for fix in track:
            if south <= fix["lat"] <= north and west <= fix["lng"] <= east and fix["ms"] < epoch_ms("2026-06-02T00:00:00", "Europe/Berlin"):
                place = int((north - fix["lat"]) / (north - south) * 1024), int((fix["lng"] - west) / (east - west) * 1024)
                counts[place] = counts.get(place, 0) + 1
    lit = {(y, x): point for y, row in enumerate(rows) for x, point in enumerate(row) if point != (0, 0, 0)}
    # A fix on the border of two points may be in either: the last bit of a division.
    assert len(counts) > 300 and len(set(lit) ^ set(counts)) <= len(counts) // 100
    busiest = max(counts, key=counts.get)
    assert lit[busiest] == (255, 255, 255) == max(lit.values()) and min(lit.values())[1:] == (0, 0)


def test_every_export_is_asked():
    assert set(EXPORTS) == {"heatmap.png.sql", "track.gpx.sql", "tracks.geojson.sql", "positions.geojson.sql", "days.csv.sql", "fixes.parquet.sql",
                            "positions.parquet.sql"}


QUERY_AND_ANSWER = re.compile(r"```sql\n(.*?)```\n(?:\n((?:\|[^\n]*\n)+))?", re.DOTALL)


def test_the_document_says_what_the_engine_says(day):
    text = DOCUMENT.read_text()
    def answer(found):
        sql, shown = found.groups()
        said = run(day, sql.rstrip().rstrip(";"), {}, default_format="Markdown").decode()
        return found.group(0) if shown is None else f"```sql\n{sql}```\n\n{said}"
    said = QUERY_AND_ANSWER.sub(answer, text)
    assert len([found for found in QUERY_AND_ANSWER.finditer(text) if found.group(2)]) >= 10
    if os.environ.get("ANSWERS_WRITE"):
        DOCUMENT.write_text(said)
    assert DOCUMENT.read_text() == said


def test_the_document_names_every_view_query_and_export(day):
    text = DOCUMENT.read_text()
    views = day.ask("SELECT name FROM system.tables WHERE database = '{db}_ask'").split()
    assert [name for name in views if f"`{name}(" not in text] == []
    assert [name for name in [*QUERIES, *EXPORTS] if f"{name})" not in text] == []
