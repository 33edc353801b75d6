"""What is written about the server's metrics, compared with those that there are."""

import re
from pathlib import Path

import yaml

from midflight.controller.state import Cluster
from midflight.server.metrics import Server, text
from midflight.server.metrics_port import VARIABLE
from tests.metric_text import kinds, named

ROOT = Path(__file__).resolve().parents[2]
PAGE = (ROOT / "docs/operations.md").read_text("utf-8")
RULES = (ROOT / "deploy/prometheus/rules.yaml").read_text("utf-8")
TOLD = text(Cluster(), [], {}, Server("0.1.0", 1e9, {}, 1, 0, 1, 0, 0.5))


def test_the_alert_rules_are_about_metrics_that_there_are() -> None:
    there = named(TOLD)
    [group] = yaml.safe_load(RULES)["groups"]
    assert len({rule["alert"] for rule in group["rules"]}) == len(group["rules"]) > 1
    for rule in group["rules"]:
        assert rule["labels"]["severity"] in ("critical", "warning")
        assert rule["annotations"]["summary"]
        asked = set(re.findall(r"midflight_\w+", rule["expr"]))
        assert asked or rule["expr"].startswith("up{"), rule["alert"]
        assert asked <= there, rule["alert"]


def test_the_table_of_the_documentation_lists_each_metric_with_its_type() -> None:
    rows = re.findall(r"^\| (`.*`) \| (\w+) \| .* \|$", PAGE, re.MULTILINE)
    listed = {name: kind for names, kind in rows for name in re.findall(r"`(\w+)`", names)}
    assert listed == kinds(TOLD)


def test_the_queries_of_the_documentation_are_about_metrics_that_there_are() -> None:
    asked = set(re.findall(r"\bmidflight_[a-z_]+[a-z]\b", PAGE))
    assert asked <= named(TOLD) | kinds(TOLD).keys()


def test_prometheus_finds_the_port_as_the_documentation_says() -> None:
    [block] = re.findall(r"```yaml\n(scrape_configs:.*?)```", PAGE, re.DOTALL)
    [config] = yaml.safe_load(block)["scrape_configs"]
    assert config["honor_labels"], "`job` would be the name of the scrape"
    assert f'up{{job="{config["job_name"]}"}}' in RULES
    [target] = config["static_configs"][0]["targets"]
    assert f"export {VARIABLE}={target.rpartition(':')[2]}\n" in PAGE
