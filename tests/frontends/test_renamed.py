"""`renamedFrom` in all three kinds of files."""

from __future__ import annotations

from pathlib import Path

import pytest

import penstock as ps
from penstock.errors import PenstockError
from penstock.frontends.assemble import assemble
from penstock.frontends.sql import parse_sql
from penstock.frontends.yaml import parse_yaml
from penstock.spec.dump import as_document, fingerprint
from penstock.spec.location import Places
from penstock.spec.pipeline import Pipeline

YAML = """\
apiVersion: penstock/v1
kind: Pipeline
metadata: {name: p}
spec:
  sources: {s: {memory: {schema: {id: string}}, renamedFrom: old_s}}
  steps: {t: {from: s, sql: SELECT * FROM s, renamedFrom: old_t}}
  sinks: {u: {from: t, memory: {}, renamedFrom: old_u}}
"""
SQL = """\
/* penstock
name: p
sources: {s: {memory: {schema: {id: string}}, renamedFrom: old_s}}
sinks: {u: {memory: {}, renamedFrom: old_u}}
*/
CREATE VIEW t TBLPROPERTIES ('renamedFrom' = 'old_t') AS SELECT * FROM s;
INSERT INTO u TABLE t;
"""


def python() -> Pipeline:
    pipeline = ps.Pipeline("p")
    source = pipeline.source("s", ps.sources.Memory(schema={"id": "string"}), renamed_from="old_s")
    source.sql("t", "SELECT * FROM s", renamed_from="old_t").to("u", ps.sinks.Memory(), renamed_from="old_u")
    return pipeline.build()


def test_all_kinds_of_files_say_the_same() -> None:
    found = [parse_yaml(YAML, Path("p.yaml")).pipeline, parse_sql(SQL, Path("p.sql")).pipeline, python()]
    for pipeline in found:
        assert {node.name: node.renamed_from for node in pipeline.nodes()} == {"s": "old_s", "t": "old_t", "u": "old_u"}
        again = assemble(as_document(pipeline), Places("again"))
        assert fingerprint(again) == fingerprint(pipeline)


def test_a_name_of_before_is_told_where_it_stands() -> None:
    with pytest.raises(PenstockError) as raised:
        parse_yaml(YAML.replace("old_t", "u"), Path("p.yaml"))
    (problem,) = raised.value.problems
    assert problem.code == "RENAMED_FROM"
    assert "there is a sink of that name" in problem.message
    assert problem.location is not None
    assert problem.location.line == 6
