"""What the documentation says is true: generated pages are up to date, and every block and link in them works."""

from __future__ import annotations

import csv
import json
import re
import shlex
import tomllib
from collections.abc import Callable, Mapping
from itertools import groupby
from pathlib import Path
from typing import Any

import pytest
import sqlglot
import typer
from ruamel.yaml import YAML
from tests.docs.pages import BLOCKS, EXAMPLES, PAGES, ROOT, Block, blocks_of, project_of, without_blocks
from typer.core import TyperGroup

from penstock.capacity.scenario import Scenario
from penstock.cli.main import app
from penstock.components.registry import components
from penstock.components.shared.crashpoints import POINTS
from penstock.control.config import ServerConfig, read_server_config
from penstock.docs import files as docs
from penstock.docs.picture import run_picture
from penstock.errors import Severity
from penstock.frontends.assemble import SPEC_KEYS, assemble
from penstock.frontends.configs import aliases
from penstock.frontends.examine import load_checked
from penstock.frontends.load import load
from penstock.frontends.scenario import read_scenario
from penstock.graph.build import build
from penstock.graph.validate import World, check
from penstock.spec.location import PipelineFile, Places

COMMANDS = {"cat", "cd", "echo", "export", "mkdir", "mv", "rm", "sqlite3"}
"""Programs that shell blocks may call besides `penstock` and `make`."""


# --- generated files -------------------------------------------------------------------------------------------


def test_generated_files_are_up_to_date() -> None:
    assert docs.stale_files(ROOT) == []


def test_a_missing_a_changed_and_a_left_over_file_are_all_named(tmp_path: Path) -> None:
    docs.write_files(tmp_path)
    (tmp_path / docs.GENERATED / "errors.md").write_text("old", "utf-8")
    (tmp_path / docs.GENERATED / "windows.md").write_text("left over", "utf-8")
    (tmp_path / docs.PICTURE).unlink()

    assert docs.stale_files(tmp_path) == [
        docs.GENERATED / "errors.md",
        docs.PICTURE,
        docs.GENERATED / "windows.md",
    ]
    docs.write_files(tmp_path)
    assert docs.stale_files(tmp_path) == []


def test_the_picture_is_the_same_on_every_terminal_and_fetches_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "37")
    narrow = run_picture()
    monkeypatch.delenv("COLUMNS")

    assert run_picture() == narrow
    assert re.findall(r"https?://[^\"]+", narrow) == ["http://www.w3.org/2000/svg"]


# --- blocks ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("block", BLOCKS, ids=str)
def test_a_block_is_what_it_claims_to_be(block: Block, tmp_path: Path) -> None:
    assert block.language in HANDLERS, f"no test knows what to do with a block of '{block.language}'"
    with project_of(block.page, tmp_path) as folder:
        HANDLERS[block.language](block, folder)


def check_yaml(block: Block, folder: Path) -> None:
    """A whole pipeline, some keys of `spec`, keys of the server's configuration, a capacity scenario, or one source,
    step or sink."""
    content = YAML(typ="safe").load(block.text)
    path = folder / (block.file_name or "block.yaml")
    if "apiVersion" in content:
        path.write_text(block.text, "utf-8")
        load_checked(path, World.STEPS)
    elif set(content) <= set(SPEC_KEYS):
        check_spec(content, path)
    elif set(content) <= set(aliases(ServerConfig)):
        path.write_text(block.text, "utf-8")
        read_server_config(path)
    elif set(content) <= set(aliases(Scenario)):
        path.write_text(block.text, "utf-8")
        read_scenario(path)
    else:
        check_entry(content, "sink" if "from" in content and set(content) & set(components("sink")) else "", path)


def check_entry(entry: Mapping[str, Any], kind: str, path: Path) -> None:
    """One source, step or sink, with as much around it as it needs."""
    kind = kind or ("step" if "from" in entry else "source")
    if kind == "source":
        check_spec({"sources": {"entry": entry}, "sinks": {"out": {"from": "entry", "memory": {}}}}, path)
        return
    inputs = entry["from"] if isinstance(entry["from"], list) else [entry["from"]]
    # Joins name their second input themselves.
    inputs = [*inputs, *(part["with"] for part in entry.values() if isinstance(part, dict) and "with" in part)]
    source = {"memory": {"schema": {"ts": "timestamp"}}, "eventTime": {"column": "ts"}}
    around: dict[str, Any] = {
        "sources": dict.fromkeys(inputs, source),
        "sinks": {"out": {"from": inputs[0], "memory": {}}},
    }
    check_spec({**around, f"{kind}s": {**around.get(f"{kind}s", {}), "entry": entry}}, path)


def check_spec(body: Mapping[str, Any], path: Path) -> None:
    around = {
        "sources": {"views": {"memory": {"schema": {"ts": "timestamp"}}}},
        "sinks": {"out": {"from": "views", "memory": {}}},
    }
    document = {
        "apiVersion": "penstock/v1",
        "kind": "Pipeline",
        "metadata": {"name": "block"},
        "spec": {**around, **body},
    }
    places = Places(str(path))
    graph = build(PipelineFile(assemble(document, places), places, path))
    assert [problem for problem in check(graph, World.STEPS) if problem.severity is Severity.ERROR] == []


def check_python(block: Block, folder: Path) -> None:
    """Every block is a whole file. Pipelines are loaded here; components and tests are run by test_examples.py."""
    assert block.file_name is not None, "start the block with a comment that names the file"
    compile(block.text, block.file_name, "exec")
    if re.search(r"^\w+ = ps\.Pipeline\(", block.text, re.MULTILINE):
        load_checked(folder / block.file_name, World.STEPS)


def check_sql(block: Block, folder: Path) -> None:
    if "/* penstock" in block.text:
        assert block.file_name is not None
        load_checked(folder / block.file_name, World.STEPS)
    else:
        assert sqlglot.parse(block.text, dialect="spark")


def check_shell(block: Block, folder: Path) -> None:
    calls = commands(block.text)
    assert calls
    for call in calls:
        if call[0] == "penstock":
            parse_penstock(call[1:])
        elif call[0] == "make":
            assert re.search(rf"^{call[1]}:", (ROOT / "Makefile").read_text("utf-8"), re.MULTILINE), call
        else:
            assert call[0] in COMMANDS, call


def commands(script: str) -> list[list[str]]:
    """The commands of a script as words, without the variables set before them."""
    found = []
    for line in script.replace("\\\n", " ").splitlines():
        words = shlex.shlex(line, posix=True, punctuation_chars=True)
        words.whitespace_split = True
        for separates, group in groupby(words, key=lambda word: word in ("&&", "||", ";", "|", "&")):
            call = list(group)
            while call and re.match(r"[A-Z_]+=", call[0]):
                call.pop(0)
            if call and not separates:
                found.append(call)
    return found


def parse_penstock(arguments: list[str]) -> None:
    """Lets the command line itself say whether verb and options exist; nothing is run."""
    group = typer.main.get_command(app)
    assert isinstance(group, TyperGroup)
    verb, *rest = arguments
    assert verb in group.commands, verb
    group.commands[verb].make_context(verb, rest)


def check_json(block: Block, folder: Path) -> None:
    for line in block.text.splitlines():
        json.loads(line)


def check_csv(block: Block, folder: Path) -> None:
    head, *rows = csv.reader(block.text.splitlines())
    assert rows
    assert {len(row) for row in rows} == {len(head)}


def check_toml(block: Block, folder: Path) -> None:
    tomllib.loads(block.text)


def check_output(block: Block, folder: Path) -> None:
    """What a command prints, or a template to copy: nothing to run."""
    assert block.text.strip()


HANDLERS: dict[str, Callable[[Block, Path], None]] = {
    "yaml": check_yaml,
    "python": check_python,
    "sql": check_sql,
    "sh": check_shell,
    "json": check_json,
    "csv": check_csv,
    "toml": check_toml,
    "text": check_output,
    "markdown": check_output,
}


@pytest.mark.parametrize("wrong", ["penstock fly", "penstock run p.yaml --twice", "penstock validate -o xml p.yaml"])
def test_a_command_that_does_not_exist_would_be_noticed(wrong: str) -> None:
    with pytest.raises(Exception, match=r"fly|twice|xml"):
        parse_penstock(commands(wrong)[0][1:])


@pytest.mark.parametrize("wrong", [{"from": "views", "filtre": "x > 1"}, {"from": "views", "dedupe": {"by": 3}}])
def test_an_entry_that_is_wrong_would_be_noticed(wrong: dict[str, Any], tmp_path: Path) -> None:
    with pytest.raises(Exception, match=r"COMPONENT_UNKNOWN|SPEC_WRONG_TYPE"):
        check_entry(wrong, "step", tmp_path / "p.yaml")


def test_a_pipeline_shown_in_several_languages_is_the_same_in_all(tmp_path: Path) -> None:
    page = ROOT / "docs" / "guides" / "first-pipeline.md"
    with project_of(page, tmp_path) as folder:
        pipelines = [load(folder / f"views.{suffix}").pipeline for suffix in ("yaml", "sql", "py")]

    assert pipelines[0] == pipelines[1] == pipelines[2]


def test_every_crash_point_is_explained() -> None:
    guide = (ROOT / "docs" / "guides" / "testing-a-pipeline.md").read_text("utf-8")

    assert [point for point in POINTS if f"| `{point}` |" not in guide] == []


# --- links -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_links_lead_somewhere(page: Path) -> None:
    broken = []
    for target, anchor in re.findall(r"\]\(([^)#\s]*)(?:#([^)\s]*))?\)", without_blocks(page)):
        if target.startswith(("http:", "https:")):
            continue
        file = (page.parent / target).resolve() if target else page
        if not file.exists() or (anchor and anchor not in anchors(file)):
            broken.append(f"{target}#{anchor}")

    assert broken == []


def anchors(page: Path) -> set[str]:
    """The names by which headings can be linked, as Markdown viewers make them."""
    headings = re.findall(r"^#+ (.*)$", without_blocks(page), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


def test_every_guide_and_reference_page_is_in_the_index() -> None:
    index = (ROOT / "docs" / "README.md").read_text("utf-8")
    pages = [page.relative_to(ROOT / "docs").as_posix() for page in PAGES[1:] if page.parent.name != "decisions"]

    assert [page for page in pages if page != "README.md" and f"({page})" not in index] == []


# --- examples --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.name)
def test_an_example_is_sound_and_has_tests(path: Path) -> None:
    graph = load_checked(path)

    assert graph.file.pipeline.tests
    assert [problem.code for problem in check(graph)] == []


def test_orders_is_the_same_pipeline_in_all_front_ends() -> None:
    pipelines = [load(ROOT / "examples" / f"orders.{suffix}").pipeline for suffix in ("yaml", "sql", "py")]

    assert pipelines[0] == pipelines[1] == pipelines[2]


def test_blocks_are_found_with_their_language_and_place(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text("# Title\n\n```sh\nmake demo\n```\n\n```\nplain\n```\n", "utf-8")

    assert [(block.line, block.language, block.text) for block in blocks_of(page)] == [
        (3, "sh", "make demo\n"),
        (7, "", "plain\n"),
    ]
