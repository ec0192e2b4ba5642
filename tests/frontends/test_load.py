from __future__ import annotations

from pathlib import Path

import pytest
from tests.frontends.reading import problems_of

from penstock.frontends.load import load

YAML = """\
apiVersion: penstock/v1
kind: Pipeline
metadata:
  name: engagement
  labels: {team: news}
spec:
  sources:
    views:
      files: {path: ./in, maxFilesPerBatch: 10}
      format: {json: {schema: {id: string, ts: timestamp, ms: bigint}}}
      eventTime: {column: ts, maxDelay: 1 minute, idleAfter: 30 seconds, maxAhead: null}
  steps:
    unique:
      from: views
      dedupe: {by: [id], within: 5 minutes}
    clean:
      from: unique
      sql: SELECT id, ts FROM unique WHERE ms > 0
    joined:
      from: [clean, views]
      late: {policy: side, allowed: 1 day, sink: too_late}
      sql: |-
        SELECT clean.id
        FROM clean JOIN views USING (id)
  sinks:
    store:
      from: joined
      sqlite: {path: ./out.db, table: store, key: [id]}
    files:
      from: clean
      files: {path: ./out, format: json}
    too_late:
      files: {path: ./late}
  deadLetters: {files: {path: ./dead}}
  late: correct
  state: {partitions: 4}
  run: {trigger: 2 seconds}
  tests:
    - name: drops empty views
      given: {views: [{id: a, ts: 2024-01-01T00:00:00Z, ms: 0}]}
      expect: {clean: []}
"""
SQL = """\
/* penstock
name: engagement
labels: {team: news}
sources:
  views:
    files: {path: ./in, maxFilesPerBatch: 10}
    format: {json: {schema: "id string, ts timestamp, ms long"}}
    eventTime: {column: ts, maxDelay: 60 s, idleAfter: 30 s, maxAhead: null}
steps:
  unique: {from: views, dedupe: {by: [id], within: 5 minutes}}
sinks:
  store: {sqlite: {path: ./out.db, table: store, key: [id]}}
  files: {files: {path: ./out, format: json}}
  too_late: {files: {path: ./late}}
deadLetters: {files: {path: ./dead}}
late: {policy: correct}
state: {partitions: 4}
run: {trigger: 2000 ms}
tests:
  - name: drops empty views
    given: {views: [{id: a, ts: 2024-01-01T00:00:00Z, ms: 0}]}
    expect: {clean: []}
*/
CREATE VIEW clean AS SELECT id, ts FROM unique WHERE ms > 0;

CREATE VIEW joined
TBLPROPERTIES ('late' = 'side', 'late.allowed' = '24 h', 'late.sink' = 'too_late') AS
SELECT clean.id
FROM clean JOIN views USING (id);

INSERT INTO store TABLE joined;
INSERT INTO files SELECT * FROM clean;
"""
PYTHON = """\
import penstock as ps

p = ps.Pipeline(
    "engagement", labels={"team": "news"}, trigger="2 seconds", partitions=4,
    dead_letters=ps.sinks.Files(path="./dead"), late="correct",
)
views = p.source(
    "views",
    ps.sources.Files(path="./in", max_files_per_batch=10),
    format=ps.formats.Json(schema={"id": "string", "ts": "timestamp", "ms": "bigint"}),
    event_time=ps.EventTime(column="ts", max_delay="1 minute", idle_after="30 seconds", max_ahead=None),
)
unique = views.step("unique", ps.steps.Dedupe(by=["id"], within="5 minutes"))
clean = unique.sql("clean", "SELECT id, ts FROM unique WHERE ms > 0")
late = ps.Late("side", allowed="1 day", sink=ps.sinks.Files(path="./late"))
joined = p.sql("joined", "SELECT clean.id\\nFROM clean JOIN views USING (id)", inputs=[clean, views], late=late)
joined.to("store", ps.sinks.Sqlite(path="./out.db", table="store", key=["id"]))
clean.to("files", ps.sinks.Files(path="./out", format="json"))
p.test(
    "drops empty views",
    given={views: [{"id": "a", "ts": "2024-01-01T00:00:00Z", "ms": 0}]},
    expect={clean: []},
)
"""


def test_the_same_pipeline_in_yaml_sql_and_python_is_equal(tmp_path: Path) -> None:
    files = [tmp_path / name for name in ("p.yaml", "p.yml", "p.sql", "p.py")]
    for file, text in zip(files, (YAML, YAML, SQL, PYTHON), strict=True):
        file.write_text(text)
    first, *others = [load(file).pipeline for file in files]
    assert [step.inputs for step in first.steps] == [("views",), ("unique",), ("clean", "views")]
    assert [sink.name for sink in first.sinks] == ["store", "files"]
    assert [first.late_policy(step).policy for step in first.steps] == ["correct", "correct", "side"]
    for other in others:
        assert other == first


def test_a_file_that_is_not_there_is_not_found(tmp_path: Path) -> None:
    (problem,) = problems_of(load, tmp_path / "no.yaml")
    assert (problem.code, problem.definition.exit_code) == ("FILE_NOT_FOUND", 2)


@pytest.mark.parametrize("name", ["p.json", "p", "folder.yaml"])
def test_only_files_of_known_kinds_are_read(tmp_path: Path, name: str) -> None:
    (tmp_path / "folder.yaml").mkdir()
    if name != "folder.yaml":
        (tmp_path / name).write_text("{}")
    (problem,) = problems_of(load, tmp_path / name)
    assert problem.code == "FILE_KIND_UNKNOWN"


def test_an_empty_file_is_told_apart(tmp_path: Path) -> None:
    (tmp_path / "p.yaml").write_text("# nothing yet\n")
    (problem,) = problems_of(load, str(tmp_path / "p.yaml"))
    assert problem.code == "FILE_EMPTY"
