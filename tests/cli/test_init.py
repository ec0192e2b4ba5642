"""`penstock init` writes a project that is right as it stands; that it runs is shown by the tests with Spark."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import jsonschema
import pytest
from ruamel.yaml import YAML

from penstock.cli.init import name_from_folder, scaffold
from penstock.errors import PenstockError
from penstock.frontends.json_schema import json_schema


def load_yaml(path: Path) -> Any:
    return YAML(typ="safe").load(path.read_text("utf-8"))


def test_writes_all_files_into_a_new_folder_and_names_them(tmp_path: Path) -> None:
    folder = tmp_path / "new" / "project"

    written = scaffold(folder, "page-views")

    found = {path for path in folder.rglob("*") if path.is_file()}
    assert set(written) == found
    assert {str(path.relative_to(folder)) for path in found} == {
        ".gitignore",
        "README.md",
        "data/views.json",
        "penstock.schema.json",
        "pipeline.yaml",
    }


def test_the_name_is_put_into_the_pipeline_and_nothing_is_left_to_fill_in(tmp_path: Path) -> None:
    written = scaffold(tmp_path, "page-views")

    assert load_yaml(tmp_path / "pipeline.yaml")["metadata"]["name"] == "page-views"
    assert (tmp_path / "README.md").read_text("utf-8").startswith("# page-views\n")
    assert [path for path in written if "{{" in path.read_text("utf-8")] == []


def test_editors_find_the_schema_beside_the_pipeline(tmp_path: Path) -> None:
    scaffold(tmp_path, "demo")

    first_line = (tmp_path / "pipeline.yaml").read_text("utf-8").splitlines()[0]
    assert first_line == "# yaml-language-server: $schema=./penstock.schema.json"
    assert json.loads((tmp_path / "penstock.schema.json").read_text("utf-8")) == json_schema()


def test_the_pipeline_fits_the_schema(tmp_path: Path) -> None:
    scaffold(tmp_path, "demo")

    validator = jsonschema.validators.validator_for(json_schema())(json_schema())
    document = load_yaml(tmp_path / "pipeline.yaml")
    assert [error.message for error in validator.iter_errors(document)] == []


def test_the_sample_data_holds_39_views_and_one_broken_line(tmp_path: Path) -> None:
    scaffold(tmp_path, "demo")

    views, broken = [], []
    for line in (tmp_path / "data" / "views.json").read_text("utf-8").splitlines():
        try:
            views.append(json.loads(line))
        except json.JSONDecodeError:
            broken.append(line)
    assert len(broken) == 1
    assert len(views) == 39
    assert {tuple(view) for view in views} == {("ts", "user", "page")}


def test_output_and_state_are_kept_out_of_git(tmp_path: Path) -> None:
    scaffold(tmp_path, "demo")

    assert (tmp_path / ".gitignore").read_text("utf-8").split() == [".penstock/", "out/"]


def test_a_folder_with_something_in_it_is_refused_and_left_alone(tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("mine", "utf-8")

    with pytest.raises(PenstockError) as raised:
        scaffold(tmp_path, "demo")

    assert raised.value.code == "TARGET_NOT_EMPTY"
    assert [path.name for path in tmp_path.iterdir()] == ["notes.txt"]


def test_a_fresh_git_repository_counts_as_empty(tmp_path: Path) -> None:
    (tmp_path / ".git").mkdir()

    scaffold(tmp_path, "demo")

    assert (tmp_path / "pipeline.yaml").is_file()


def test_a_file_in_the_place_of_the_folder_is_refused(tmp_path: Path) -> None:
    (tmp_path / "project").write_text("mine", "utf-8")

    with pytest.raises(PenstockError) as raised:
        scaffold(tmp_path / "project", "demo")

    assert raised.value.code == "PATH_NOT_WRITABLE"
    assert (tmp_path / "project").read_text("utf-8") == "mine"


@pytest.mark.parametrize("name", ["", "Views", "1st", "with space", "ünder", "a/b", "demo\n", "x" * 64])
def test_a_bad_name_is_refused_before_anything_is_written(tmp_path: Path, name: str) -> None:
    with pytest.raises(PenstockError) as raised:
        scaffold(tmp_path, name)

    assert raised.value.code == "SPEC_BAD_NAME"
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("folder", "name"),
    [
        ("views", "views"),
        ("Page Views", "page-views"),
        ("page_views.v2", "page_views-v2"),
        ("2024", "pipeline"),
        ("_", "pipeline"),
        ("x" * 80, "x" * 63),
    ],
)
def test_a_folder_gives_a_fitting_name(tmp_path: Path, folder: str, name: str) -> None:
    assert name_from_folder(tmp_path / folder) == name
