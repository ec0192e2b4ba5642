"""A path of a Delta table is the place that its library opens, or it is refused."""

from __future__ import annotations

import string
from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import write_deltalake

from penstock.components.base import CheckContext
from penstock.components.shared.delta_table import located
from penstock.components.shared.s3 import S3
from penstock.components.sinks.delta import Delta as DeltaSink
from penstock.components.sources.delta import Delta as DeltaSource
from penstock.errors import PenstockError


@pytest.mark.parametrize(
    "path",
    [
        "x%2e%2e/y",
        "%2e%2e/y",
        "x%20y",
        "x?y",
        "x#y",
        "x[y",
        "x]y",
        "x^y",
        "x|y",
        "s3a://archive/in/%2e%2e/y",
        "s3a://archive/x#y",
    ],
)
@pytest.mark.parametrize("component", [DeltaSource, DeltaSink])
def test_a_path_that_its_library_reads_as_another_is_refused(
    component: type[DeltaSource] | type[DeltaSink], path: str
) -> None:
    problems = list(component(path=path).check(CheckContext("t")))
    assert [(problem.code, problem.at) for problem in problems] == [("SPEC_BAD_VALUE", ("path",))]
    with pytest.raises(PenstockError) as refused:
        located(path if "://" in path else f"/data/{path}", S3(), None)
    assert refused.value.code == "SPEC_BAD_VALUE"


def test_all_other_paths_are_read_by_its_library_as_they_are_written(tmp_path: Path) -> None:
    places = 0
    for char in f"{string.punctuation} é．\u2025":
        name = f"x{char}{char}y"
        if char == "/" or list(DeltaSource(path=name).check(CheckContext("t"))):
            continue
        write_deltalake(str(tmp_path / name), pa.table({"id": [ord(char)]}))
        (log,) = (tmp_path / name / "_delta_log").glob("*.json")
        log.write_text(log.read_text().replace('"WRITE"', '"READ"'), "utf-8")
        table = located(str(tmp_path / name), S3(), None).load()
        assert table.history()[0]["operation"] == "READ", "it is this very log that is read"
        assert table.to_pyarrow_table().to_pylist() == [{"id": ord(char)}]
        places += 1
    assert places > 25
