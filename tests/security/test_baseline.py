"""What an author may do is still possible: defences that refuse everything prove nothing."""

from __future__ import annotations

import pytest
from tests.security.attacker import Caller, codes

PIPELINE = """\
apiVersion: penstock/v1
kind: Pipeline
metadata: {name: baseline, labels: {team: a}}
spec:
  sources:
    views: {generator: {dataset: page_views, rows: 100}}
  steps:
    users: {from: views, sql: "SELECT upper(country) AS country, count(*) AS n FROM views GROUP BY upper(country)"}
  sinks:
    out: {from: users, sqlite: {path: ./baseline.db, table: t, key: [country]}}
"""


@pytest.mark.spark
def test_an_author_validates_and_previews_an_honest_pipeline(author_a: Caller) -> None:
    checked = author_a.validate(PIPELINE)
    assert checked.status_code == 200, checked.text
    assert codes(checked) == []
    shown = author_a.preview(PIPELINE, "users")
    assert shown.status_code == 200, shown.text
    assert shown.json()["rows"]
    assert all(row["country"] == row["country"].upper() for row in shown.json()["rows"])
