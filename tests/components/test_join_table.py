"""A stream joined with a file: the file is read anew in each batch, so that changes in it count from the next one."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as parquet
import pytest

from penstock.errors import PenstockError
from penstock.testing import Harness

if TYPE_CHECKING:
    from tests.conftest import Project

pytestmark = pytest.mark.spark


def pipeline(file: str, how: str = "inner") -> str:
    return f"""
        sources:
          views: {{memory: {{schema: {{id: bigint, user: string}}}}}}
        steps:
          named: {{from: views, join: {{table: {{path: {file}}}, on: {{user: login}}, how: {how}}}}}
        sinks:
          out: {{from: named, memory: {{}}}}
    """


def put(path: Path, rows: list[dict[str, Any]]) -> None:
    """Replaces the file by one rename, as anyone who is read by others should."""
    hidden = path.with_name(f".{path.name}")
    table = pa.Table.from_pylist(rows, schema=pa.schema([("login", pa.string()), ("name", pa.string())]))
    if path.suffix == ".parquet":
        parquet.write_table(table, hidden)
    elif path.suffix == ".csv":
        hidden.write_text("login,name\n" + "".join(f"{row['login']},{row['name']}\n" for row in rows), "utf-8")
    else:
        hidden.write_text("".join(f'{{"login": "{r["login"]}", "name": "{r["name"]}"}}\n' for r in rows), "utf-8")
    os.replace(hidden, path)


@pytest.mark.parametrize("kind", ["csv", "json", "parquet"])
def test_a_change_of_the_file_counts_from_the_next_batch_on(project: Project, kind: str) -> None:
    users = project.folder / f"users.{kind}"
    put(users, [{"login": "ann", "name": "Ann"}, {"login": "bob", "name": "Bob"}])
    with Harness(project.write(pipeline(users.name, "left"))) as harness:
        harness.feed("views", [{"id": 1, "user": "ann"}, {"id": 2, "user": "cyd"}, {"id": 3, "user": None}])
        harness.step()
        put(users, [{"login": "ann", "name": "Anna"}, {"login": "cyd", "name": "Cyd"}])
        harness.feed("views", [{"id": 4, "user": "ann"}, {"id": 5, "user": "cyd"}, {"id": 6, "user": "bob"}])
        harness.step()
        names = {row["id"]: row["name"] for row in harness.rows("out")}
        assert names == {1: "Ann", 2: None, 3: None, 4: "Anna", 5: "Cyd", 6: None}


def test_a_folder_of_files_is_one_table_and_several_matches_give_several_rows(project: Project) -> None:
    (project.folder / "users").mkdir()
    put(project.folder / "users" / "a.csv", [{"login": "ann", "name": "Ann"}])
    put(project.folder / "users" / "b.csv", [{"login": "ann", "name": "Annie"}])
    text = pipeline("users").replace("{path: users}", "{path: users, format: csv}")
    with Harness(project.write(text)) as harness:
        harness.feed("views", [{"id": 1, "user": "ann"}, {"id": 2, "user": "bob"}])
        harness.step()
        assert sorted(row["name"] for row in harness.rows("out")) == ["Ann", "Annie"]


def test_a_file_that_has_lost_its_column_stops_the_run_with_its_name(project: Project) -> None:
    users = project.folder / "users.csv"
    put(users, [{"login": "ann", "name": "Ann"}])
    with Harness(project.write(pipeline(users.name))) as harness:
        harness.feed("views", [{"id": 1, "user": "ann"}])
        harness.step()
        users.write_text("login\nann\n", "utf-8")
        harness.feed("views", [{"id": 2, "user": "ann"}])
        with pytest.raises(PenstockError, match=r"users\.csv has no column name"):
            harness.step()
