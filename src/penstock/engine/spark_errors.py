"""Spark's errors as Penstock's: a code, the place in the pipeline file, and what to do. Never a stack trace."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

from penstock.components.base import Component
from penstock.components.shared.source_errors import problem_in
from penstock.components.shared.spark_sql import SqlRefused
from penstock.errors import Location, PenstockError, Problem, did_you_mean
from penstock.graph.nodes import Graph
from penstock.spec.location import Path_, Places
from penstock.spec.secrets import texts

_LINE_POSITION = re.compile(r"\(line (\d+), pos (\d+)\)")
_NOISE = re.compile(r"(?<!\s)\s*SQLSTATE: \w+.*", re.DOTALL)
_ADVICE = (
    ("Distinct aggregations", "Use approx_count_distinct(...), which works on streams."),
    (
        "Window function",
        "ROW_NUMBER and other OVER windows need the end of the data; aggregate by a time window.",
    ),
    ("Sorting", "Drop ORDER BY: a stream has no end; sort when reading the result."),
    ("LIMIT", "Drop LIMIT: a stream has no end; limit when reading the result."),
    ("limit", "Drop LIMIT: a stream has no end; limit when reading the result."),
    ("outer join", "Declare eventTime on both sources and bound the time between them in the join condition."),
    ("OuterJoin", "Declare eventTime on both sources and bound the time between them in the join condition."),
    ("left anti", "Use a left join and keep the rows without a partner."),
    ("LeftAnti", "Use a left join and keep the rows without a partner."),
    ("without watermark", "Aggregate by a window over the event time column, or give the sink a `key`."),
    ("Multiple streaming aggregations", "Aggregate over event-time windows in both steps, with an appending sink."),
)


def condition_of(error: Exception) -> str:
    """Spark's name of the error, such as `UNRESOLVED_COLUMN.WITH_SUGGESTION`; empty if it has none."""
    get = getattr(error, "getCondition", None)
    try:
        return (get() if get else None) or ""
    except Exception:
        return ""


def text_of(error: Exception) -> str:
    """The first sentence of Spark's message, without its codes and plans."""
    java: Any = getattr(error, "java_exception", None)
    message = _NOISE.sub("", str(error if java is None else java.getMessage())).strip()
    message = re.sub(r"^\[[A-Z0-9_.]+\]\s*", "", message)
    return message.split("\n")[0].strip().rstrip(";")


def analysis_problem(error: Exception, graph: Graph, node: str) -> Problem:
    """What Spark's analyser (or parser) says about one node, as a problem at its place in the file."""
    if isinstance(error, SqlRefused):
        return _refused_problem(error, graph, node)
    if isinstance(error, PenstockError):
        problem = error.problems[0]
        place = problem.location or graph.location(node, graph.nodes[node].component.name, *problem.at)
        return Problem(problem.code, problem.params, place)
    condition, params = condition_of(error), _parameters(error)
    place = _place(error, graph, node)
    columns = re.findall(r"`([^`]+)`", params.get("proposal", ""))
    if type(error).__name__ == "ParseException":
        return Problem("SQL_SYNTAX", {"node": node, "reason": text_of(error)}, place)
    if graph.nodes[node].component.name == "union":
        return Problem("UNION_SCHEMAS_DIFFER", {"node": node, "reason": text_of(error)}, place)
    if condition.startswith(("UNRESOLVED_COLUMN", "UNRESOLVED_FIELD")):
        name = params.get("objectName", params.get("fieldName", "")).replace("`", "")
        hint = did_you_mean(name.split(".")[-1], [column.split(".")[-1] for column in columns])
        return Problem("SQL_UNKNOWN_COLUMN", {"node": node, "column": name, "suggestion": hint}, place)
    if condition.startswith("TABLE_OR_VIEW_NOT_FOUND"):
        table = params.get("relationName", "").replace("`", "")
        params = {"node": node, "table": table, "suggestion": _known_tables(table, graph, node)}
        return Problem("SQL_UNKNOWN_TABLE", params, place)
    if condition.startswith("PATH_NOT_FOUND"):
        path = params.get("path", "")
        return Problem("PATH_NOT_FOUND", {"where": f"path of {graph.nodes[node].kind} '{node}'", "path": path}, place)
    if condition.startswith("UNRESOLVED_ROUTINE"):
        function = params.get("routineName", "").replace("`", "")
        return Problem("SQL_UNKNOWN_FUNCTION", {"node": node, "function": function}, place)
    if condition.startswith(("DATATYPE_MISMATCH", "CAST_INVALID")):
        return Problem("TYPE_MISMATCH", {"node": node, "reason": text_of(error)}, place)
    return Problem("SQL_INVALID", {"node": node, "reason": text_of(error), "advice": ""}, place)


def _known_tables(table: str, graph: Graph, node: str) -> str:
    hint = did_you_mean(table, graph.nodes[node].inputs) + " Add it to `from`." * (table in graph.nodes)
    return hint.strip()


def _refused_problem(error: SqlRefused, graph: Graph, node: str) -> Problem:
    """What SQL may not do, at its place in the field that holds the SQL."""
    problem, found = error.problems[0], graph.nodes[node]
    params = {"node": node, **problem.params}
    if problem.code == "SQL_UNKNOWN_TABLE":
        params["suggestion"] = _known_tables(str(problem.params["table"]), graph, node)
    owner = graph.nodes.get(found.part_of or node, found)
    place = _place_of_sql(error, graph.file.places, (*owner.path, owner.component.name), owner.component)
    return Problem(problem.code, params, place)


def _place_of_sql(error: SqlRefused, places: Places, path: Path_, component: Component) -> Location:
    """Where SQL stands that Spark was given: the text of a field, with something around it, or a part of that text."""
    fields = sorted(_texts(component), key=lambda item: len(item[1]), reverse=True)
    for inner, text in fields:
        if not text.strip() or not (text in error.text or error.text in text):
            continue
        offset = (error.offset or 0) - error.text.find(text) if text in error.text else None
        if offset is None:
            offset = text.find(error.text) + (error.offset or 0)
        if not 0 <= offset <= len(text):
            continue
        whole = next((at for at in (inner, inner[1:]) if (*path, *at) in places.values), inner)
        before = text[:offset]
        return places.inside_text(before.count("\n") + 1, offset - (before.rfind("\n") + 1), *path, *whole)
    return places.of(*path)


def _texts(component: Component) -> Iterator[tuple[tuple[str | int, ...], str]]:
    for name, info in type(component).model_fields.items():
        value = getattr(component, name)
        for inner, text in texts(dict(value) if isinstance(value, Mapping) else value):
            yield (info.alias or name, *inner), text


def unsupported_problem(error: Exception, graph: Graph, node: str) -> Problem:
    """Why Spark cannot run a node as a stream, and what to do instead."""
    message = str(error)
    advice = next((text for part, text in _ADVICE if part in message), "Rewrite the step without it.")
    params = {"node": node, "reason": text_of(error), "advice": advice}
    return Problem("OPERATORS_UNSUPPORTED", params, _component_place(graph, node))


def _parameters(error: Exception) -> dict[str, str]:
    get = getattr(error, "getMessageParameters", None)
    try:
        return dict(get() or {}) if get else {}
    except Exception:
        return {}


def _component_place(graph: Graph, node: str) -> Location:
    return graph.location(node, graph.nodes[node].component.name)


def _place(error: Exception, graph: Graph, node: str) -> Location:
    """The position in the SQL text, carried over to the pipeline file."""
    found = graph.nodes[node]
    path: tuple[str | int, ...] = (*found.path, found.component.name)
    shorthand = getattr(found.component, "shorthand", None)
    if shorthand is not None and (*path, shorthand) in graph.file.places.values:
        path = (*path, shorthand)
    position = _LINE_POSITION.search(str(error))
    if position is None:
        context = _query_context(error)
        text = str(getattr(found.component, shorthand, "")) if shorthand else ""
        if context is None or context < 0 or context > len(text):
            return graph.file.places.of(*path)
        before = text[:context]
        line, column = before.count("\n") + 1, context - (before.rfind("\n") + 1)
    else:
        line, column = int(position[1]), int(position[2])
    if found.component.name != "sql" and line > 1:
        return graph.file.places.of(*path)
    return graph.file.places.inside_text(line, column, *path)


def _query_context(error: Exception) -> int | None:
    get = getattr(error, "getQueryContext", None)
    try:
        contexts: list[Any] = list(get() or []) if get else []
        return int(contexts[0].startIndex()) if contexts else None
    except Exception:
        return None


_ROW_ERRORS = ("DIVIDE_BY_ZERO", "CAST_INVALID_INPUT", "ARITHMETIC_OVERFLOW", "NUMERIC_VALUE_OUT_OF_RANGE",
               "INVALID_ARRAY_INDEX", "CAST_OVERFLOW", "CANNOT_PARSE_TIMESTAMP", "USER_RAISED_EXCEPTION")  # fmt: skip


def runtime_problem(error: Exception, *, batch: int | None, log: object, checkpoint: object) -> Problem:
    """Why a running query ended."""
    message = str(error)
    told = problem_in(message)
    if told is not None:
        return told
    if "No space left on device" in message or "Disk quota exceeded" in message:
        return Problem("DISK_FULL", {"path": checkpoint})
    if "Read-only file system" in message or "Permission denied" in message:
        return Problem("PATH_NOT_WRITABLE", {"path": checkpoint, "reason": text_of(error)})
    if "STREAMING_QUERY_EVOLUTION" in message or "STREAM_SOURCE" in message:
        return Problem("STATE_SOURCES_CHANGED", {"reason": text_of(error)})
    lost = _DATA_LOST.search(message)
    if lost:
        return Problem("SOURCE_DATA_LOST", {"reason": lost[1].strip().rstrip(".")})
    damaged = _damaged_state(message, checkpoint)
    if damaged:
        return Problem("STATE_UNREADABLE", {"path": damaged, "reason": "it is missing or damaged"})
    for name in _ROW_ERRORS:
        found = re.search(rf"\[{name}[.\w]*\] ([^\n]*?)(?: If necessary| Use `try| SQLSTATE|\n|$)", message)
        if found:
            return Problem("ROW_FAILED", {"node": "a step", "reason": found[1].strip()})
    overflow = re.search(r"OverflowError: step '([^']+)': ([^\n]*)", message)
    if overflow:
        return Problem("SUM_OVERFLOW", {"step": overflow[1], "reason": overflow[2].strip()})
    corrupt = re.search(r"(FAILED_READ_FILE|CANNOT_READ_FILE)[^\n]*", message)
    if corrupt or "is not a Parquet file" in message:
        return Problem("SOURCE_FILE_CORRUPT", {"reason": _file_named(message)})
    in_python = _PYTHON_ERROR.findall(message)
    if in_python:
        return Problem("BATCH_FAILED", {"batch": "?" if batch is None else batch, "reason": in_python[-1], "log": log})
    root = re.findall(r"(?:Caused by: |: )([\w.$]+(?:Exception|Error): [^\n]+)", message)
    reason = root[-1] if root else text_of(error)
    return Problem("BATCH_FAILED", {"batch": "?" if batch is None else batch, "reason": reason, "log": log})


_DATA_LOST = re.compile(r"\[KAFKA_DATA_LOST\] ([^\n]*)")
_PYTHON_ERROR = re.compile(r"Traceback \(most recent call last\):\n(?:[ \t][^\n]*\n)+(\w[^\n]*)")
"""What a Python worker says last of an error."""
_STATE_TROUBLE = re.compile(r"STATE_STORE|StateStore|RocksDB|streaming\.state\.|HDFSMetadataLog|Incomplete log file")
_DAMAGE = re.compile(
    r"EOFException|ChecksumException|FileNotFoundException|FILE_NOT_EXIST|orrupt|ended prematurely|Incomplete|Malformed"
)


def _damaged_state(message: str, checkpoint: object) -> str | None:
    """The file of the checkpoint that could not be read, or the folder of the state, if that is what went wrong."""
    if not (_STATE_TROUBLE.search(message) and _DAMAGE.search(message)):
        return None
    found = re.search(r"(?:file:)?(/[^\s'\",;()]*?/checkpoint/(?:state|sources)/[^\s'\",;()]+)", message)
    return found[1].rstrip(".:") if found else f"{checkpoint}/checkpoint/state"


def _file_named(message: str) -> str:
    found = re.search(r"(file:/[^\s'\"]+|[a-z0-9]+://[^\s'\"]+)", message)
    return found[1].rstrip(".,") if found else text_of(Exception(message))
