"""Rules are found by scanning, and no two have one id."""

from __future__ import annotations

import pytest

from penstock.doctor.registry import rules
from penstock.doctor.rules import alerts


def test_rules_are_sorted_by_their_own_ids() -> None:
    found = rules()

    assert list(found) == sorted(found)
    assert [name for name, rule in found.items() if rule.id != name] == []


def test_two_rules_of_one_id_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(alerts, "again", rules()["tests-missing"], raising=False)

    with pytest.raises(TypeError, match="'tests-missing'"):
        rules.__wrapped__()
