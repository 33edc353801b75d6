"""What the monkey prints for programs: the same formats and spelling as every other verb."""

import json
from collections.abc import Callable
from typing import Any

import pytest
import yaml

from midflight.chaos.choice import KILL, Strike
from midflight.chaos.report import Outcome, Report
from midflight.cli.verbs.chaos_monkey import show
from midflight.runtime.data.audit import EpochReport
from midflight.runtime.data.audit import Report as Audit

EPOCH = EpochReport(0, 90, 9, 2, 2, 3, 1, 0, 0, under_way=True)
AUDIT = Audit((EPOCH,), shares=20, vouched=1, problems=())
REPORT = Report(7, (Outcome(1.5, Strike(KILL, "m1"), "killed", 0.3),), {"cut": "needs Linux"})


@pytest.mark.parametrize(("format", "read"), [("json", json.loads), ("yaml", yaml.safe_load)])
def test_a_report_for_programs_has_keys_in_camel_case(
    format: str, read: Callable[[str], Any], capsys: pytest.CaptureFixture[str]
) -> None:
    show(format, "digits", REPORT, AUDIT)
    shown = read(capsys.readouterr().out)
    assert shown["impossible"] == {"cut": "needs Linux"}
    assert shown["strikes"] == [
        {
            "action": "kill",
            "target": "m1",
            "peer": "",
            "seconds": 0.0,
            "to": 0,
            "at": 1.5,
            "effect": "killed",
            "wentOnAfter": 0.3,
        }
    ]
    audit = shown["audit"]
    assert (audit["ok"], audit["shares"]) == (True, 20)
    assert (audit["epochs"][0]["underWay"], audit["epochs"][0]["samples"]) == (True, 90)


def test_a_report_by_name_is_the_name_of_the_training(capsys: pytest.CaptureFixture[str]) -> None:
    show("name", "digits", REPORT, None)
    assert capsys.readouterr().out == "digits\n"


def test_a_training_without_ledgers_has_no_audit(capsys: pytest.CaptureFixture[str]) -> None:
    show("json", "digits", REPORT, None)
    assert json.loads(capsys.readouterr().out)["audit"] is None
