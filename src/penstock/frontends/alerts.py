"""What can be wrong with the alerts of a pipeline beside each one's own keys: names, and nodes that are not there."""

from __future__ import annotations

from collections.abc import Mapping

from penstock.errors import did_you_mean
from penstock.frontends.findings import Findings, place_in_words
from penstock.spec.alerts import DEFAULTS, Alert
from penstock.spec.conditions import MEASURES
from penstock.spec.location import Path_


def check_alerts(alerts: Mapping[int, Alert], nodes: Mapping[str, Path_], findings: Findings) -> None:
    """Notes what is wrong; alerts come by their place in the list, nodes with where they stand."""
    first: dict[str, Path_] = {}
    for index, alert in alerts.items():
        path: Path_ = ("spec", "alerts", index)
        if alert.title in first:
            place = findings.places.of(*first[alert.title])
            params = {"name": alert.title, "first": place}
            findings.at_value("ALERT_DUPLICATE", path, **params)
        first.setdefault(alert.title, path)
        if alert.off and alert.title not in DEFAULTS:
            reason = f"there is no alert '{alert.title}' that every pipeline has"
            _note((*path, "name"), reason, did_you_mean(alert.title, DEFAULTS), findings)
        _check_node(alert, nodes, (*path, "when"), findings)


def _check_node(alert: Alert, nodes: Mapping[str, Path_], path: Path_, findings: Findings) -> None:
    condition = alert.when
    if condition is None or condition.node is None:
        return
    kind = MEASURES[condition.measure].of
    known = [name for name, place in nodes.items() if place[1] == f"{kind}s"]
    if condition.node not in known:
        _note(path, f"there is no {kind} '{condition.node}'", did_you_mean(condition.node, known), findings)


def _note(path: Path_, reason: str, advice: str, findings: Findings) -> None:
    findings.at_value("SPEC_BAD_VALUE", path, where=place_in_words(path), reason=reason, advice=advice)
