"""The pipeline file of each case."""

from __future__ import annotations

from benchmarks.floor.cases import WINDOWS, Case

FILES_SCHEMA = "ts timestamp, user string, article string, ms bigint"
_HEAD = """\
apiVersion: penstock/v1
kind: Pipeline
metadata: {{name: floor}}
spec:
  run: {{trigger: 1 second}}
{state}  sources:
    views:
{source}
      eventTime: {{column: ts, maxDelay: 2 seconds}}
  steps:
{steps}
  sinks:
{sinks}
"""
_GENERATOR = "      generator: {{dataset: page_views, rate: {rate}, keys: {keys}}}"
_FILES = '      files: {{path: ./in}}\n      format: {{json: {{schema: "{schema}"}}}}'
_ROLLING = "rolling: {over: 1 hour, by: [user], values: {n: count(*), articles: count_distinct(article)}}"


def pipeline_file(case: Case, store: str | None = None) -> str:
    """YAML with state in this store. Paths start beside the file: rows of files in `in`, results below `out`."""
    from_files = case.kind in ("idle", "history")
    source = _FILES.format(schema=FILES_SCHEMA) if from_files else _GENERATOR.format(rate=case.rate, keys=case.keys)
    steps = _steps(case)
    sinks = {name: _sink(case, name) for name in steps}
    return _HEAD.format(
        state="" if store is None else f"  state: {{store: {store}}}\n",
        source=source,
        steps="\n".join(f"    {name}: {{from: views, {step}}}" for name, step in steps.items()),
        sinks="\n".join(f"    {name}_out: {{from: {name}, {sink}}}" for name, sink in sinks.items()),
    )


def start_up_file() -> str:
    """A pipeline over one small file, whose first result is the first file in `out`."""
    return _HEAD.format(
        state="",
        source=_FILES.format(schema=FILES_SCHEMA),
        steps="    slow: {from: views, filter: ms > 100}",
        sinks="    slow_out: {from: slow, files: {path: ./out}}",
    )


def _steps(case: Case) -> dict[str, str]:
    if case.kind == "stateless":
        return {"slow": "filter: ms > 100"}
    if case.kind in ("rolling", "history"):
        return {"engagement": _ROLLING}
    return {
        f"window_{number}": f"window: {{size: 10 seconds, by: [{key}], values: {{value: {aggregate}}}}}"
        for number, (key, aggregate) in enumerate(WINDOWS[: case.windows], start=1)
    }


def _sink(case: Case, step: str) -> str:
    # Where every row gives a result, they are many: these go to files.
    if case.kind in ("rolling", "history"):
        return "files: {path: ./out}"
    return f"sqlite: {{path: ./out/{step}.db, table: results}}"
