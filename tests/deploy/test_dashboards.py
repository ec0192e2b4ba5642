"""The files for Prometheus and Grafana: rules do what they say, and nothing asks for a metric that is not there."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from ruamel.yaml import YAML
from tests.servers.base import Unavailable, program
from tests.servers.fixtures import missing

from penstock.control.metrics import CATALOGUE, SERVER_CATALOGUE
from penstock.spec.alerts import DEFAULTS

DEPLOY = Path(__file__).resolve().parents[2] / "deploy"
RULES = DEPLOY / "prometheus" / "rules.yaml"
DASHBOARDS = sorted((DEPLOY / "grafana").glob("*.json"))
LABELS = {metric.name: {"pipeline", *metric.labels} for metric in CATALOGUE}
LABELS |= {metric.name: set[str]() for metric in SERVER_CATALOGUE}
_SELECTOR = re.compile(r"\b(penstock_\w+)(?:\{([^}]*)\})?")
_GROUPED = re.compile(r"\b(?:by|on)\s*\(([^)]*)\)")
_VARIABLES = {"$__rate_interval": "5m", "$pipeline": "demo", "$datasource": "prometheus"}


@cache
def _promtool() -> Path | Unavailable:
    try:
        return program("promtool", [], "prometheus")
    except Unavailable as error:
        return error


@pytest.fixture(scope="module")
def promtool() -> Path:
    found = _promtool()
    if isinstance(found, Unavailable):
        missing("promtool", found)
    return found


def run(promtool: Path, *arguments: str | Path) -> str:
    done = subprocess.run(
        [str(promtool), *map(str, arguments)], capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def rules() -> list[dict[str, Any]]:
    return [rule for group in YAML(typ="safe").load(RULES)["groups"] for rule in group["rules"]]


def dashboard(path: Path) -> dict[str, Any]:
    content: dict[str, Any] = json.loads(path.read_text("utf-8"))
    return content


def expressions(path: Path) -> Iterator[str]:
    """All that a dashboard asks Prometheus."""
    content = dashboard(path)
    for panel in content["panels"]:
        yield from (target["expr"] for target in panel.get("targets", ()))
    for variable in content["templating"]["list"]:
        if variable["type"] == "query":
            found = re.fullmatch(r"label_values\((\w+), (\w+)\)", variable["query"]["query"])
            assert found is not None
            yield f"count by ({found[2]}) ({found[1]})"


def unknown(expression: str) -> list[str]:
    """Metrics and labels of an expression that the catalogue does not have."""
    wrong = []
    named: set[str] = set()
    for name, selectors in _SELECTOR.findall(expression):
        if name not in LABELS:
            wrong.append(name)
            continue
        named |= LABELS[name]
        wrong += [f"{name}.{label}" for label in re.findall(r"(\w+)\s*(?:=~|!~|!=|=)", selectors)
                  if label not in LABELS[name]]  # fmt: skip
    for labels in _GROUPED.findall(expression):
        wrong += [label for label in re.split(r"\s*,\s*", labels) if label not in named]
    return wrong


def test_the_rules_do_what_their_tests_say(promtool: Path) -> None:
    assert "SUCCESS" in run(promtool, "check", "rules", RULES)
    assert "SUCCESS" in run(promtool, "test", "rules", RULES.with_name("rules_test.yaml"))


def test_the_configuration_of_prometheus_is_sound(promtool: Path, tmp_path: Path) -> None:
    shutil.copytree(RULES.parent, tmp_path, dirs_exist_ok=True)
    (tmp_path / "penstock.token").write_text("pst_x", "utf-8")
    run(promtool, "check", "config", tmp_path / "prometheus.yaml")


def test_a_rule_that_did_something_else_would_be_noticed(promtool: Path, tmp_path: Path) -> None:
    (tmp_path / "rules.yaml").write_text(RULES.read_text("utf-8").replace("> 600", "> 6000"), "utf-8")
    tests = tmp_path / "rules_test.yaml"
    tests.write_text(RULES.with_name("rules_test.yaml").read_text("utf-8"), "utf-8")
    done = subprocess.run([str(promtool), "test", "rules", str(tests)], capture_output=True, text=True, check=False)
    assert done.returncode != 0
    assert "PenstockNoCommit" in done.stdout + done.stderr


def test_every_rule_is_tested() -> None:
    tests = YAML(typ="safe").load(RULES.with_name("rules_test.yaml"))["tests"]
    fired = {case["alertname"] for test in tests for case in test["alert_rule_test"] if case["exp_alerts"]}
    assert fired == {rule["alert"] for rule in rules()}


def test_there_is_a_rule_for_each_alert_that_every_pipeline_has() -> None:
    """Of the same severity, in the order of the severities of both."""
    about_pipelines = [rule for rule in rules() if "pipeline" in rule["annotations"]["summary"]]
    assert sorted(rule["labels"]["severity"] for rule in about_pipelines) == sorted(
        alert.severity for alert in DEFAULTS.values()
    )


@pytest.mark.parametrize("rule", rules(), ids=lambda rule: str(rule["alert"]))
def test_rules_use_only_metrics_of_the_catalogue(rule: dict[str, Any]) -> None:
    assert unknown(rule["expr"]) == []
    assert rule["labels"]["severity"] in ("page", "warn", "info")


def test_an_unknown_metric_or_label_would_be_noticed() -> None:
    assert unknown("rate(penstock_rows_inn_total[5m])") == ["penstock_rows_inn_total"]
    assert unknown('penstock_backlog{pipelin="x"}') == ["penstock_backlog.pipelin"]
    assert unknown("sum by (nod) (penstock_backlog)") == ["nod"]


@pytest.mark.parametrize("path", DASHBOARDS, ids=lambda path: path.stem)
def test_dashboards_use_only_metrics_of_the_catalogue(path: Path) -> None:
    asked = list(expressions(path))
    assert asked
    assert [(expression, unknown(expression)) for expression in asked if unknown(expression)] == []


def test_the_dashboards_together_show_every_metric() -> None:
    shown = {name for path in DASHBOARDS for text in expressions(path) for name, _ in _SELECTOR.findall(text)}
    raw = {"penstock_watermark_timestamp_seconds"}
    assert LABELS.keys() - shown == raw


@pytest.mark.parametrize("path", DASHBOARDS, ids=lambda path: path.stem)
def test_what_dashboards_ask_is_understood_by_prometheus(promtool: Path, path: Path, tmp_path: Path) -> None:
    recorded = []
    for number, expression in enumerate(expressions(path)):
        for variable, value in _VARIABLES.items():
            expression = expression.replace(variable, value)
        assert "$" not in expression
        recorded.append({"record": f"panel:{number}", "expr": expression})
    file = tmp_path / "rules.yaml"
    file.write_text(json.dumps({"groups": [{"name": path.stem, "rules": recorded}]}), "utf-8")
    run(promtool, "check", "rules", "--lint=none", file)


@pytest.mark.parametrize("path", DASHBOARDS, ids=lambda path: path.stem)
def test_dashboards_can_be_imported_anywhere(path: Path) -> None:
    """The data source is chosen by a variable; panels have numbers of their own and do not lie on each other."""
    content = dashboard(path)
    assert content["templating"]["list"][0]["type"] == "datasource"
    panels = content["panels"]
    sources = {panel["datasource"]["uid"] for panel in panels if panel["type"] != "row"}
    assert sources == {"${datasource}"}
    assert len({panel["id"] for panel in panels}) == len(panels)
    taken: set[tuple[int, int]] = set()
    for panel in panels:
        at = panel["gridPos"]
        cells = {(x, y) for x in range(at["x"], at["x"] + at["w"]) for y in range(at["y"], at["y"] + at["h"])}
        assert at["x"] + at["w"] <= 24
        assert not cells & taken, panel["title"]
        taken |= cells
        assert panel["type"] == "row" or panel["description"]


def test_the_dashboards_have_addresses_of_their_own() -> None:
    assert [path.stem for path in DASHBOARDS] == ["fleet", "pipeline", "state-and-sinks"]
    assert len({dashboard(path)["uid"] for path in DASHBOARDS}) == len(DASHBOARDS)
