"""docs/analysts.ipynb: every cell runs, every question is drawn, and what it counted is what truth.py says."""
from __future__ import annotations

from datetime import date

import nbclient
import nbformat

import truth
from conftest import REPOSITORY
from devices import working_day

NOTEBOOK = REPOSITORY / "docs/analysts.ipynb"


def test_the_notebook_answers_ten_questions(day, monkeypatch, tmp_path):
    for name, value in (("CLICKHOUSE_URL", day.url), ("CLICKHOUSE_DATABASE", day.name), ("FLEET_FROM", "2026-06-01"), ("FLEET_TO", "2026-06-03"),
                        ("FLEET_TZ", "Europe/Berlin"), ("IPYTHONDIR", str(tmp_path)), ("MPLCONFIGDIR", str(tmp_path)), ("no_proxy", "127.0.0.1")):
        monkeypatch.setenv(name, value)
    book = nbformat.read(NOTEBOOK, as_version=4)
    assert all(not cell.outputs and cell.execution_count is None for cell in book.cells if cell.cell_type == "code"), "kept without answers"
    counted = nbformat.v4.new_code_cell("print(len(places), round(days.metres.sum()), len(episodes), len(track), len(stops), len(trips), health.missing.sum())")
    book.cells.append(counted)
    nbclient.NotebookClient(book, timeout=300, kernel_name="python3", resources={"metadata": {"path": str(tmp_path)}}).execute()

    drawn = [cell for cell in book.cells if cell.cell_type == "code"
             and any(output.output_type == "display_data" and "image/png" in output.data for output in cell.outputs)]
    questions = [cell for cell in book.cells if cell.cell_type == "markdown" and cell.source.startswith("## ")]
    assert len(drawn) == len(questions) == 10

    fixes = [fix for device in working_day() for fix in device.fixes]
    whole = truth.whole_episodes(fixes)
    days = truth.days(fixes, date(2026, 6, 1), date(2026, 6, 3), "Europe/Berlin")
    found = [int(float(word)) for word in counted.outputs[0].text.split()]
    metres = found.pop(1)
    assert abs(metres - sum(one["metres"] for one in days.values())) < 30
    assert found == [5, 12, len(fixes), sum(key[1] == "stop" and one["ended"] - key[2] > 600_000 for key, one in whole.items()),
                     sum(key[1] == "trip" for key in whole), 4]
