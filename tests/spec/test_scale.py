"""`scale` of a pipeline: what it may say, and that it is read back as it was written."""

from __future__ import annotations

import pytest
from tests.frontends.reading import read

from penstock import Scale
from penstock.errors import PenstockError
from penstock.spec.diff import cost, differences
from penstock.spec.dump import as_document
from penstock.spec.fields import Change
from penstock.spec.scale import DailyTime, ScaleSettings
from penstock.spec.units import Duration

HEAD = """\
apiVersion: penstock/v1
kind: Pipeline
metadata: {name: clicks}
spec:
  sources: {a: {generator: {dataset: page_views, rate: 1}}}
  sinks: {b: {from: a, console: {}}}
"""


def scale_of(text: str) -> ScaleSettings | None:
    return read(f"{HEAD}  scale: {text}\n").pipeline.scale


def test_a_pipeline_says_between_how_many_cores_it_may_be_scaled() -> None:
    found = scale_of("{min: 2, max: 8, downAfter: 30 minutes, excluded: ['22:00-06:00', '12:00 - 12:30']}")

    assert found is not None
    assert (found.min, found.max, found.utilisation) == (2, 8, 0.7)
    assert found.down_after == Duration(1_800_000)
    assert found.excluded == (DailyTime(1320, 360), DailyTime(720, 750))


def test_without_it_nothing_is_advised() -> None:
    assert read(HEAD).pipeline.scale is None


def test_it_is_written_as_it_was_read() -> None:
    pipeline = read(f"{HEAD}  scale: {{min: 2, max: 8, excluded: ['22:00-06:00']}}\n").pipeline

    assert as_document(pipeline)["spec"]["scale"] == {"min": 2, "max": 8, "excluded": ["22:00-06:00"]}


def test_it_is_said_the_same_way_in_python() -> None:
    assert Scale(min=2, max=8, down_after="30 minutes", excluded=["22:00-06:00"]) == scale_of(
        "{min: 2, max: 8, downAfter: 30 minutes, excluded: ['22:00-06:00']}"
    )


def test_a_change_of_it_costs_nothing() -> None:
    before, after = (read(f"{HEAD}  scale: {{min: 1, max: {most}}}\n").pipeline for most in (4, 8))

    assert cost(differences(before, after)) is Change.NOTHING
    assert cost(differences(read(HEAD).pipeline, after)) is Change.NOTHING


@pytest.mark.parametrize(
    "text",
    [
        "{min: 2}", "{max: 2}", "{min: 0, max: 2}", "{min: 4, max: 2}", "{min: 1, max: 2, utilisation: 1.2}",
        "{min: 1, max: 2, catchUp: 0 seconds}", "{min: 1, max: 2, excluded: ['8-10']}", "[1, 2]", "4",
        "{min: 1, max: 2, excluded: ['08:00-08:00']}", "{min: 1, max: 2, maxPerDay: 0}", "{min: 1, max: 2, act: true}",
    ],
)  # fmt: skip
def test_what_cannot_be_meant_is_refused_at_its_place(text: str) -> None:
    with pytest.raises(PenstockError) as caught:
        scale_of(text)

    assert all(problem.location is not None and problem.location.line == 7 for problem in caught.value.problems)
