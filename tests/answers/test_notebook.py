"""Tests docs/analysts.ipynb: all cells run, all questions are drawn, and numbers match truth.py."""
from __future__ import annotations

import json
from datetime import date

import nbclient
import nbformat

import truth
from conftest import REPOSITORY
from devices import working_day

NOTEBOOK = REPOSITORY / "docs/analysts.ipynb"


def test_notebook_answers_ten_questions(day, monkeypatch, tmp_path):
    for name, value in (
        ("CLICKHOUSE_URL", day.url),
        ("CLICKHOUSE_DATABASE", day.name),
        ("FLEET_FROM", "2026-06-01"),
        ("FLEET_TO", "2026-06-03"),
        ("FLEET_TZ", "Europe/Berlin"),
        ("IPYTHONDIR", str(tmp_path)),
        ("MPLCONFIGDIR", str(tmp_path)),
        ("no_proxy", "127.0.0.1"),
    ):
        monkeypatch.setenv(name, value)
    book = nbformat.read(NOTEBOOK, as_version=4)
    assert all(
        not cell.outputs and cell.execution_count is None
        for cell in book.cells
        if cell.cell_type == "code"
    ), "commit the notebook without outputs"
    counted = nbformat.v4.new_code_cell(
        "print(len(places), round(days.metres.sum()), len(episodes), len(track), len(stops), "
        "len(trips), health.missing.sum())\n"
        "print(quarters.to_json(date_format='iso', orient='records')); "
        "print([round(float(figure.axes[0].get_aspect()), 3) for figure in maps])"
    )
    # Collect each figure when it is drawn, because a figure is closed when it is shown.
    for cell in book.cells:
        if cell.cell_type == "code" and "def map_of" in cell.source:
            cell.source += (
                "\nmaps, draw = [], map_of\n"
                "def map_of(*arguments):\n"
                "    axes = draw(*arguments)\n"
                "    maps.append(axes.figure)\n"
                "    return axes\n"
            )
    book.cells.append(counted)
    nbclient.NotebookClient(
        book, timeout=300, kernel_name="python3", resources={"metadata": {"path": str(tmp_path)}}
    ).execute()

    drawn = [
        cell
        for cell in book.cells
        if cell.cell_type == "code"
        and any(
            output.output_type == "display_data" and "image/png" in output.data
            for output in cell.outputs
        )
    ]
    questions = [
        cell
        for cell in book.cells
        if cell.cell_type == "markdown" and cell.source.startswith("## ")
    ]
    assert len(drawn) == len(questions) == 10

    fixes = [fix for device in working_day() for fix in device.fixes]
    episodes = truth.episodes(fixes)
    days = truth.days(fixes, date(2026, 6, 1), date(2026, 6, 3), "Europe/Berlin")
    numbers, rows, aspects = counted.outputs[0].text.splitlines()
    found = [int(float(word)) for word in numbers.split()]
    metres = found.pop(1)  # the second number that the last cell prints
    assert abs(metres - sum(row["metres"] for row in days.values())) < 30
    busiest_count = max(
        sum(row["driver_id"] == driver for row in episodes)
        for driver in {row["driver_id"] for row in episodes}
    )
    assert found == [
        5,
        busiest_count,
        len(fixes),
        sum(row["kind"] == "stop" and row["ended"] - row["began"] > 600_000 for row in episodes),
        sum(row["kind"] == "trip" for row in episodes),
        4,
    ]
    # The third figure has a row for each quarter of an hour, in Berlin's wall clock time, even if
    # no driver sent a fix.
    rows = json.loads(rows)
    assert rows[0]["at"].startswith("2026-06-01T08:00")
    assert rows[-1]["at"].startswith("2026-06-02T00:30")
    assert len(rows) == 67
    assert {row["sending"] for row in rows if "T15:00" <= row["at"][10:16] < "T22:30"} == {0}
    sending = {}
    for fix in fixes:
        sending.setdefault(fix["ms"] // 900_000 * 900, set()).add(fix["driver"])
    assert [row["sending"] for row in rows] == [len(sending.get(row["second"], ())) for row in rows]
    assert all(
        1.6 < aspect < 1.7 for aspect in json.loads(aspects)
    ), "a degree east is 0.6 of one north in Berlin"
