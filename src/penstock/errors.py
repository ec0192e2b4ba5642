"""Errors as values: a code, parameters, a place in a file, what to do, and who must act.

Every mistake Penstock can name is declared once in `CODES`; the text a person reads is made from it, tests
assert the code, and the reference page is generated from it.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any


class Owner(StrEnum):
    """Who has to act on an error."""

    AUTHOR = "author"
    OPERATOR = "operator"
    EXTERNAL = "external"
    BUG = "bug"


class Severity(StrEnum):
    ERROR = "error"
    WARNING = "warning"


@dataclass(frozen=True)
class Location:
    """A place in a file; lines and columns count from 1."""

    file: str
    line: int = 1
    column: int = 1

    def __str__(self) -> str:
        return f"{self.file}:{self.line}:{self.column}"


@dataclass(frozen=True)
class ErrorCode:
    """What one code means: message and hint are templates over the problem's parameters."""

    name: str
    message: str
    hint: str
    owner: Owner
    exit_code: int
    severity: Severity


CODES: dict[str, ErrorCode] = {}


def define(
    name: str,
    message: str,
    hint: str,
    *,
    owner: Owner = Owner.AUTHOR,
    exit_code: int = 2,
    severity: Severity = Severity.ERROR,
) -> None:
    """Declares a code. Components from third parties may declare their own in the same way."""
    CODES[name] = ErrorCode(name, message, hint, owner, exit_code, severity)


class _Blanks(dict[str, Any]):
    def __missing__(self, key: str) -> str:
        return ""


@dataclass(frozen=True)
class Problem:
    """One mistake: which code, about what, and where."""

    code: str
    params: Mapping[str, Any] = field(default_factory=dict)
    location: Location | None = None
    at: tuple[str | int, ...] = ()
    """Where in a component's configuration, for who knows where that stands in a file."""

    @property
    def definition(self) -> ErrorCode:
        return CODES[self.code]

    @property
    def severity(self) -> Severity:
        return self.definition.severity

    @property
    def message(self) -> str:
        return self.definition.message.format_map(_Blanks(self.params))

    @property
    def hint(self) -> str:
        return self.definition.hint.format_map(_Blanks(self.params)).strip()

    def __str__(self) -> str:
        place = f"{self.location}: " if self.location else ""
        hint = f"\n    {self.hint}" if self.hint else ""
        return f"{place}{self.severity}[{self.code}]: {self.message}{hint}"

    def as_dict(self) -> dict[str, Any]:
        return {
            "code": self.code,
            "severity": str(self.severity),
            "message": self.message,
            "hint": self.hint,
            "owner": str(self.definition.owner),
            "params": {key: str(value) for key, value in self.params.items()},
            "location": None
            if self.location is None
            else {"file": self.location.file, "line": self.location.line, "column": self.location.column},
        }


class PenstockError(Exception):
    """One or several problems that stop what was asked for."""

    def __init__(self, problems: Problem | Iterable[Problem]) -> None:
        self.problems: tuple[Problem, ...] = (problems,) if isinstance(problems, Problem) else tuple(problems)
        super().__init__("\n".join(str(problem) for problem in self.problems))

    @classmethod
    def of(
        cls, code: str, location: Location | None = None, *, at: tuple[str | int, ...] = (), **params: Any
    ) -> PenstockError:
        return cls(Problem(code, params, location, at))

    @property
    def code(self) -> str:
        """The code of the first error; what tests assert and scripts switch on."""
        return self.problems[0].code

    @property
    def exit_code(self) -> int:
        return max((problem.definition.exit_code for problem in self.problems), default=1)

    def __reduce__(self) -> tuple[Any, ...]:
        return (PenstockError, (self.problems,))


_LONGEST_WORD = 100
_MOST_COMPARED = 100
"""To compare a word with another takes time, and files may hold any number of them."""


def did_you_mean(word: str, known: Iterable[str]) -> str:
    """A sentence that suggests the nearest known word, or lists the known ones."""
    choices = sorted(known)
    if len(word) <= _LONGEST_WORD:
        likely = sorted(choices, key=lambda one: (one[:1] != word[:1], abs(len(one) - len(word))))[:_MOST_COMPARED]
        near = difflib.get_close_matches(word, likely, n=1, cutoff=0.6)
        if near:
            return f"Did you mean '{near[0]}'?"
    if choices:
        more = ", …" if len(choices) > _MOST_COMPARED else ""
        return f"Known: {', '.join(choices[:_MOST_COMPARED])}{more}."
    return ""


# --- the pipeline file -------------------------------------------------------------------------------------
define("FILE_NOT_FOUND", "no such file: {path}", "Check the path; `penstock init` makes a working project.")
define("FILE_EMPTY", "{path} is empty", "A pipeline file starts with `apiVersion: penstock/v1`; try `penstock init`.")
define("FILE_KIND_UNKNOWN", "cannot read {path} as a pipeline", "Use a .yaml, .yml, .sql or .py file.")
define(
    "DOCTOR_FILE_CHANGED",
    "{path} was changed while it was looked at; nothing was written",
    "Run the command again.",
    exit_code=4,
)
define("FILE_UNREADABLE", "cannot read {path}: {reason}", "Check that the file is UTF-8 text and may be read.")
define("YAML_SYNTAX", "not valid YAML: {reason}", "{advice}")
define(
    "PYTHON_FILE_FAILED",
    "{path} could not be run: {reason}",
    "The file is plain Python; run it alone to see the whole error.",
)
define(
    "PYTHON_FILE_NO_PIPELINE",
    "{path} defines {count} pipelines, expected one",
    "Assign exactly one `ps.Pipeline(...)` to a module-level name.",
)
define(
    "SQL_FILE_HEADER",
    "no header in {path}: {reason}",
    "Start the file with `/* penstock` followed by YAML (metadata, sources, sinks) and `*/`.",
)
define(
    "SQL_FILE_STATEMENT",
    "cannot use this statement in a pipeline: {statement}",
    "Write steps as `CREATE VIEW name AS SELECT ...;` and feed a sink with `INSERT INTO sink TABLE step;`.",
)
define(
    "SQL_FILE_SINK_UNKNOWN",
    "there is no sink called '{name}'",
    "{suggestion} Sinks are declared in the header of the file.",
)
define(
    "SQL_FILE_PROPERTY",
    "view '{name}' cannot have the property {property}",
    "{suggestion} Write for example `TBLPROPERTIES ('late' = 'side', 'late.allowed' = '1 day')`.",
)
define("SPEC_UNKNOWN_KEY", "unknown key '{key}' in {where}", "{suggestion}")
define("SPEC_MISSING_KEY", "'{key}' is missing in {where}", "{advice}")
define("SPEC_WRONG_TYPE", "{where} must be {expected}, not {found}", "{advice}")
define("SPEC_BAD_VALUE", "{where}: {reason}", "{advice}")
define(
    "SPEC_BAD_NAME",
    "'{name}' cannot be the name of a {kind}",
    "Use lower-case letters, digits and underscores, starting with a letter.",
)
define(
    "SPEC_DUPLICATE_NAME",
    "'{name}' is defined twice",
    "First defined at {first}. Names of sources, steps and sinks are unique in a pipeline.",
)
define(
    "ALERT_DUPLICATE",
    "there are two alerts '{name}'",
    "The first is at {first}. Give one of them another `name`; without one an alert is called as what it watches.",
)
define(
    "ALERT_CHANNEL_UNKNOWN", "alert '{alert}' names channel '{name}', which the server does not have", "{suggestion}"
)
define(
    "PIPELINE_TOO_LARGE",
    "the pipeline has {count} sources, steps and sinks, and may have {most}",
    "Divide it into several pipelines.",
)
define("SPEC_TOO_DEEP", "{path} is nested too deeply to be read", "Check for brackets that are never closed.")
define("SPEC_DUPLICATE_KEY", "'{key}' is given twice in {where}", "First given at {first}; keep one of them.")
define("SPEC_VERSION", "apiVersion is '{found}'", "This Penstock reads `apiVersion: penstock/v1`.")
define("COMPONENT_UNKNOWN", "there is no {kind} called '{name}'", "{suggestion}")
define("COMPONENT_MISSING", "{where} names no component", "Add one of: {known}.")
define(
    "COMPONENT_AMBIGUOUS",
    "{where} names several components: {found}",
    "One {kind} has one component; split it into several.",
)
define(
    "FORMAT_NOT_USED", "source '{name}' takes no format", "Remove `format`; `{component}` knows the shape of its rows."
)
define(
    "FORMAT_MISSING",
    "source '{name}' has no format",
    "Add `format: {{json: {{schema: {{...}}}}}}` beside `{component}`.",
)
define(
    "FORMAT_NOT_FOR_MESSAGES",
    "source '{name}' reads messages, and `{format}` is a format of whole files",
    "Use json, csv, text, avro or protobuf with `{component}`.",
)
define(
    "FORMAT_NOT_FOR_FILES",
    "source '{name}' reads files, and `{format}` is a format of single messages",
    "Use json, csv, text, avro or parquet with `{component}`.",
)
define(
    "KAFKA_UNREACHABLE",
    "'{node}' cannot reach Kafka at {bootstrap}: {reason}",
    "Start the broker, or correct `bootstrap`.",
    owner=Owner.EXTERNAL,
    exit_code=1,
)
define(
    "KAFKA_LOGIN_FAILED",
    "Kafka at {bootstrap} refuses the login of '{node}': {reason}",
    "Check name, password and `mechanism` under `security`.",
    owner=Owner.OPERATOR,
    exit_code=1,
)
define(
    "KAFKA_TOPIC_MISSING",
    "'{node}' names topic '{topic}', which Kafka at {bootstrap} does not have",
    "{suggestion}",
    owner=Owner.OPERATOR,
)
define(
    "SOURCE_DATA_LOST",
    "messages that were not read yet are gone: {reason}",
    "To go on with what is there, set `onDataLoss: skip` on the source and run again; what is gone stays unread.",
    owner=Owner.OPERATOR,
    exit_code=1,
)
define(
    "LEDGER_WITHOUT_WINDOWS",
    "the ledger of '{name}' does not count by event time",
    "Add `ledger: {{window: 1 hour}}` to the pipeline; it counts from the next run on.",
)
define(
    "LEDGER_WITHOUT_CHECKSUM",
    "the ledger of '{name}' keeps no checksums",
    "Add `ledger: {{checksum: [id]}}` to the pipeline, with the columns that identify a row.",
)
define(
    "CHECKSUM_COLUMN",
    "`ledger.checksum` names '{column}', {reason}",
    "Name columns of text, whole numbers or dates that a sink stores.",
)
define(
    "HISTORY_UNBOUNDED",
    "'{component}' cannot be the history of '{node}': it has no end",
    "A history is read with one of: {known}.",
)
define(
    "HISTORY_WITHOUT_TIME",
    "the history of '{node}' has to be read in the order of event time, and the source has none",
    "Give the source an `eventTime`.",
)
define(
    "HISTORY_COLUMNS",
    "the history of '{node}' has other columns than the source: {reason}",
    "Declare the same `schema` for both, or bring the history into the source's columns first.",
)
define(
    "HISTORY_TOO_LATE",
    "'{node}' has been read already, so its history can no longer come before it",
    "Run with a new state folder (--state-dir) and empty sinks, or remove `bootstrap`.",
    owner=Owner.OPERATOR,
)
define(
    "HISTORY_CHANGED",
    "the history of '{node}' was cut at {before}, and the file now says {now}",
    "Write the time it was begun with, or start over with a new state folder (--state-dir).",
    owner=Owner.OPERATOR,
)
define(
    "THROTTLE_UNSUPPORTED",
    "source '{node}' cannot be throttled: '{component}' gives what it has",
    "Remove `throttle`.",
)
define("LATE_SINK_UNKNOWN", "{where} names sink '{name}', which does not exist", "{suggestion}")
define("SECRET_SYNTAX", "'{text}' is not a secret reference", "Write ${{secret:env/NAME}} or ${{secret:file/PATH}}.")
define("SECRET_NOT_SET", "secret {reference} is not set", "{advice}", owner=Owner.OPERATOR)
define(
    "SECRET_NOT_HERE",
    "{where} refers to {reference}, but secrets are only looked up in fields for connections and secrets",
    "Remove the reference. Secrets belong into fields such as `url`, `password` or `secretKey`.",
)
define(
    "SECRET_IN_PLAIN_TEXT",
    "{where} holds a secret in plain text",
    "Refer to it instead: ${{secret:env/NAME}} or ${{secret:file/PATH}}.",
)

# --- the graph ---------------------------------------------------------------------------------------------
define("PIPELINE_EMPTY", "the pipeline has no {kind}", "Add at least one entry under `{kind}:`.")
define("INPUT_UNKNOWN", "'{node}' reads from '{name}', which does not exist", "{suggestion}")
define("INPUT_COUNT", "'{node}' ({component}) takes {expected}, but `from` names {found}", "Change `from`.")
define("INPUT_REPEATED", "'{node}' reads from '{name}' more than once", "Name each input once.")
define(
    "GRAPH_CYCLE",
    "steps read from each other in a circle: {cycle}",
    "Break the circle: a step can only read what comes before it.",
)
define(
    "STEP_UNUSED",
    "nothing reads {kind} '{name}'",
    "Connect it to a sink or remove it; it is not run.",
    severity=Severity.WARNING,
)
define(
    "SINK_BATCH_TOO_LARGE",
    "sink '{node}' stores at most {limit} rows as one batch for sure, but a batch of {sources} may have {rows}",
    "A larger batch may take longer than its transaction may, and would then fail again and again. Set "
    "`maxRowsPerBatch` of these sources so that they have no more together. Where `transaction.max.timeout.ms` of the "
    "brokers allows a longer transaction, set the option `transaction.timeout.ms` of the sink instead.",
    severity=Severity.WARNING,
)
define(
    "TEST_COLUMN_UNKNOWN",
    "test '{test}' names column '{column}', which '{node}' does not have",
    "{suggestion}",
)
define(
    "STATE_PARTITIONS_FIXED",
    "the state is divided into {found} partitions, and the pipeline asks for {wanted}",
    "Divide it anew with `penstock rescale FILE --partitions {wanted}`, or put `state.partitions` back to {found}.",
    owner=Owner.OPERATOR,
)
define(
    "RENAMED_FROM",
    "'{node}' cannot have been called '{name}' before: {reason}",
    "Name what it was called when the pipeline last ran, or remove `renamedFrom`.",
)
define("TEST_NODE_UNKNOWN", "test '{test}' names '{name}' under `{part}`, which is not {expected}", "{suggestion}")

# --- analysis by Spark -------------------------------------------------------------------------------------
define("SQL_SYNTAX", "SQL of '{node}' cannot be parsed: {reason}", "Spark SQL is expected here.")
define("SQL_UNKNOWN_COLUMN", "column '{column}' does not exist in '{node}'", "{suggestion}")
define("SQL_UNKNOWN_TABLE", "'{node}' reads table '{table}', which is not one of its inputs", "{suggestion}")
define(
    "SQL_UNKNOWN_FUNCTION",
    "function '{function}' does not exist in '{node}'",
    "See Spark's list of built-in functions.",
)
define(
    "SQL_NOT_ALLOWED",
    "'{node}' may not use {what} in SQL: {reason}",
    "SQL computes with the rows of its inputs. A `python` step can do more; on a server it takes the role `coder`.",
)
define("SQL_INVALID", "'{node}' cannot be analysed: {reason}", "{advice}")
define(
    "TYPE_MISMATCH", "types do not fit in '{node}': {reason}", "Cast one side, for example `CAST(column AS BIGINT)`."
)
define(
    "UNION_SCHEMAS_DIFFER",
    "'{node}' cannot union its inputs: {reason}",
    "Give all inputs the same columns with a `select` step first.",
)
define(
    "COLUMN_REPEATED",
    "'{node}' has two columns called '{column}'",
    "Give one of them another name with AS; names differ in more than upper and lower case.",
)
define("COLUMN_UNKNOWN", "'{node}' needs column '{column}', which its input does not have", "{suggestion}")
define("EVENT_TIME_COLUMN_UNKNOWN", "event time column '{column}' is not in source '{node}'", "{suggestion}")
define(
    "EVENT_TIME_NOT_A_TIMESTAMP",
    "event time column '{column}' of '{node}' is {type}, not timestamp",
    "Declare it as `timestamp` in the schema.",
)
define(
    "EVENT_TIME_REQUIRED",
    "'{node}' ({component}) needs event time, and none of its sources declares it",
    "Add `eventTime: {{column: ..., maxDelay: ...}}` to the source.",
)
define(
    "EVENT_TIME_LOST",
    "'{node}' needs event time, and the rows of '{input}' no longer carry it",
    "Keep the event time column, unchanged, in the steps before it.",
)
define(
    "JOIN_COLUMN_TAKEN",
    "'{node}': both sides have a column '{column}'",
    "Give the columns of the second side a `prefix`, or rename one in a step before.",
)
define(
    "JOIN_TYPES_DIFFER",
    "'{node}' joins '{left}' ({left_type}) with '{right}' ({right_type})",
    "Cast one of them in a step before.",
)
define("TABLE_UNREADABLE", "'{node}' cannot read the table {path}: {reason}", "Check the file and its format.")
define("COLUMN_TYPE", "'{node}' needs column '{column}' to be {wanted}, and it is {found}", "Cast it in a step before.")
define("REPLAY_IMPOSSIBLE", "'{step}': rows cannot be fed again: {reason}", "{advice}", exit_code=4)
define("AGGREGATE_INVALID", "'{name}: {text}' is not an aggregate: {reason}", "{advice}")
define(
    "AGGREGATE_UNRESOLVED",
    "'{node}' cannot compute '{name}': {reason}",
    "Its input has these columns: {columns}.",
)
define("AGGREGATE_TYPE", "'{node}': {reason}", "Choose another aggregate, or cast the column in a step before.")
define("LATE_NOT_SUPPORTED", "'{node}' ({component}) cannot do `{policy}` with rows that come too late", "{advice}")
define(
    "REGISTRY_FAILED",
    "the schema registry {url} cannot be used: {reason}",
    "No row was lost: the batch comes again. Check the registry's address, `user` and `password`.",
    owner=Owner.OPERATOR,
    exit_code=1,
)
define(
    "LATE_SPARK_DROPS",
    "'{node}' runs on Spark's own operators, which drop late rows: it cannot do `late: {policy}`",
    "Write it as a `window` or `join` step, or as a query that is computed like a window (see the `sql` step). If its "
    "late rows may be dropped, write `late: drop` at this step; the ledger counts them.",
)
define("OPERATORS_UNSUPPORTED", "'{node}' cannot run as a stream: {reason}", "{advice}")
define(
    "OUTPUT_NEEDS_UPSERT",
    "'{node}' keeps changing rows it has already given out, and sink '{sink}' can only append",
    "Give the sink a `key`, or aggregate by a time window over the event time so that rows become final.",
)
define(
    "OUTPUT_MODES_CLASH",
    "'{first}' needs rows to become final, and '{second}' keeps changing rows",
    "Put the two in separate pipelines.",
)
define(
    "PYTHON_STEP_NOT_FOUND",
    "'{node}' names {target}, which cannot be loaded: {reason}",
    "Write `module:function`; the module lies beside the pipeline file or is installed.",
)
define(
    "PYTHON_STEP_FAILED",
    "the function of '{node}' failed: {reason}",
    "The function gets the input and must return the output, see the reference of the `python` step.",
)
define("PATH_NOT_FOUND", "{where} does not exist: {path}", "Create it, or correct `path` in the pipeline file.")
define(
    "SCHEMA_NOT_INFERRED",
    "the schema of '{node}' cannot be told from its files: {reason}",
    "Declare `schema` in the format.",
)
define("SINK_COLUMN_UNKNOWN", "sink '{node}' needs column '{column}', which its input does not have", "{suggestion}")
define("SINK_TYPE_UNSUPPORTED", "sink '{node}' ({component}) cannot store column '{column}' of type {type}", "{advice}")
define(
    "SINK_TABLE_DIFFERS",
    "table '{table}' of sink '{node}' does not fit: {reason}",
    "Change the table or the pipeline, or write to another table.",
    owner=Owner.OPERATOR,
)

# --- the server --------------------------------------------------------------------------------------------
define(
    "STORE_DOWN",
    "the server's database does not answer: {reason}",
    "Running pipelines go on. Bring the database back; the server notices by itself.",
    owner=Owner.OPERATOR,
    exit_code=1,
)
define(
    "STORE_UNUSABLE",
    "the server's database cannot be used: {reason}",
    "{advice}",
    owner=Owner.OPERATOR,
    exit_code=1,
)
define("PIPELINE_UNKNOWN", "there is no pipeline called '{name}'", "`penstock get` lists those there are.", exit_code=3)
define("NOT_FOUND", "there is no {what} '{name}'", "{advice}", exit_code=3)
define(
    "STALE_REVISION",
    "'{name}' has been changed by someone else: it is at revision {found}, and you have seen {expected}",
    "Look at what it is now, and decide again.",
    owner=Owner.OPERATOR,
    exit_code=4,
)
define("REFUSED", "{reason}", "{advice}", owner=Owner.OPERATOR, exit_code=4)
define(
    "UNAUTHENTICATED",
    "{reason}",
    "Send `Authorization: Bearer TOKEN`; the command reads it from PENSTOCK_TOKEN.",
    owner=Owner.OPERATOR,
    exit_code=4,
)
define("FORBIDDEN", "{reason}", "{advice}", owner=Owner.OPERATOR, exit_code=4)
define(
    "TOO_MANY_ATTEMPTS",
    "too many failed logins from this address",
    "Try again in {seconds} seconds.",
    owner=Owner.OPERATOR,
    exit_code=4,
)
define(
    "TOO_MANY_REQUESTS",
    "too many requests with this token, or from this address",
    "Send fewer at once. Try again in {seconds} seconds.",
    owner=Owner.OPERATOR,
    exit_code=4,
)
define(
    "SERVER_BUSY",
    "the server has as many requests of this kind as it takes ({kind})",
    "Try again in {seconds} seconds.",
    owner=Owner.EXTERNAL,
    exit_code=1,
)
define(
    "MORE_PROBLEMS",
    "there are {count} further problems",
    "Correct the ones that are shown first.",
)
define("REQUEST_INVALID", "the request cannot be read: {reason}", "{advice}", owner=Owner.OPERATOR)
define(
    "REQUEST_TOO_LARGE",
    "the request is larger than {limit}",
    "Apply fewer files at once, or raise `limits.body` of the server.",
    owner=Owner.OPERATOR,
)
define(
    "REQUEST_TOO_SLOW",
    "the body of the request has not come within {seconds} seconds",
    "Send it again, in smaller parts if the connection is slow.",
    owner=Owner.OPERATOR,
)
define(
    "PATH_NOT_ALLOWED",
    "{where} names {path}, which this pipeline may not open: {reason}",
    "Use a path below: {allowed}. An operator can add to `paths.allowed` of the server.",
)
define(
    "URL_NOT_ALLOWED",
    "{where}: {reason}",
    "An operator can change `addresses` of the server. {advice}",
)
define(
    "SECRET_NOT_ALLOWED",
    "{where} refers to {reference}, which this server does not give to the pipeline",
    "An operator can name it in the server's configuration: {advice}.",
)
define(
    "CODE_NOT_ALLOWED",
    "{where} runs code: {what}",
    "It needs a token with the role `coder`; `author` is for YAML and SQL.",
    owner=Owner.OPERATOR,
    exit_code=4,
)
define(
    "TARGET_NOT_ALLOWED",
    "pipelines of {project} may not run on target '{name}'",
    "Targets it may use: {allowed}. An operator can change `projects` and `targets` of the server.",
)
define("PROJECT_UNKNOWN", "there is no project called '{name}'", "{suggestion}", owner=Owner.OPERATOR, exit_code=3)
define(
    "PROJECT_CHANGE_REFUSED",
    "'{name}' cannot move from {before} to {after}: {reason}",
    "Apply it under another name in {after}, and delete it in {before}.",
    owner=Owner.OPERATOR,
    exit_code=4,
)
define(
    "QUOTA_EXCEEDED",
    "{project} may use {limit}, but {wanted}",
    "Stop or delete pipelines of the project, or ask an operator to raise `quotas.{quota}`.",
    owner=Owner.OPERATOR,
    exit_code=4,
)
define(
    "VERSION_NOT_JUDGED",
    "version {version} was written for an earlier Penstock, and it cannot be told what it reads and writes",
    "Apply its file again.",
)
define("TARGET_UNKNOWN", "there is no target called '{name}'", "{suggestion}")
define(
    "EXAMINATION_FAILED",
    "{path} could not be examined: {reason}",
    "Run `penstock validate` on it to see what it does.",
)
define(
    "BENCH_FAILED",
    "the pipeline could not be tried out: {reason}",
    "Change it, or try again; what it reads from may not have answered.",
)
define(
    "LEDGER_NOT_READ",
    "the state of '{name}' could not be read: {reason}",
    "Try again; the server may have much to do.",
    owner=Owner.OPERATOR,
    exit_code=1,
)
define(
    "BIND_REFUSED",
    "{host} can be reached from other machines, and the server has no certificate",
    "Give it one (`tls` in its configuration), or say --insecure if something in front of it encrypts.",
    owner=Owner.OPERATOR,
    exit_code=4,
)
define(
    "PORT_TAKEN",
    "port {port} of {host} is taken: {reason}",
    "Choose another with --port, or end what uses it.",
    owner=Owner.OPERATOR,
    exit_code=1,
)
define(
    "SERVER_RUNNING",
    "{path} is in use by another server (process {pid})",
    "End that one first, or give this one a folder of its own with --data.",
    owner=Owner.OPERATOR,
    exit_code=1,
)
define(
    "RUN_AS_IMPOSSIBLE",
    "pipelines cannot run as '{user}': {reason}",
    "Change what is named, or set `runAs` to another user, or to `none` to run pipelines as the server's user.",
    owner=Owner.OPERATOR,
    exit_code=1,
)
define(
    "STORE_IN_USE",
    "the store {store} is in use by another server: {who}",
    "A store has one server at a time. End that one first, or give this one a store of its own with --store.",
    owner=Owner.OPERATOR,
    exit_code=1,
)
define(
    "SERVER_STORE_DOWN",
    "the server cannot start, as its database does not answer: {reason}",
    "Bring the database back and start the server again; pipelines that run go on meanwhile.",
    owner=Owner.OPERATOR,
    exit_code=1,
)
define(
    "CERTIFICATE_UNUSABLE",
    "the certificate {cert} with the key {key} cannot be used: {reason}",
    "Both must be PEM files that may be read, and belong together; see `tls` in the server's configuration.",
    owner=Owner.OPERATOR,
    exit_code=1,
)
define(
    "SERVER_UNREACHABLE",
    "no server answers at {url}: {reason}",
    "Start one with `penstock serve`, or set PENSTOCK_URL to where it is.",
    owner=Owner.OPERATOR,
    exit_code=1,
)
define("SERVER_ERROR", "{reason}", "{advice}", owner=Owner.OPERATOR, exit_code=1)
define(
    "TOKEN_MISSING",
    "the server at {url} wants a token, and PENSTOCK_TOKEN is not set",
    "Set it, for example: export PENSTOCK_TOKEN=$(cat DATA/admin.token)",
    owner=Owner.OPERATOR,
    exit_code=4,
)
define("INTERNAL", "something went wrong inside the server", "See its log, at {mark}.", owner=Owner.BUG, exit_code=1)

# --- running -----------------------------------------------------------------------------------------------
define(
    "STATE_OF_ANOTHER_PIPELINE",
    "{path} holds the state of pipeline '{found}', not of '{expected}'",
    "Give this pipeline its own `--state-dir`.",
    owner=Owner.OPERATOR,
)
define(
    "STATE_MISSING",
    "pipeline '{name}' has not run yet: there is no state in {path}",
    "Run it first, or name its folder with --state-dir.",
    owner=Owner.OPERATOR,
    exit_code=3,
)
define(
    "STATE_IN_USE",
    "{path} is in use by process {pid}",
    "Stop that run first, or give this one its own `--state-dir`.",
    owner=Owner.OPERATOR,
    exit_code=1,
)
define(
    "FENCED",
    "a newer run has taken over the state in {path} (epoch {newer}, this one has {epoch})",
    "Only one run may go on; this one has stored and committed nothing since.",
    owner=Owner.EXTERNAL,
    exit_code=1,
)
define(
    "STATE_STORE_FIXED",
    "the state is kept with `store: {found}`, and the pipeline file says `store: {wanted}`",
    "Take `store` out of the file, or start with an empty `--state-dir` and an empty output.",
    owner=Owner.AUTHOR,
)
define(
    "STATE_STORE_SPARK",
    "Spark's own operators keep state for '{node}', which cannot be combined with `store: chunks`",
    "Use `store: spark` and an empty `--state-dir`, or write it as a `window`, `join`, `latest` or `dedupe` step.",
    owner=Owner.AUTHOR,
)
define(
    "STATE_STORE_UNSUPPORTED",
    "{what} is not available for state that is kept with `store: chunks`",
    "Run the pipeline with `store: spark` if you need it; that takes a new state.",
    owner=Owner.AUTHOR,
)
define(
    "STATE_UNREADABLE",
    "state in {path} cannot be read: {reason}",
    "Restore the file from a copy,{savepoint} or start anew with an empty `--state-dir` and an empty output.",
    owner=Owner.OPERATOR,
    exit_code=1,
)
define(
    "STATE_NOTHING_YET",
    "'{name}' has committed no batch yet, so there is no state to show",
    "Look again once it has processed something.",
    owner=Owner.OPERATOR,
    exit_code=4,
)
define(
    "STATE_NOT_FOUND",
    "'{word}' is neither a pipeline file nor a state folder, and there is no {path}",
    "{advice}",
    owner=Owner.OPERATOR,
    exit_code=3,
)
define(
    "STATE_STATELESS",
    "pipeline '{name}' keeps no state: none of its steps remembers anything",
    "",
    owner=Owner.OPERATOR,
    exit_code=3,
)
define(
    "STATE_STEP_UNKNOWN",
    "pipeline '{name}' has no step '{step}' that keeps state",
    "Those that do: {steps}.",
    owner=Owner.OPERATOR,
    exit_code=3,
)
define(
    "STATE_KEY",
    "'{step}' cannot be asked for that key: {reason}",
    "{advice}",
    owner=Owner.OPERATOR,
)
define(
    "REPROCESS_NO_HISTORY",
    "source '{node}' ({component}) cannot be read again: it keeps nothing of what it has given",
    "Reprocessing reads from files, delta, sql_poll and kafka; give the source a `bootstrap` with an archive of it.",
    owner=Owner.OPERATOR,
)
define(
    "REPROCESS_NO_TIME",
    "'{node}' cannot be cut by time: {reason}",
    "{advice}",
    owner=Owner.OPERATOR,
)
define(
    "REPROCESS_APPENDS",
    "sink '{node}' appends, and {reason}: its rows would be there twice",
    "Send them elsewhere with `--into {node}.{field}=…`, or leave the sink out with --sink.",
    owner=Owner.OPERATOR,
    exit_code=4,
)
define(
    "REPROCESS_SAVEPOINT_LATE",
    "savepoint {path} is too late for the range: {reason}",
    "Use an earlier savepoint, or none; results that have left it would not come again.",
    owner=Owner.OPERATOR,
    exit_code=4,
)
define(
    "REPROCESS_STATE_DIFFERS",
    "this version cannot go on with the state of the savepoint: {reason}",
    "Leave out --savepoint; then what lies before the range is read again.",
    owner=Owner.OPERATOR,
    exit_code=4,
)
define(
    "SAVEPOINT_UNKNOWN",
    "there is no savepoint '{name}' in {path}",
    "{suggestion} `penstock savepoint list FILE` shows those there are.",
    owner=Owner.OPERATOR,
    exit_code=3,
)
define(
    "SAVEPOINT_NAME",
    "'{name}' cannot be the name of a savepoint",
    "Use letters, digits, dots, dashes and underscores, starting with a letter or digit.",
    owner=Owner.OPERATOR,
)
define(
    "SAVEPOINT_EXISTS",
    "there is something called '{name}' already: {path}",
    "Choose another name, or delete that savepoint first.",
    owner=Owner.OPERATOR,
    exit_code=4,
)
define(
    "SAVEPOINT_NOTHING",
    "'{name}' has committed no batch yet, so there is nothing to save",
    "Take a savepoint once it has processed something.",
    owner=Owner.OPERATOR,
    exit_code=4,
)
define(
    "SAVEPOINT_FAILED",
    "the savepoint could not be taken: {reason}",
    "Nothing was changed; try again.",
    owner=Owner.OPERATOR,
    exit_code=1,
)
define(
    "SAVEPOINT_NO_SPACE",
    "it takes {needed} bytes on the disk of {path}, and {free} are free",
    "Free space, or choose another place; nothing was changed.",
    owner=Owner.OPERATOR,
    exit_code=1,
)
define(
    "SAVEPOINT_STORE",
    "the object store does not do what it is asked for at {path}: {reason}",
    "Check the address, the keys and the network; no savepoint was changed.",
    owner=Owner.OPERATOR,
    exit_code=1,
)
define(
    "SAVEPOINT_DAMAGED",
    "savepoint {path} is damaged: {file} {reason}",
    "Use another savepoint, or a copy of this one.",
    owner=Owner.OPERATOR,
    exit_code=1,
)
define(
    "SAVEPOINT_TOO_NEW",
    "savepoint {path} was made with {what} {found}, and this is {known}",
    "Restore it with that version or a later one.",
    owner=Owner.OPERATOR,
    exit_code=4,
)
define(
    "SAVEPOINT_OF_ANOTHER_PIPELINE",
    "savepoint {path} is of pipeline '{found}', not of '{expected}'",
    "Add --fork to let '{expected}' begin where that one was, with sinks of its own.",
    owner=Owner.OPERATOR,
    exit_code=4,
)
define(
    "RESTORE_UNFINISHED",
    "an earlier restore of {path} is not finished: its sinks have not gone back yet",
    "Run the pipeline; that finishes it first.",
    owner=Owner.OPERATOR,
    exit_code=4,
)
define(
    "RESCALE_FAILED",
    "the state in {path} could not be divided anew: {reason}",
    "Nothing was changed; the savepoint that was taken before is there too.",
    owner=Owner.OPERATOR,
    exit_code=1,
)
define(
    "CHANGE_NEEDS_UPGRADE",
    "'{name}' has changed since it last ran, and cannot go on with its state as it is: {reason}",
    "Carry the state over with `{command}`; `penstock plan` shows what that does. Or run the earlier version.",
    owner=Owner.OPERATOR,
    exit_code=4,
)
define(
    "CHANGE_LOSES_STATE",
    "the upgrade would give up what '{node}' remembers: {reason}",
    "Add `--lose {node}` if that is meant. If it was only renamed, say so with `renamedFrom: {node}`.",
    owner=Owner.OPERATOR,
    exit_code=4,
)
define(
    "CHANGE_LOSES_NOTHING",
    "nothing that '{node}' remembers would be given up",
    "Leave out `--lose {node}`.",
    owner=Owner.OPERATOR,
    exit_code=2,
)
define(
    "OPERATION_OPEN",
    "the state of '{name}' is being changed: {kind}, asked for by {by} ({id})",
    "Wait until that is done; `penstock describe {name}` says how far it is.",
    owner=Owner.OPERATOR,
    exit_code=4,
)
define(
    "OPERATION_FAILED",
    "it could not be done: {reason}",
    "Nothing was changed, or it is finished by the next run; the log of the operation says more.",
    owner=Owner.OPERATOR,
    exit_code=1,
)
define(
    "OPERATION_CANCELLED",
    "{reason}",
    "The state is as it was, or, if the work was done already, as it was to be.",
    owner=Owner.OPERATOR,
    exit_code=4,
)
define(
    "PARTITIONS_DECLARED",
    "the file of '{name}' says how many partitions its state has, and cannot be changed by a program",
    "Set `state.partitions: {partitions}` in it, and apply it.",
    owner=Owner.OPERATOR,
    exit_code=4,
)
define(
    "BOOTSTRAP_REFUSED",
    "the state of '{node}' cannot be made anew from what was read before: {reason}",
    "Leave out `--bootstrap {node}`; its state then begins empty, or goes on.",
    owner=Owner.OPERATOR,
    exit_code=4,
)
define(
    "UPGRADE_FAILED",
    "the state in {path} could not be carried over: {reason}",
    "Nothing was changed; the savepoint that was taken before is there too.",
    owner=Owner.OPERATOR,
    exit_code=1,
)
define(
    "CHANGE_UNFINISHED_BATCH",
    "the last run of {path} died in batch {batch}, and that batch cannot be finished: {reason}",
    "Mend what it says, or go back to a savepoint, and try again. Nothing was changed.",
    owner=Owner.OPERATOR,
    exit_code=4,
)
define(
    "CUTOVER_UNKNOWN",
    "no cut-over of '{name}' is under way in {path}",
    "Begin one with `penstock cutover start FILE NEW`.",
    owner=Owner.OPERATOR,
    exit_code=3,
)
define(
    "CUTOVER_ANOTHER",
    "a cut-over of '{name}' to {file} is under way",
    "Finish it with `penstock cutover finish`, or give it up with `penstock cutover abort`.",
    owner=Owner.OPERATOR,
    exit_code=4,
)
define(
    "CUTOVER_REFUSED",
    "the cut-over cannot go on: {reason}",
    "{advice}",
    owner=Owner.OPERATOR,
    exit_code=4,
)
define(
    "CUTOVER_FAILED",
    "the cut-over has failed: {reason}",
    "The pipeline is as it was. Try again, or give the cut-over up with `penstock cutover abort`.",
    owner=Owner.OPERATOR,
    exit_code=1,
)
define(
    "STATE_SOURCES_CHANGED",
    "the saved state does not fit the sources of this file: {reason}",
    "Put the sources back, or start anew with another `--state-dir` and another output.",
    owner=Owner.OPERATOR,
)
define(
    "SINK_OF_ANOTHER_RUN",
    "sink '{node}' already holds rows written from other state ({path})",
    "Run with the state that wrote it, or write to an empty place: appending again would store rows twice.",
    owner=Owner.OPERATOR,
    exit_code=1,
)
define(
    "SINK_FILES_LOST",
    "sink '{node}': version {version} of its table names {file}, which is missing or cut short",
    "If the machine lost power while it was being written, the batch was not stored: remove {entry} and start again. "
    "Otherwise put the file back.",
    owner=Owner.OPERATOR,
    exit_code=1,
)
define(
    "SINK_FENCED",
    "sink '{node}' has been taken over by a newer run (epoch {newer}, this one has {epoch})",
    "Only one run may write; this one has stopped.",
    owner=Owner.OPERATOR,
    exit_code=1,
)
define(
    "SINK_FAILED",
    "sink '{node}' could not write batch {batch}: {reason}",
    "{advice}",
    owner=Owner.EXTERNAL,
    exit_code=1,
)
define(
    "SINK_BEHIND",
    "sink '{node}' has lost batches: {holds}, but the pipeline has stored batch {noted} in it{missing}",
    "The sink was restored from a backup, or a replica took over that was behind. Nothing was written. Restore a "
    "savepoint of batch {position} or before{way}; or accept that the rows are missing with "
    "`penstock accept-gap FILE {node}`, and then `penstock reprocess` the range if it can be read again.",
    owner=Owner.OPERATOR,
    exit_code=4,
)
define(
    "SINK_AHEAD",
    "sink '{node}' holds batch {position}, but this state has begun no batch after {begun}",
    "The state folder was restored from a backup that is older than the sink. Nothing was written: the sink would skip "
    "the batches after {begun}, and their rows would be lost. Put the newer state back, or restore a savepoint with "
    "`penstock run FILE --restore SAVEPOINT`, which takes sinks back too.",
    owner=Owner.OPERATOR,
    exit_code=4,
)
define(
    "SINK_NOT_BEHIND",
    "sink '{node}' is not known to have lost batches",
    "Only a gap that a run has found can be accepted: start the pipeline; it stops with SINK_BEHIND if there is one.",
    owner=Owner.OPERATOR,
    exit_code=4,
)
define(
    "SINK_CANNOT_REWIND",
    "sink '{node}' cannot go back to what it held after batch {batch}: {reason}",
    "{advice}",
    owner=Owner.OPERATOR,
    exit_code=4,
)
define(
    "SINK_UNREACHABLE",
    "sink '{node}' does not reach {server}: {reason}",
    "Check the address and that what it names is there and running.",
    owner=Owner.EXTERNAL,
    exit_code=1,
)
define(
    "SINK_DENIED",
    "sink '{node}' may not use {server}: {reason}",
    "Check user and password, or the keys, and what they have the right to do.",
    owner=Owner.OPERATOR,
    exit_code=1,
)
define(
    "SOURCE_UNREACHABLE",
    "source '{node}' does not reach {server}: {reason}",
    "Check the address and that the database is there and running.",
    owner=Owner.EXTERNAL,
    exit_code=1,
)
define(
    "SOURCE_DENIED",
    "source '{node}' may not use {server}: {reason}",
    "Check user and password, and what the user has the right to read.",
    owner=Owner.OPERATOR,
    exit_code=1,
)
define(
    "SOURCE_TABLE_MISSING",
    "source '{node}' reads table '{table}', which {server} does not have",
    "{suggestion}",
    owner=Owner.OPERATOR,
)
define(
    "SOURCE_SKIPS_NULLS",
    "rows with null in '{column}' are never read by source '{node}'",
    "Make the column NOT NULL, or order by another.",
    severity=Severity.WARNING,
)
define("SOURCE_FAILED", "source '{node}' could not be read: {reason}", "{advice}", owner=Owner.EXTERNAL, exit_code=1)
define(
    "SOURCE_CHANGED",
    "version {version} of the table that source '{node}' reads deletes or changes rows ({path})",
    "A stream only adds rows. Set `onChanges: skip` to leave such versions out, or start anew with what is there now.",
    owner=Owner.OPERATOR,
    exit_code=1,
)
define(
    "SOURCE_FILE_CORRUPT",
    "a file of the source is not readable: {reason}",
    "Replace or remove the file; its rows cannot be told apart, so none was skipped.",
    owner=Owner.EXTERNAL,
    exit_code=1,
)
define(
    "DISK_FULL",
    "no space left on the disk of {path}",
    "Free space and run again: nothing of the unfinished batch was kept.",
    owner=Owner.OPERATOR,
    exit_code=1,
)
define(
    "PATH_NOT_WRITABLE",
    "cannot write to {path}: {reason}",
    "Check permissions and that the disk is not read-only.",
    owner=Owner.OPERATOR,
    exit_code=1,
)
define(
    "JAVA_MISSING",
    "Java {needed} or newer was not found ({reason})",
    "Install a JRE 17, for example `apt-get install openjdk-17-jre-headless`, or set JAVA_HOME.",
    owner=Owner.OPERATOR,
    exit_code=1,
)
define(
    "JARS_UNAVAILABLE",
    "the jars for '{name}' could not be had: {reason}",
    "{advice}",
    owner=Owner.OPERATOR,
    exit_code=1,
)
define(
    "JAR_DAMAGED",
    "{path} is not the jar that it should be: its checksum differs",
    "Remove the file and run again: it is fetched anew.",
    owner=Owner.OPERATOR,
    exit_code=1,
)
define(
    "PACKAGE_CHANGED",
    "{path} is not the jar of {coordinate} that was locked: its sha256 is {found} instead of {expected}",
    "It was not loaded. In a cache, remove the file: it is fetched again. If the repository has changed it, ask the "
    "publisher why; to trust the new one, remove its line from packages.lock and run `penstock packages lock`.",
    owner=Owner.OPERATOR,
    exit_code=1,
)
define(
    "PACKAGES_UNLOCKED",
    "{lock} does not hold the packages of target '{target}': {packages}",
    "Run `penstock packages lock --config {config}`, read what it says is new, and start the server again.",
    owner=Owner.OPERATOR,
)
define(
    "PACKAGES_LOCK_INVALID",
    "{path} cannot be read as a lock of packages: {reason}",
    "Put back the file that `penstock packages lock` wrote, or remove it and run that command again.",
    owner=Owner.OPERATOR,
)
define("JVM_FAILED", "Spark did not start: {reason}", "See the log: {log}", owner=Owner.OPERATOR, exit_code=1)
define(
    "JVM_DIED",
    "Spark ended unexpectedly",
    "See the log: {log}. Often memory: try `--driver-memory 4g`.",
    owner=Owner.OPERATOR,
    exit_code=1,
)
define(
    "BATCH_FAILED",
    "batch {batch} failed: {reason}",
    "Nothing of the batch was kept. See the log: {log}; `--debug` shows Spark's own error.",
    owner=Owner.BUG,
    exit_code=1,
)
define(
    "RUN_FAILED",
    "the run ended unexpectedly: {reason}",
    "This is a mistake in Penstock; please report it with the log: {log}",
    owner=Owner.BUG,
    exit_code=1,
)
define(
    "RUN_NOT_STARTED",
    "run {run} could not be started: {reason}",
    "Check the disk and the permissions of the server's data folder.",
    owner=Owner.EXTERNAL,
    exit_code=1,
)
define(
    "ROW_FAILED",
    "a row made '{node}' fail: {reason}",
    "Guard the expression, for example with `try_cast` or `try_divide`; nothing of the batch was kept.",
    exit_code=1,
)
define(
    "SUM_OVERFLOW",
    "in step '{step}' {reason}",
    "Make the column a decimal or a double in an earlier step; nothing of the batch was kept.",
    exit_code=1,
)
define(
    "HISTORY_TOO_SHORT",
    "the history of '{name}' is too short to fit costs to: {found} batches count, and at least {least} are needed",
    "Wait for {wait}. Batches without rows, of the first minute of a run, or with another number of cores do not "
    "count.",
    owner=Owner.OPERATOR,
    exit_code=1,
)
define(
    "HISTORY_TOO_EVEN",
    "the history of '{name}' does not tell what a batch costs and what a row costs: {why}",
    "Let the load change by half: wait for a busier or a quieter hour, or stop the pipeline for some minutes, so that "
    "larger batches follow.",
    owner=Owner.OPERATOR,
    exit_code=1,
)
define(
    "HISTORY_MISSING",
    "{path} holds no history of batches",
    "Name the state folder of a pipeline that `penstock run` has run, such as `.penstock/NAME`, or a pipeline on the "
    "server.",
    exit_code=3,
)
define("CONF_NOT_ALLOWED", "Spark option '{key}' cannot be set: {reason}", "{advice}")
define("USAGE", "{reason}", "{advice}")
define("TESTS_MISSING", "{path} holds no tests", "Add `tests:` with `given` and `expect`.")
define("TARGET_NOT_EMPTY", "{path} is not empty", "Choose a new folder.")
define("TEST_FAILED", "test '{test}' failed", "", exit_code=1)
