from __future__ import annotations

import datetime
import inspect
from pathlib import Path

import pytest
from pydantic import ValidationError
from tests.frontends.reading import problems_of

import penstock as ps
from penstock.components.sources.files import Files
from penstock.errors import PenstockError, Problem
from penstock.frontends.python_file import load_python
from penstock.frontends.stubs import STUB, stub_text
from penstock.spec.pipeline import EventTime, LatePolicy
from penstock.spec.units import Duration

HERE = __file__


def line() -> int:
    frame = inspect.currentframe()
    assert frame is not None
    assert frame.f_back is not None
    return frame.f_back.f_lineno


def views(pipeline: ps.Pipeline) -> ps.Node:
    return pipeline.source("views", ps.sources.Memory(schema={"id": "string", "ms": "bigint"}))


def failed(raised: pytest.ExceptionInfo[PenstockError]) -> tuple[str, str, int]:
    (problem,) = raised.value.problems
    assert problem.location is not None
    return problem.code, problem.location.file, problem.location.line


def test_components_are_found_by_class_name_and_give_the_class() -> None:
    files = ps.sources.Files(path="in", max_files_per_batch=5)
    assert type(files) is Files
    assert files == Files.model_validate({"path": "in", "maxFilesPerBatch": 5})
    assert isinstance(files, ps.sources.Files)  # type: ignore[arg-type]
    assert "Files" in dir(ps.sources)


def test_an_unknown_component_suggests_the_nearest() -> None:
    with pytest.raises(AttributeError, match="Did you mean 'Files'"):
        _ = ps.sources.Fles  # type: ignore[attr-defined]


def test_a_wrong_argument_is_raised_with_the_place_of_the_call() -> None:
    with pytest.raises(PenstockError) as raised:
        ps.sources.Files(path=5)  # type: ignore[arg-type]
    assert failed(raised) == ("SPEC_WRONG_TYPE", HERE, line() - 1)
    with pytest.raises(PenstockError) as raised:
        ps.sources.Files(path="x", max_files=5)  # type: ignore[call-arg]
    assert failed(raised) == ("SPEC_UNKNOWN_KEY", HERE, line() - 1)
    assert raised.value.problems[0].hint == "Did you mean 'max_files_per_batch'?"
    with pytest.raises(PenstockError) as raised:
        ps.EventTime(column="ts", max_delay="soon")
    assert failed(raised) == ("SPEC_BAD_VALUE", HERE, line() - 1)


def test_the_built_pipeline_holds_what_was_said() -> None:
    p = ps.Pipeline("demo", labels={"a": "b"}, trigger="3 seconds", partitions=2, dead_letters=ps.sinks.Console())
    source = views(p)
    clean = source.sql("clean", "SELECT * FROM views")
    kept = source.step("kept", ps.steps.Filter(where="ms > 1"))
    p.step("both", ps.steps.Union(), inputs=[clean, kept]).to("out", ps.sinks.Console()).to("more", ps.sinks.Memory())
    p.sql("joined", "SELECT * FROM clean JOIN kept USING (id)", inputs=[clean, "kept"]).to("third", ps.sinks.Memory())
    at = datetime.datetime(2024, 1, 1, tzinfo=datetime.UTC)
    p.test("t", given={source: [{"id": "a", "at": at}]}, expect={"out": [{"id": "a"}]})
    built = p.build()
    assert (built.name, built.labels, built.state.partitions) == ("demo", {"a": "b"}, 2)
    assert built.run.trigger == Duration(3000)
    assert {step.name: step.inputs for step in built.steps} == {
        "clean": ("views",), "kept": ("views",), "both": ("clean", "kept"), "joined": ("clean", "kept"),
    }  # fmt: skip
    assert {sink.name: sink.input for sink in built.sinks} == {"out": "both", "more": "both", "third": "joined"}
    assert built.tests[0].given == {"views": ({"id": "a", "at": "2024-01-01T00:00:00Z"},)}


def test_late_and_the_watermark_are_said_in_python() -> None:
    kept = ps.Late("side", allowed="1 day", sink=ps.sinks.Files(path="late"))
    p = ps.Pipeline("demo", late=kept)
    source = p.source("views", ps.sources.Memory(schema="id string"), event_time=ps.EventTime("ts"))
    source.sql("a", "SELECT 1", late="correct").to("out", ps.sinks.Console())
    source.step("b", ps.steps.Filter(where="id > 1"), late=ps.Late("drop"))
    p.sql("c", "SELECT 1", inputs=[source], late=kept)
    p.step("d", ps.steps.Union(), inputs=[source])
    built = p.build()
    assert built.late == kept
    assert [step.late for step in built.steps] == [LatePolicy(policy="correct"), LatePolicy(), kept, None]
    assert kept.allowed == Duration(86_400_000)
    assert built.sources[0].event_time == EventTime(column="ts")
    timed = ps.EventTime("ts", "5 s", idle_after="1 minute", max_ahead="2 h")
    assert (timed.idle_after, timed.max_ahead) == (Duration(60_000), Duration(7_200_000))
    assert ps.EventTime("ts", max_ahead=None).max_ahead is None


def test_a_wrong_word_about_late_rows_is_raised_with_the_place_of_the_call() -> None:
    with pytest.raises(PenstockError) as raised:
        ps.Late("sid")  # type: ignore[arg-type]
    assert failed(raised) == ("SPEC_BAD_VALUE", HERE, line() - 1)
    with pytest.raises(PenstockError) as raised:
        ps.Late("correct", sink=ps.sinks.Console())
    assert failed(raised) == ("SPEC_BAD_VALUE", HERE, line() - 1)
    assert raised.value.problems[0].hint == "Write `policy: side`, or remove `sink`."
    with pytest.raises(PenstockError) as raised:
        ps.Late("side", sink=ps.sources.Files(path="x"))  # type: ignore[arg-type]
    assert failed(raised) == ("SPEC_WRONG_TYPE", HERE, line() - 1)
    with pytest.raises(PenstockError) as raised:
        ps.EventTime("ts", max_ahead="0 s")
    assert failed(raised) == ("SPEC_BAD_VALUE", HERE, line() - 1)
    p = ps.Pipeline("demo")
    views(p).sql("s", "SELECT 1", late="sid").to("out", ps.sinks.Console())  # type: ignore[arg-type]
    with pytest.raises(PenstockError) as raised:
        p.build()
    assert failed(raised) == ("SPEC_BAD_VALUE", HERE, line() - 3)


def test_a_built_pipeline_cannot_be_changed() -> None:
    p = ps.Pipeline("demo")
    views(p).to("out", ps.sinks.Console())
    with pytest.raises(ValidationError):
        p.build().name = "other"  # type: ignore[misc]


def test_places_are_those_of_the_calls() -> None:
    p = ps.Pipeline("demo")
    source = p.source("views", ps.sources.Memory(schema="id string"))
    source.to("out", ps.sinks.Console())
    file = p.file()
    assert file.path == Path(HERE)
    assert str(file.places.of_key("spec", "sources", "views")) == f"{HERE}:{line() - 4}:14"
    assert file.places.of("spec", "sinks", "out", "console", "rows").line == line() - 4


def test_everything_wrong_is_raised_at_once_with_the_lines_of_the_calls() -> None:
    p = ps.Pipeline("Bad name")
    start = line()
    p.source("views", ps.sources.Files(path="in"))
    p.source("mem", ps.sources.Memory(schema="id string"), format=ps.formats.Text())
    p.sql("Step", "", inputs=[])
    p.source("sink", ps.sinks.Console())  # type: ignore[arg-type]
    found = [(problem.code, _line(problem) - start) for problem in problems_of(p.build)]
    assert found == [
        ("SPEC_BAD_NAME", -1),
        ("PIPELINE_EMPTY", -1),
        ("FORMAT_MISSING", 1),
        ("FORMAT_NOT_USED", 2),
        ("SPEC_BAD_NAME", 3),
        ("SPEC_BAD_VALUE", 3),
        ("SPEC_BAD_VALUE", 3),
        ("COMPONENT_UNKNOWN", 4),
    ]


def _line(problem: Problem) -> int:
    assert problem.location is not None
    assert problem.location.file == HERE
    return problem.location.line


def test_a_component_of_another_kind_is_told_apart_even_if_its_name_is_known() -> None:
    p = ps.Pipeline("demo")
    p.source("views", ps.sinks.Memory()).to("out", ps.sinks.Console())  # type: ignore[arg-type]
    (problem,) = problems_of(p.build)
    assert problem.code == "SPEC_WRONG_TYPE"
    assert problem.message == "source 'views' must be a source, not the sink 'memory'"


def test_mistakes_of_one_call_are_raised_by_it() -> None:
    p, other = ps.Pipeline("demo"), ps.Pipeline("other")
    source = views(p)
    with pytest.raises(PenstockError) as raised:
        source.sql("views", "SELECT 1")
    assert failed(raised) == ("SPEC_DUPLICATE_NAME", HERE, line() - 1)
    with pytest.raises(PenstockError) as raised:
        other.sql("x", "SELECT 1", inputs=[source])
    assert failed(raised) == ("SPEC_BAD_VALUE", HERE, line() - 1)


def test_what_is_no_component_is_refused_by_the_call() -> None:
    source = views(ps.Pipeline("demo"))
    with pytest.raises(PenstockError) as raised:
        source.to("out", "console")  # type: ignore[arg-type]
    assert failed(raised) == ("SPEC_WRONG_TYPE", HERE, line() - 1)


GOOD = """\
import penstock as ps
from parts import NAME

p = ps.Pipeline(NAME)
again = p
p.source("views", ps.sources.Memory(schema="id string")).to("out", ps.sinks.Console())
if __name__ == "__main__":
    raise SystemExit(1)
"""


def written(folder: Path, text: str, name: str = "one") -> Path:
    folder.mkdir(exist_ok=True)
    (folder / "parts.py").write_text(f"NAME = {name!r}\n\ndef fail():\n    raise KeyError('deep')\n")
    file = folder / "flow.py"
    file.write_text(text)
    return file


def test_a_python_file_is_run_with_its_folder_importable(tmp_path: Path) -> None:
    file = written(tmp_path, GOOD)
    found = load_python(file)
    assert (found.pipeline.name, found.path, found.folder) == ("one", file, tmp_path)
    assert str(found.places.of_key("spec", "sinks", "out")) == f"{file}:6:1"


def test_files_of_two_folders_may_have_modules_of_the_same_name(tmp_path: Path) -> None:
    files = [written(tmp_path / name, GOOD, name) for name in ("one", "two")]
    assert [load_python(file).pipeline.name for file in files] == ["one", "two"]


@pytest.mark.parametrize(
    ("text", "place", "reason"),
    [
        ("x = 1\ny = z\n", (2, 5), "NameError: name 'z' is not defined"),
        ("x = 1\nif x\n", (2, 5), "SyntaxError: expected ':'"),
        ("import parts\n\nparts.fail()\n", (3, 1), "KeyError: 'deep'"),
        ("def f():\n    return 1 / 0\nf()\n", (2, 12), "ZeroDivisionError: division by zero"),
        ("raise SystemExit('no')\n", (1, 1), "SystemExit: no"),
        ("import nowhere_to_be_found\n", (1, 1), "ModuleNotFoundError: No module named 'nowhere_to_be_found'"),
    ],
)
def test_a_python_file_that_fails_shows_the_line_in_the_file(
    tmp_path: Path, text: str, place: tuple[int, int], reason: str
) -> None:
    (problem,) = problems_of(load_python, written(tmp_path, text))
    assert problem.location is not None
    assert (problem.code, problem.params["reason"]) == ("PYTHON_FILE_FAILED", reason)
    assert (problem.location.line, problem.location.column) == place


@pytest.mark.parametrize(
    ("text", "count"), [("x = 1\n", 0), ("import penstock as ps\na, b = ps.Pipeline('a'), ps.Pipeline('b')\n", 2)]
)
def test_a_python_file_defines_exactly_one_pipeline(tmp_path: Path, text: str, count: int) -> None:
    (problem,) = problems_of(load_python, written(tmp_path, text))
    assert (problem.code, problem.params["count"]) == ("PYTHON_FILE_NO_PIPELINE", count)


def test_a_wrong_argument_in_a_python_file_keeps_its_code_and_place(tmp_path: Path) -> None:
    file = written(tmp_path, "import penstock as ps\n\nx = ps.sources.Files(path='a',\n    recursive='maybe')\n")
    (problem,) = problems_of(load_python, file)
    assert (problem.code, str(problem.location)) == ("SPEC_WRONG_TYPE", f"{file}:3:5")


def test_the_stub_for_type_checkers_is_in_step_with_the_components() -> None:
    assert STUB.read_text("utf-8") == stub_text(), "run `python -m penstock.frontends.stubs`"
