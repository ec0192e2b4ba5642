"""Every mistake a person can make gets its own code, its place, advice and a fixed exit code, and leaves no trace."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path

import pytest
from tests.e2e.commands import HEAD, Command, write_marked
from tests.faults.victim import contents

from penstock.errors import CODES

VIEWS = "views: {files: {path: ./in}, format: {json: {schema: {id: bigint, user: string}}}}"
SOUND = f"""{HEAD}spec:
  sources:
    {VIEWS}
  sinks:
    store: {{from: views, files: {{path: ./out}}}}
"""


def with_step(step: str) -> str:
    return f"""{HEAD}spec:
  sources:
    {VIEWS}
  steps:
    clean:
      from: views
{step}
  sinks:
    store: {{from: clean, files: {{path: ./out}}}}
"""


@dataclass(frozen=True)
class Mistake:
    """A file with one mistake. Where `text` has a mark, the problem must point at it."""

    code: str
    text: str | None
    advice: str
    name: str = "p.yaml"


PLAIN = {
    "the file is missing": Mistake("FILE_NOT_FOUND", None, "penstock init"),
    "the file is empty": Mistake("FILE_EMPTY", "", "apiVersion: penstock/v1"),
    "the file is no pipeline": Mistake("FILE_KIND_UNKNOWN", "hello", ".yaml", name="p.txt"),
    "it is not YAML": Mistake("YAML_SYNTAX", "spec: {a: «[1, 2\nmetadata: }", "Close it"),
    "a value has the wrong type": Mistake(
        "SPEC_WRONG_TYPE",
        SOUND.replace("path: ./in", "path: ./in, maxFilesPerBatch: «many"),
        "",
    ),
    "a component is unknown": Mistake(
        "COMPONENT_UNKNOWN", SOUND.replace("files: {path: ./out}", "«filez: {}"), "Did you mean 'files'?"
    ),
    "a key is unknown": Mistake(
        "SPEC_UNKNOWN_KEY", SOUND.replace("path: ./in", "path: ./in, «patern: x"), "Did you mean 'pattern'?"
    ),
    "two steps have one name": Mistake(
        "SPEC_DUPLICATE_NAME",
        with_step("      filter: id > 1\n    «clean: {from: views, filter: id > 2}"),
        "First defined at p.yaml:8:5",
    ),
    "a step has the name of a source": Mistake(
        "SPEC_DUPLICATE_NAME",
        with_step("      filter: id > 1\n    «views: {from: views, filter: id > 2}"),
        "First defined at p.yaml:6:5",
    ),
    "a secret is not set": Mistake(
        "SECRET_NOT_SET",
        SOUND.replace("files: {path: ./out}", 'postgres: {url: «"${secret:env/NOT_SET_ANYWHERE}", table: t}'),
        "Set the environment variable NOT_SET_ANYWHERE",
    ),
    "a secret could be read again": Mistake(
        "SECRET_NOT_HERE", SOUND.replace("./out", '«"./${secret:env/HOME}"'), "Remove the reference"
    ),
    "a path does not exist": Mistake(
        "PATH_NOT_FOUND", SOUND.replace("files: {path: ./in}", "files: «{path: ./nowhere}"), "Create it"
    ),
    "a Python file fails": Mistake("PYTHON_FILE_FAILED", "import no_such_module\n", "run it alone", name="p.py"),
}
FOUND_BY_SPARK = {
    "a column of SQL is unknown": Mistake(
        "SQL_UNKNOWN_COLUMN",
        with_step("      sql: |\n        SELECT id,\n               upper(«usr) AS name\n        FROM views"),
        "Did you mean 'user'?",
    ),
    "a column of SQL on the first line is unknown": Mistake(
        "SQL_UNKNOWN_COLUMN", with_step("      sql: SELECT id, «usr FROM views"), "Did you mean 'user'?"
    ),
    "SQL has a syntax error": Mistake(
        "SQL_SYNTAX",
        with_step("      sql: |\n\n        SELECT id,\n          user\n        FROM views WHERE id > «)"),
        "Spark SQL",
    ),
    "a table of SQL is unknown": Mistake(
        "SQL_UNKNOWN_TABLE", with_step("      sql: |\n        SELECT *\n        FROM «view"), "Did you mean 'views'?"
    ),
    "a Python step cannot be loaded": Mistake(
        "PYTHON_STEP_NOT_FOUND", with_step('      python: «{function: "broken:clean"}'), "module:function"
    ),
}


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The current folder: input for the pipelines, and a Python module that cannot be read."""
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "0.json").write_text('{"id": 1, "user": "ann"}\n', "utf-8")
    (tmp_path / "broken.py").write_text("def clean(views:\n", "utf-8")
    monkeypatch.chdir(tmp_path)
    return tmp_path


def put(folder: Path, mistake: Mistake) -> str:
    """Writes the file; gives the place that must be named, as it is printed."""
    if mistake.text is None:
        return ""
    places = write_marked(folder / mistake.name, mistake.text)
    return f"{mistake.name}:{places[0][0]}:{places[0][1]}: " if places else ""


VERBS = ("validate", "run", "explain", "test")


def applies(name: str, verb: str) -> bool:
    """Tests replace sources and sinks, so they need neither paths nor secrets."""
    return verb != "test" or PLAIN[name].code not in ("SECRET_NOT_SET", "PATH_NOT_FOUND")


@pytest.mark.parametrize(("name", "verb"), [(name, verb) for name in PLAIN for verb in VERBS if applies(name, verb)])
def test_a_mistake_is_named_with_its_place_before_spark_is_started(
    penstock: Command, folder: Path, name: str, verb: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    mistake = PLAIN[name]
    place = put(folder, mistake)
    monkeypatch.setattr("penstock.engine.session.Session.__init__", _no_spark)
    before = contents(folder)

    answer = penstock(verb, mistake.name, *(["--no-spark"] if verb == "validate" else []))

    assert answer.code == CODES[mistake.code].exit_code == 2
    assert f"{place}error[{mistake.code}] " in answer.err
    assert mistake.advice in answer.err
    assert contents(folder) == before


def _no_spark(*_: object) -> None:
    raise AssertionError("Spark was started for a mistake that shows without it")


@pytest.mark.spark
@pytest.mark.parametrize("mistake", FOUND_BY_SPARK.values(), ids=FOUND_BY_SPARK)
def test_a_mistake_that_spark_finds_is_named_with_its_exact_place(
    penstock: Command, folder: Path, mistake: Mistake
) -> None:
    place = put(folder, mistake)
    before = contents(folder)

    answer = penstock("validate", mistake.name)

    assert answer.code == CODES[mistake.code].exit_code == 2
    assert answer.err.startswith(f"{place}error[{mistake.code}] ")
    assert mistake.advice in answer.err
    assert f"{mistake.name}: 1 error" in answer.out
    assert contents(folder) == before


FIVE_MISTAKES = f"""{HEAD}spec:
  sources:
    {VIEWS}
    clicks:
      files: {{path: ./in}}
      format: {{json: {{schema: {{id: bigint, ts: timestamp}}}}}}
      eventTime: {{column: ts, maxDelay: «soon}}
    other:
      files: {{path: ./in, «patern: x}}
      format: {{json: {{schema: {{id: bigint}}}}}}
  steps:
    a: {{from: views, «filtr: id > 1}}
    b: {{from: «vews, filter: id > 1}}
    healthy:
      from: views
      sql: |
        SELECT id,
               «usr
        FROM views
  sinks:
    store: {{from: healthy, files: {{path: ./out}}}}
"""


@pytest.mark.spark
def test_five_different_mistakes_are_named_in_one_go(penstock: Command, folder: Path) -> None:
    places = write_marked(folder / "p.yaml", FIVE_MISTAKES)
    codes = ["SPEC_BAD_VALUE", "SPEC_UNKNOWN_KEY", "COMPONENT_UNKNOWN", "INPUT_UNKNOWN", "SQL_UNKNOWN_COLUMN"]

    answer = penstock("validate", "p.yaml", "-o", "json")

    report = json.loads(answer.out)
    problems = report["files"][0]["problems"]
    found = [(item["code"], item["location"]["line"], item["location"]["column"]) for item in problems]
    assert found == [(code, *place) for code, place in zip(codes, places, strict=True)]
    assert all(item["hint"] or "write for example" in item["message"] for item in problems)
    assert (answer.code, report["valid"]) == (2, False)


@pytest.mark.spark
def test_a_missing_path_is_named_once_though_spark_stumbles_over_it_too(penstock: Command, folder: Path) -> None:
    (folder / "p.yaml").write_text(SOUND.replace("./in", "./nowhere"), "utf-8")

    answer = penstock("validate", "p.yaml", "-o", "json")

    (report,) = json.loads(answer.out)["files"]
    assert [item["code"] for item in report["problems"]] == ["PATH_NOT_FOUND"]


def test_state_of_another_pipeline_is_refused_and_left_alone(penstock: Command, folder: Path) -> None:
    (folder / "p.yaml").write_text(SOUND, "utf-8")
    (folder / "state").mkdir()
    identity = {"name": "other", "lineage": "1", "epoch": 1, "query_id": None}
    (folder / "state" / "pipeline.json").write_text(json.dumps(identity), "utf-8")
    before = contents(folder)

    answer = penstock("run", "p.yaml", "--once", "--state-dir", "state")

    assert answer.code == CODES["STATE_OF_ANOTHER_PIPELINE"].exit_code == 2
    assert "error[STATE_OF_ANOTHER_PIPELINE] " in answer.err
    assert "'other', not of 'demo'" in answer.err
    assert "--state-dir" in answer.err
    assert contents(folder) == before


@pytest.mark.parametrize(
    ("options", "code", "words"),
    [
        (["--conf", "spark.sql.shuffle.partitions"], "USAGE", "--conf spark.some.option=value"),
        (["--conf", "hive.x=1"], "USAGE", "hive.x=1 is not a Spark option"),
        (
            ["--conf", "spark.sql.streaming.stateStore.providerClass=x"],
            "CONF_NOT_ALLOWED",
            "'spark.sql.streaming.stateStore.providerClass' cannot be set",
        ),
    ],
)
def test_a_spark_option_that_will_not_do_is_refused(
    penstock: Command, folder: Path, options: list[str], code: str, words: str
) -> None:
    (folder / "p.yaml").write_text(SOUND, "utf-8")
    before = contents(folder)

    answer = penstock("run", "p.yaml", "--once", *options)

    assert answer.code == CODES[code].exit_code == 2
    assert f"error[{code}] " in answer.err
    assert words in answer.err
    assert contents(folder) == before


@pytest.mark.parametrize(
    "arguments", [["run"], ["run", "p.yaml", "--onse"], ["runn"], ["validate", "p.yaml", "-o", "x"]]
)
def test_wrong_usage_ends_with_2_and_a_word_on_what_is_wrong(
    penstock: Command, folder: Path, arguments: list[str]
) -> None:
    answer = penstock(*arguments)

    assert answer.code == 2
    assert "Error" in answer.err


def test_debug_adds_the_trace_wherever_it_stands_on_the_line(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    from penstock.cli.main import main

    for arguments in (["--debug", "run", "missing.yaml"], ["run", "missing.yaml", "--debug"]):
        monkeypatch.setattr("sys.argv", ["penstock", *arguments])
        with pytest.raises(SystemExit) as ended:
            main()
        printed = capsys.readouterr().err
        assert ended.value.code == 2
        assert "Traceback" in printed
        assert "error[FILE_NOT_FOUND] " in printed
