"""Tests the Grafana dashboard of drivers.

Each panel's query runs with the variables filled in as Grafana does, and its columns have units.
"""
from __future__ import annotations

import itertools
import json
import re

import pytest
import yaml

from conftest import REPOSITORY
from devices import epoch_ms

GRAFANA = REPOSITORY / "deploy/grafana"
DASHBOARD = json.loads((GRAFANA / "dashboards/drivers.json").read_text())
PANELS = {panel["title"]: panel for panel in DASHBOARD["panels"]}
SINCE = epoch_ms("2026-06-01T00:00:00", "Europe/Berlin")
UNTIL = epoch_ms("2026-06-03T00:00:00", "Europe/Berlin")
# Columns without a unit: names, times and counts.
PLAIN = {
    "driver_id",
    "ts",
    "time",
    "day",
    "began",
    "ended",
    "name",
    "drivers",
    "fixes",
    "moving",
    "sending",
    "missing",
}


def filled(sql: str, driver: str = "", tz: str = "Europe/Berlin") -> str:
    """Fills in the variables as Grafana does.

    `__from` and `__to` are in milliseconds; strings of the format sqlstring are in quotes.
    """
    quoted = {"driver": driver, "tz": tz}
    sql = sql.replace("${__from}", str(SINCE)).replace("${__to}", str(UNTIL))
    sql = re.sub(
        r"\$\{(\w+):sqlstring\}", lambda found: "'" + quoted[found[1]].replace("'", "''") + "'", sql
    )
    assert "$" not in sql, sql
    return re.sub(r"\bfleet(_ask)?\.", r"{db}\1.", sql)


def answer(db, panel: dict, **more) -> list[dict]:
    (target,) = panel["targets"]
    return db.rows(filled(target["rawSql"], **more))


@pytest.mark.parametrize("title", PANELS)
def test_panel_returns_rows_and_its_columns_have_units(day, title):
    panel = PANELS[title]
    rows = answer(day, panel, driver="anna,eva")
    assert rows and panel["description"]
    columns = set(rows[0])
    if "driver_id" in columns:
        assert {row["driver_id"] for row in rows} == {"anna", "eva"}
    columns_with_unit = {rule["matcher"]["options"] for rule in panel["fieldConfig"]["overrides"]}
    assert columns_with_unit <= columns, "a unit for a column that the query does not return"
    unit = panel["fieldConfig"]["defaults"]["unit"]
    columns_without_unit = columns - columns_with_unit - PLAIN
    assert unit != "short" or not columns_without_unit, columns_without_unit
    if panel["type"] == "geomap":
        for layer in panel["options"]["layers"]:
            assert {layer["location"]["latitude"], layer["location"]["longitude"]} <= columns
        assert (
            panel["options"]["basemap"]["type"] == "carto"
            and "basemaps.cartocdn.com" in panel["description"]
        )
    if panel["type"] == "xychart":
        (series,) = panel["options"]["series"]
        assert {series[axis]["matcher"]["options"] for axis in "xy"} <= columns
    # Without a driver, every panel but Track shows all drivers. A name that contains a quote must
    # not end the string literal: the name counts as an unknown driver.
    all_drivers = answer(day, panel)
    assert (all_drivers == []) == (title == "Track")
    assert title == "Track" or len(all_drivers) >= len(rows)
    assert answer(day, panel, driver="x') OR 1 --") == answer(day, panel, driver="nobody")


def test_figures_match_the_document(day):
    (driven,), (drivers,) = (answer(day, PANELS[title]) for title in ("Driven", "Drivers"))
    assert drivers["drivers"] == 5 and abs(driven["metres"] - 217_700) < 200
    days = {row["day"]: row["metres"] for row in answer(day, PANELS["By day"])}
    assert set(days) == {"2026-06-01", "2026-06-02"} and days["2026-06-01"] > 217_000
    assert len(answer(day, PANELS["Stops of more than ten minutes"])) == 3
    assert len(answer(day, PANELS["Last positions"])) == 5


def test_driver_without_sent_speeds_has_no_mean_speed(db):
    db.insert(
        [
            {"driver": "anna", "ms": SINCE + second * 1000, "lat": 52.5, "lng": 13.4}
            for second in range(0, 600, 15)
        ]
    )
    db.refresh()
    # Grafana shows "NaN" for nan, which JSON would show as null.
    query = filled(PANELS["By driver"]["targets"][0]["rawSql"])
    assert db.ask(f"SELECT mean_speed, top_speed FROM ({query})") == "\\N\t\\N\n"


def test_variables_are_used_and_panels_do_not_overlap():
    provisioned = (GRAFANA / "provisioning/datasources/clickhouse.yml").read_text()
    sources = yaml.safe_load(provisioned)["datasources"]
    source = {"type": sources[0]["type"], "uid": sources[0]["uid"]}
    assert (
        len(PANELS) == len(DASHBOARD["panels"]) == len({panel["id"] for panel in PANELS.values()})
    )
    used = "".join(target["rawSql"] for panel in PANELS.values() for target in panel["targets"])
    for variable in DASHBOARD["templating"]["list"]:
        assert f"${{{variable['name']}:sqlstring}}" in used and variable["description"]
    for panel in PANELS.values():
        assert panel["datasource"] == source and all(
            target["datasource"] == source for target in panel["targets"]
        )
    for first, second in itertools.combinations((panel["gridPos"] for panel in PANELS.values()), 2):
        assert (
            first["x"] + first["w"] <= second["x"]
            or second["x"] + second["w"] <= first["x"]
            or first["y"] + first["h"] <= second["y"]
            or second["y"] + second["h"] <= first["y"]
        ), (first, second)
