"""The runner without Spark: what it does with an order that cannot be followed."""

from __future__ import annotations

from pathlib import Path

import pytest

from penstock.reports.folder import RunFolder
from penstock.reports.log import read_log
from penstock.reports.values import RunOrder
from penstock.runner.main import follow
from penstock.testing.processes import Process
from penstock.testing.runners import RunnerProcess

BROKEN = """\
apiVersion: penstock/v1
kind: Pipeline
metadata: {name: demo}
spec:
  sources:
    views: {files: {path: ./in}, format: {json: {schema: {id: bigint}}}}
  steps:
    clean: {from: veiws, sql: SELECT * FROM views}
  sinks:
    store: {from: clean, console: {}}
"""


def order(folder: Path, file: Path) -> RunOrder:
    return RunOrder("r000000000001", "demo", 1, str(file), str(folder), str(folder / "state"))


def test_a_mistake_in_the_pipeline_ends_the_run_with_its_place(tmp_path: Path) -> None:
    file = tmp_path / "1.yaml"
    file.write_text(BROKEN, "utf-8")
    folder = RunFolder(tmp_path / "run")

    assert follow(folder, order(tmp_path, file)) == 2

    end, status = folder.end, folder.status
    assert end is not None
    assert status is not None
    assert (end.outcome, end.exit_code) == ("failed", 2)
    (problem,) = end.problems
    assert (problem["code"], problem["owner"]) == ("INPUT_UNKNOWN", "author")
    assert problem["location"]["line"] == 8
    assert status.phase == "failed"
    logged = list(read_log(folder)[0])
    assert [line.level for line in logged] == ["INFO", "ERROR"]
    assert logged[1].code == "INPUT_UNKNOWN"
    assert logged[1].text.startswith(f"{file}:8:")
    assert not (tmp_path / "state").exists()


def test_a_python_file_that_fails_is_told_and_what_it_printed_is_in_the_log(tmp_path: Path) -> None:
    file = tmp_path / "versions" / "1.py"
    file.parent.mkdir()
    (tmp_path / "beside.py").write_text("NAME = 'a module where relative paths start'\n", "utf-8")
    file.write_text("import os, beside\nos.write(1, beside.NAME.encode())\nraise RuntimeError('no')\n", "utf-8")
    folder = RunFolder(tmp_path / "run")

    assert follow(folder, order(tmp_path, file)) == 2

    assert folder.end is not None
    assert folder.end.problems[0]["code"] == "PYTHON_FILE_FAILED"
    assert "a module where relative paths start" in [line.text for line in read_log(folder)[0]]


SPEAKING = """\
import os, sys
import penstock as ps

print("first", os.environ["DEMO_KEY"])
print("second", os.environ["DEMO_OTHER"], "x" * 480 + os.environ["DEMO_OTHER"], file=sys.stderr)
print(open(os.environ["DEMO_FILE"]).read())
os.write(1, b"third " + os.environ["DEMO_KEY"].encode() + b"\\n")
FAILS
other = "${secret:env/DEMO_" + "OTHER}"
p = ps.Pipeline("demo")
views = p.source("views", ps.sources.Generator(dataset="page_views", rows=1))
views.to("store", ps.sinks.Postgres(url=other, table="t"))
views.to("more", ps.sinks.Postgres(url="${secret:file/" + os.environ["DEMO_FILE"] + "}", table="t"))
views.to("most", ps.sinks.Postgres(url="${secret:env/DEMO_KEY}", table="t"))
"""


@pytest.mark.parametrize("fails", [False, True], ids=["read to its end", "failed before its references"])
def test_a_secret_that_a_file_prints_while_it_is_read_is_not_in_the_log(tmp_path: Path, fails: bool) -> None:
    key = tmp_path / "key.pem"
    key.write_text("first line of canary\nsecond line of canary\n", "utf-8")
    env = {"DEMO_KEY": "canary", "DEMO_OTHER": "canary-and-more", "DEMO_FILE": str(key)}
    file = tmp_path / "1.py"
    failing = "raise ValueError('no ' + os.environ['DEMO_OTHER'])"
    file.write_text(SPEAKING.replace("FAILS", failing if fails else ""), "utf-8")
    folder = RunFolder(tmp_path / "run")
    # A file where the state should be: it ends before Spark starts.
    (tmp_path / "state").touch()
    with RunnerProcess(folder, order(tmp_path, file), env) as process:
        assert process.wait(60) != 0

    assert folder.end is not None
    assert (folder.end.problems[0]["code"] == "PYTHON_FILE_FAILED") == fails
    found = [line.text for line in read_log(folder)[0]]
    assert "first ${secret:env/DEMO_KEY}" in found
    assert "third ${secret:env/DEMO_KEY}" in found
    assert any(text.startswith("second ${secret:env/DEMO_OTHER} xxx") for text in found)
    assert found.count(f"${{secret:file/{key}}}") == (0 if fails else 2)
    for item in folder.path.rglob("*"):
        if item.is_file():
            assert "cana" not in item.read_text("utf-8"), item.read_text("utf-8")


def test_an_unexpected_error_is_a_bug_with_its_trace_in_the_log(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*arguments: object) -> None:
        raise KeyError("surprise")

    monkeypatch.setattr("penstock.runner.main.load_ordered", fail)
    folder = RunFolder(tmp_path / "run")

    assert follow(folder, order(tmp_path, tmp_path / "1.yaml")) == 1

    assert folder.end is not None
    assert (folder.end.problems[0]["code"], folder.end.problems[0]["owner"]) == ("RUN_FAILED", "bug")
    assert any("Traceback" in (line.more or "") for line in read_log(folder)[0])


def test_without_an_order_there_is_nothing_to_do(tmp_path: Path) -> None:
    with Process([tmp_path], tmp_path / "out", module="penstock.runner.main") as process:
        assert process.wait(60) == 2
    assert process.text == f"{tmp_path / 'run.json'} is missing or cannot be read\n"
