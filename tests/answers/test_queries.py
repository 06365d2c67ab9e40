"""Runs the exports of sql/exports and every query of docs/analysts.md as they are written.

ANSWERS_WRITE=1 replaces the answers in docs/analysts.md with those of the engine.
"""
from __future__ import annotations

import csv
import json
import os
import re
import struct
import xml.etree.ElementTree
import zlib

import duckdb
import geopandas
import pytest

import truth
from conftest import REPOSITORY
from devices import epoch_ms, working_day

EXPORTS = {
    path.name: path.read_text() for path in sorted((REPOSITORY / "sql/exports").glob("*.sql"))
}
DOCUMENT = REPOSITORY / "docs/analysts.md"
DAY = {"driver": "", "from": "2026-06-01", "to": "2026-06-02", "tz": "Europe/Berlin"}


def for_test_database(sql: str) -> str:
    """Returns the statement with the name of the test's database filled in."""
    return re.sub(r"\bfleet(_ask)?\.", r"{db}\1.", sql)


def run(db, sql: str, parameters: dict, **settings) -> bytes:
    given = {f"param_{name}": value for name, value in parameters.items()}
    # This replaces only the name of the database. The query's own parameters are in braces, too:
    # ClickHouse fills them in, from the URL parameters `param_...`.
    return db.answer(for_test_database(sql), **given, **settings)[0]


def export(db, name: str, **more) -> bytes:
    return run(db, EXPORTS[name], {**DAY, **more})


def test_gpx_export_has_every_fix_of_a_driver(day):
    name = "{http://www.topografix.com/GPX/1/1}"
    (segment,) = xml.etree.ElementTree.fromstring(export(day, "track.gpx.sql", driver="anna")).iter(
        f"{name}trkseg"
    )
    anna = truth.by_driver(working_day()[0].fixes)["anna"]
    assert [(float(point.get("lat")), float(point.get("lon"))) for point in segment] == [
        (fix["lat"], fix["lng"]) for fix in anna
    ]
    assert segment[0].find(f"{name}time").text == "2026-06-01T06:00:00Z"


def test_geojson_export_has_a_line_per_driver(day):
    tracks = json.loads(export(day, "tracks.geojson.sql"))["features"]
    assert [track["properties"]["driver_id"] for track in tracks] == [
        "anna",
        "ben",
        "chloe",
        "dmitri",
        "eva",
    ]
    anna = truth.by_driver(working_day()[0].fixes)["anna"]
    assert tracks[0]["geometry"] == {
        "type": "LineString",
        "coordinates": [[fix["lng"], fix["lat"]] for fix in anna],
    }


def test_fixes_as_csv_and_as_points_of_geojson(day):
    anna = truth.by_driver(working_day()[0].fixes)["anna"]
    rows = list(csv.DictReader(export(day, "fixes.csv.sql", driver="anna").decode().splitlines()))
    assert [(float(row["lat"]), float(row["lng"])) for row in rows] == [
        (fix["lat"], fix["lng"]) for fix in anna
    ]
    assert rows[0]["ts"] == "2026-06-01T06:00:00.000Z"
    assert list(rows[0])[:3] == ["driver_id", "ts", "seq"]
    points = json.loads(export(day, "fixes.geojson.sql", driver="anna"))["features"]
    assert [point["geometry"]["coordinates"] for point in points] == [
        [fix["lng"], fix["lat"]] for fix in anna
    ]
    assert (
        points[0]["properties"]["ts"] == "2026-06-01T06:00:00.000Z"
        and points[0]["properties"]["driver_id"] == "anna"
    )


@pytest.mark.parametrize("name", ["tracks.parquet.sql", "fixes.parquet.sql"])
def test_geoparquet_opens_in_geopandas_and_in_duckdb(day, name, tmp_path):
    file = tmp_path / "export.parquet"
    file.write_bytes(export(day, name))
    fixes = [
        fix
        for driver, track in sorted(
            truth.by_driver([fix for device in working_day() for fix in device.fixes]).items()
        )
        for fix in track
        if fix["ms"] < epoch_ms("2026-06-02T00:00:00", "Europe/Berlin")
    ]
    points = [(fix["lng"], fix["lat"]) for fix in fixes]
    frame = geopandas.read_parquet(file)
    drivers = frame.driver_id.str.decode("utf-8")
    assert frame.crs.equals("EPSG:4326")
    assert drivers.unique().tolist() == ["anna", "ben", "chloe", "dmitri", "eva"]
    assert [place for shape in frame.geometry for place in shape.coords] == points
    setting, query = re.search(
        r"    (SET enable_geoparquet.*)\n    (SELECT .*);", DOCUMENT.read_text()
    ).groups()
    base = duckdb.connect()
    base.execute(setting)
    texts = base.sql(
        "SELECT driver_id, ST_AsText(geometry) FROM ("
        + query.replace("tracks.parquet", str(file))
        + ")"
    ).fetchall()
    assert [driver for driver, _ in texts] == drivers.tolist()
    assert [
        tuple(map(float, place.split()))
        for _, text in texts
        for place in re.findall(r"[-0-9.]+ [-0-9.]+", text)
    ] == points


def pixels(png: bytes) -> list[list[tuple[int, int, int]]]:
    """Returns the rows of pixels of a PNG with three bytes per pixel.

    PNG specification, sections 9 and 11.
    """
    assert png[:8] == b"\x89PNG\r\n\x1a\n"
    at, data, width = 8, b"", 0
    while at < len(png):
        length, chunk_type = struct.unpack_from(">I4s", png, at)
        body, at = png[at + 8:at + 8 + length], at + 12 + length
        if chunk_type == b"IHDR":
            width, _, depth, colours = struct.unpack_from(">IIBB", body)
            assert (depth, colours) == (8, 2)
        data += body if chunk_type == b"IDAT" else b""
    raw, size = zlib.decompress(data), 3 * width
    rows, above = [], bytearray(size)
    for start in range(0, len(raw), size + 1):
        filter_type, line = raw[start], bytearray(raw[start + 1:start + 1 + size])
        for offset in range(size):
            left, up, corner = (
                (line[offset - 3], above[offset], above[offset - 3])
                if offset > 2
                else (0, above[offset], 0)
            )
            guess = left + up - corner
            paeth = min((left, up, corner), key=lambda neighbour: abs(guess - neighbour))
            line[offset] = (
                line[offset] + (0, left, up, (left + up) // 2, paeth)[filter_type]
            ) % 256
        rows.append([tuple(line[offset:offset + 3]) for offset in range(0, size, 3)])
        above = line
    return rows


def test_png_export_has_a_lit_pixel_where_fixes_are(day):
    south, west, north, east = 52.4, 13.2, 52.7, 13.8
    box = {"south": str(south), "west": str(west), "north": str(north), "east": str(east)}
    rows = pixels(export(day, "heatmap.png.sql", **box))
    assert [len(rows), len(rows[0])] == [1024, 1024]
    counts: dict[tuple[int, int], int] = {}
    for track in truth.by_driver(
        [fix for device in working_day() for fix in device.fixes]
    ).values():
        for fix in track:
            if (
                south <= fix["lat"] <= north
                and west <= fix["lng"] <= east
                and fix["ms"] < epoch_ms("2026-06-02T00:00:00", "Europe/Berlin")
            ):
                y = int((north - fix["lat"]) / (north - south) * 1024)
                x = int((fix["lng"] - west) / (east - west) * 1024)
                counts[y, x] = counts.get((y, x), 0) + 1
    lit = {
        (y, x): point
        for y, row in enumerate(rows)
        for x, point in enumerate(row)
        if point != (0, 0, 0)
    }
    # A fix on the border of two pixels may be in either: the two divisions can differ in the last
    # bit.
    assert len(counts) > 300 and len(set(lit) ^ set(counts)) <= len(counts) // 100
    busiest = max(counts, key=counts.get)
    # The busiest pixel is white, and the pixel with the fewest fixes is red.
    assert lit[busiest] == (255, 255, 255) == max(lit.values()) and min(lit.values())[1:] == (0, 0)


def test_png_export_of_a_box_across_180_degrees(db):
    fix = {"driver": "anna", "ms": epoch_ms("2026-06-01T12:00:00"), "lat": -17.5, "lng": 179.25}
    db.insert([fix, {**fix, "driver": "ben", "lng": -179.25}])
    box = {"south": "-18", "west": "179", "north": "-17", "east": "-179"}
    rows = pixels(export(db, "heatmap.png.sql", **box))
    lit = [x for row in rows for x, point in enumerate(row) if point != (0, 0, 0)]
    assert lit == [128, 896]


def test_every_export_has_a_test():
    assert set(EXPORTS) == {
        "fixes.csv.sql",
        "fixes.geojson.sql",
        "fixes.parquet.sql",
        "heatmap.png.sql",
        "track.gpx.sql",
        "tracks.geojson.sql",
        "tracks.parquet.sql",
    }


QUERY_AND_ANSWER = re.compile(r"```sql\n(.*?)```\n(?:\n((?:\|[^\n]*\n)+))?", re.DOTALL)


def test_answers_in_the_document_match_the_engine(day):
    text = DOCUMENT.read_text()
    def with_answer(found):
        sql, shown = found.groups()
        answer = run(day, sql.rstrip().rstrip(";"), {}, default_format="Markdown").decode()
        return found.group(0) if shown is None else f"```sql\n{sql}```\n\n{answer}"
    updated = QUERY_AND_ANSWER.sub(with_answer, text)
    assert len([found for found in QUERY_AND_ANSWER.finditer(text) if found.group(2)]) >= 10
    if os.environ.get("ANSWERS_WRITE"):
        DOCUMENT.write_text(updated)
    assert DOCUMENT.read_text() == updated


def test_document_names_every_view_query_and_export(day):
    text = DOCUMENT.read_text()
    views = day.ask("SELECT name FROM system.tables WHERE database = '{db}_ask'").split()
    assert [name for name in views if f"`{name}(" not in text] == []
    assert [name for name in EXPORTS if f"{name})" not in text] == []
