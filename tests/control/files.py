"""Pipeline files that tests send to a server."""

from __future__ import annotations

import textwrap

from penstock.control.submitted import Submitted


def yaml(name: str, body: str = "", *, labels: str = "{}", table: str = "t") -> str:
    """A sound pipeline; `body` is added to its `spec`."""
    head = f"""\
apiVersion: penstock/v1
kind: Pipeline
metadata: {{name: {name}, labels: {labels}}}
spec:
  sources:
    views: {{generator: {{dataset: page_views, rows: 100}}}}
  sinks:
    out: {{from: views, sqlite: {{path: ./out.db, table: {table}}}}}
"""
    return head + textwrap.indent(textwrap.dedent(body), "  ")


def sent(name: str, **more: str) -> Submitted:
    return Submitted(f"{name}.yaml", yaml(name, **more))


PYTHON = """\
import penstock as ps

p = ps.Pipeline("coded")
rows = p.source("views", ps.sources.Memory(schema={"id": "long"}, rows=[{"id": 1}]))
rows.to("out", ps.sinks.Sqlite(path="./out.db", table="t"))
"""

SQL = """\
/* penstock
name: in_sql
sources: {views: {memory: {schema: {id: long}, rows: [{id: 1}]}}}
sinks: {out: {sqlite: {path: ./out.db, table: t}}}
*/
CREATE VIEW clean AS SELECT * FROM views WHERE id IS NOT NULL;
INSERT INTO out TABLE clean;
"""
