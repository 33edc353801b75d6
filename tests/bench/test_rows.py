"""Repeats become medians, medians become a table and JSON."""

import json
from dataclasses import replace

from bench.rows import Row, summarise, table, to_json

ROW = Row("midflight", "resize", 1, 2, "scale-out gap", 12.0, "ms")


def test_the_repeats_of_a_figure_become_their_median_with_its_spread() -> None:
    (figure,) = summarise([replace(ROW, value=value) for value in (30.0, 10.0, 11.0)])
    assert (figure.row.value, figure.low, figure.high, figure.repeats) == (11.0, 10.0, 30.0, 3)


def test_figures_of_different_systems_stay_apart() -> None:
    figures = summarise([ROW, replace(ROW, system="torchft")])
    assert [figure.row.system for figure in figures] == ["midflight", "torchft"]


def test_the_json_is_a_list_of_rows_with_seven_keys() -> None:
    (row,) = json.loads(to_json(summarise([ROW])))
    assert list(row) == ["system", "case", "megabytes", "workers", "metric", "value", "unit"]
    assert row["value"] == 12.0


def test_the_table_puts_the_systems_of_one_figure_under_each_other() -> None:
    other = replace(ROW, metric="scale-in gap")
    rows = [ROW, other, replace(ROW, system="torchft"), replace(other, system="torchft")]
    lines = table(summarise(rows)).splitlines()[2:]
    assert ["scale-out" in line for line in lines] == [True, True, False, False]
    assert ["torchft" in line for line in lines] == [False, True, False, True]
