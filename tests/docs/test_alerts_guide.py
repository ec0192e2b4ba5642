"""What the guide on alerts says of those that every pipeline has."""

from __future__ import annotations

import re

from tests.docs.pages import ROOT

from penstock.spec.alerts import DEFAULTS


def test_the_guide_lists_the_alerts_that_every_pipeline_has() -> None:
    guide = (ROOT / "docs" / "guides" / "alerts-and-dashboards.md").read_text("utf-8")
    rows = re.findall(r"^\| `(\w+)` \| ([^|]+) \| ([^|]+) \| (\w+) \|$", guide, re.MULTILINE)
    listed = {name: (after, severity) for name, _, after, severity in rows}
    assert listed == {
        name: (str(alert.for_) if alert.for_.millis else "at once", alert.severity) for name, alert in DEFAULTS.items()
    }
    for name, words, _, _ in rows:
        condition = DEFAULTS[name].when
        assert condition is not None
        if condition.measure != "health":
            limit = str(condition).split(maxsplit=2)[2]
            assert re.search(rf"\b{re.escape(limit)}(?!\w)", words) or limit == "0", (limit, words)
