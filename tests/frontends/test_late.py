"""What becomes of late rows, and the care of the watermark, as files say it."""

from __future__ import annotations

import pytest
from tests.frontends.reading import mistakes, only_problem, problems_of, read, with_body, with_source

from penstock.components.sinks.console import Console
from penstock.components.sinks.files import Files
from penstock.errors import Location
from penstock.frontends.assemble import InvalidPipeline
from penstock.spec.pipeline import EventTime, LatePolicy
from penstock.spec.units import Duration

SOURCES = "sources: {a: {memory: {schema: {id: string}}}}\n"
SINKS = "sinks: {out: {from: s, console: {}}}\n"


def with_late(late: str, sinks: str = SINKS, more: str = "") -> str:
    """A pipeline whose step has this `late`, which starts on line 7 in column 46; `more` is on line 8."""
    return with_body(f"{SOURCES}{sinks}steps: {{s: {{from: a, filter: id > 1, late: {late}}}}}\n{more}")


def late_of(text: str) -> LatePolicy | None:
    (step,) = read(text).pipeline.steps
    return step.late


@pytest.mark.parametrize(
    ("late", "expected"),
    [
        ("side", LatePolicy(policy="side")),
        ("drop", LatePolicy()),
        ("{}", LatePolicy()),
        ("", None),
        ("{policy: correct, allowed: 2 hours}", LatePolicy(policy="correct", allowed=Duration(7_200_000))),
        ("{policy: side, allowed: 0 s}", LatePolicy(policy="side", allowed=Duration(0))),
        ("{policy: side, sink: }", LatePolicy(policy="side")),
        (
            "{policy: side, sink: {files: {path: ./late}}}",
            LatePolicy(policy="side", sink=Files.model_validate({"path": "./late"})),
        ),
        ("{policy: side, sink: {console: }}", LatePolicy(policy="side", sink=Console())),
    ],
)
def test_late_is_read_in_long_and_short_form(late: str, expected: LatePolicy | None) -> None:
    assert late_of(with_late(late)) == expected
    pipeline = read(with_body(SOURCES + "sinks: {out: {from: a, console: {}}}\n" + f"late: {late}\n")).pipeline
    assert pipeline.late == (expected or LatePolicy())


def test_a_step_without_late_follows_the_pipeline() -> None:
    steps = "steps: {s: {from: a, filter: id > 1}, own: {from: s, filter: id > 2, late: drop}}\n"
    pipeline = read(with_body(SOURCES + SINKS + steps + "late: correct\n")).pipeline
    assert [pipeline.late_policy(step).policy for step in pipeline.steps] == ["correct", "drop"]


NAMED = "sinks: {out: {from: s, console: {}}, later: {files: {path: ./late}}}\n"


def test_a_sink_for_late_rows_may_be_given_by_name() -> None:
    text = with_late("{policy: side, sink: later}", NAMED, "late: {policy: side, sink: later}\n")
    file = read(text)
    late = LatePolicy(policy="side", sink=Files.model_validate({"path": "./late"}))
    assert file.pipeline.steps[0].late == file.pipeline.late == late
    assert [sink.name for sink in file.pipeline.sinks] == ["out"]
    for path in (("spec", "late"), ("spec", "steps", "s", "late")):
        assert file.places.of(*path, "sink", "files", "path") == Location("p.yaml", 6, 62)


@pytest.mark.parametrize(
    ("late", "expected"),
    [
        ("sid", ("SPEC_BAD_VALUE", 7, 46)),
        ("5", ("SPEC_BAD_VALUE", 7, 46)),
        ("{policy: sid}", ("SPEC_BAD_VALUE", 7, 55)),
        ("{polcy: side}", ("SPEC_UNKNOWN_KEY", 7, 47)),
        ("{policy: side, allowed: soon}", ("SPEC_BAD_VALUE", 7, 70)),
        ("{policy: side, allowed: -1 h}", ("SPEC_BAD_VALUE", 7, 70)),
        ("{policy: correct, allowed: 0 s}", ("SPEC_BAD_VALUE", 7, 73)),
        ("{policy: side, sink: 5}", ("SPEC_WRONG_TYPE", 7, 67)),
        ("{policy: side, sink: {fils: {path: x}}}", ("COMPONENT_UNKNOWN", 7, 68)),
        ("{policy: side, sink: {}}", ("COMPONENT_MISSING", 7, 61)),
        ("{policy: side, sink: {files: {pth: x}}}", ("SPEC_UNKNOWN_KEY", 7, 76)),
        ("{policy: side, sink: {from: a, console: {}}}", ("SPEC_UNKNOWN_KEY", 7, 68)),
        ("{policy: side, sink: out}", ("SPEC_BAD_VALUE", 7, 67)),
        ("{policy: side, sink: other}", ("LATE_SINK_UNKNOWN", 7, 67)),
        ("{policy: drop, sink: {console: }}", ("SPEC_BAD_VALUE", 7, 67)),
        ("{sink: {console: }}", ("SPEC_BAD_VALUE", 7, 53)),
        ("{policy: correct, sink: {console: }}", ("SPEC_BAD_VALUE", 7, 70)),
    ],
)
def test_a_mistake_is_found_at_its_place(late: str, expected: tuple[str, int, int]) -> None:
    found = mistakes(with_late(late))
    assert expected in found
    assert {code for code, *_ in found} <= {expected[0], "SPEC_MISSING_KEY"}


@pytest.mark.parametrize(
    ("late", "message", "hint"),
    [
        (
            "sid",
            "`late.policy` of step 's': the text 'sid' is not one of 'drop', 'side' or 'correct'",
            "Did you mean 'side'?",
        ),
        (
            "{policy: correct, allowed: 0 s}",
            "`late.allowed` of step 's': must be more than 0 with `correct`",
            "Write for example `allowed: 1 hour`, or `late: drop`.",
        ),
        (
            "{policy: correct, sink: {console: }}",
            "`late.sink` of step 's': with `correct` no late rows are kept",
            "Write `policy: side`, or remove `sink`.",
        ),
        (
            "{policy: side, sink: out}",
            "`late.sink` of step 's': sink 'out' stores the rows of 's'",
            "Late rows have other columns: name a sink without `from`.",
        ),
        (
            "{policy: side, sink: other}",
            "`late.sink` of step 's' names sink 'other', which does not exist",
            "Add it under `sinks`: `other: {files: {path: ./late}}`.",
        ),
    ],
)
def test_messages_are_in_plain_words(late: str, message: str, hint: str) -> None:
    problem = only_problem(with_late(late))
    assert (problem.message, problem.hint) == (message, hint)


def test_a_misspelt_name_of_a_sink_suggests_the_one_without_from() -> None:
    unknown, missing = sorted(problems_of(read, with_late("{policy: side, sink: latr}", NAMED)), key=lambda p: p.code)
    assert (unknown.code, unknown.hint) == ("LATE_SINK_UNKNOWN", "Did you mean 'later'?")
    assert (missing.code, missing.params["where"]) == ("SPEC_MISSING_KEY", "sink 'later'")


def test_a_sink_without_from_that_no_late_names_is_still_refused() -> None:
    assert mistakes(with_late("{policy: side, sink: {console: }}", NAMED)) == [("SPEC_MISSING_KEY", 6, 40)]


def test_a_named_sink_that_would_do_nothing_is_said_where_it_is_named() -> None:
    assert mistakes(with_late("{policy: drop, sink: later}", NAMED)) == [("SPEC_BAD_VALUE", 7, 67)]


def test_a_named_sink_that_is_broken_is_said_once_and_leaves_the_step_sound() -> None:
    sinks = NAMED.replace("path", "pth")
    with pytest.raises(InvalidPipeline) as raised:
        read(with_late("{policy: side, sink: later}", sinks, "late: {policy: side, sink: later}\n"))
    assert [problem.code for problem in raised.value.problems] == ["SPEC_MISSING_KEY", "SPEC_UNKNOWN_KEY"]
    assert raised.value.broken == {"later"}


def test_a_named_sink_that_is_no_mapping_is_said_once() -> None:
    sinks = "sinks: {out: {from: s, console: {}}, later: 5}\n"
    assert mistakes(with_late("{policy: side, sink: later}", sinks)) == [("SPEC_WRONG_TYPE", 6, 47)]


def test_a_pipeline_needs_a_sink_for_rows_in_time() -> None:
    sinks = "sinks: {later: {files: {path: ./late}}}\n"
    assert mistakes(with_late("{policy: side, sink: later}", sinks)) == [("PIPELINE_EMPTY", 6, 3)]


def test_a_late_sink_name_is_unique_like_any_other() -> None:
    sinks = "sinks: {out: {from: s, console: {}}, a: {files: {path: ./late}}}\n"
    assert mistakes(with_late("{policy: side, sink: a}", sinks)) == [("SPEC_DUPLICATE_NAME", 6, 40)]


# --- event time ---


def event_time(text: str) -> EventTime:
    (source,) = read(
        with_source(f"{{memory: {{schema: {{ts: timestamp}}}}, eventTime: {{column: ts{text}}}}}")
    ).pipeline.sources
    assert source.event_time is not None
    return source.event_time


@pytest.mark.parametrize(
    ("text", "idle_after", "max_ahead"),
    [
        ("", None, Duration(86_400_000)),
        (", idleAfter: 30 s, maxAhead: 1 hour", Duration(30_000), Duration(3_600_000)),
        (", idleAfter: null, maxAhead: null", None, None),
        (", maxAhead: ", None, None),
    ],
)
def test_the_watermark_is_cared_for(text: str, idle_after: Duration | None, max_ahead: Duration | None) -> None:
    read_ = event_time(text)
    assert (read_.idle_after, read_.max_ahead) == (idle_after, max_ahead)


@pytest.mark.parametrize(
    ("text", "message", "hint"),
    [
        (", idleAfter: 0 s", "`eventTime.idleAfter` of source 'views': must be more than 0", "Leave it out"),
        (", maxAhead: 0 s", "`eventTime.maxAhead` of source 'views': must be more than 0", "Write null"),
        (", maxAhead: off", "'off' is not a duration", ""),
        (", idleAfter: -1 s", "'-1 s' is not a duration", ""),
    ],
)
def test_what_the_watermark_cannot_use_is_refused(text: str, message: str, hint: str) -> None:
    (problem,) = problems_of(event_time, text)
    assert problem.code == "SPEC_BAD_VALUE"
    assert message in problem.message
    assert hint in problem.hint
    assert problem.location is not None
    assert (problem.location.line, problem.location.column) == (6, 72 + text.index(":"))
