"""Pipelines in SQL: a header in a comment declares sources and sinks, views are the steps between them.

/* penstock
name: engagement
sources: {views: {files: {path: ./in}, format: {json: {schema: {id: string}}}}}
sinks: {out: {files: {path: ./out}}}
*/
CREATE VIEW clean AS SELECT * FROM views WHERE id IS NOT NULL;
INSERT INTO out TABLE clean;

What becomes of late rows is said in the header, or of a view: `CREATE VIEW v TBLPROPERTIES ('late' = 'side') AS ...`;
and so is what a view was called before: `TBLPROPERTIES ('renamedFrom' = 'old')`.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from sqlglot.errors import TokenError
from sqlglot.tokenizer_core import Token, TokenType

from penstock.errors import Location, PenstockError, did_you_mean
from penstock.frontends.assemble import METADATA_KEYS, MOST_NODES, TOP_KEYS, assemble
from penstock.frontends.document import Document, read_document, read_text
from penstock.frontends.findings import Findings
from penstock.frontends.sql_tables import TableRead, is_name, tables_read, tokenize, word
from penstock.spec.location import Path_, PipelineFile, Places
from penstock.spec.pipeline import API_VERSION

_HEADER_START = re.compile(r"\s*(?:--[^\n]*\n\s*)*/\*\s*penstock\b")
_HEADER_END = re.compile(r"^[ \t]*\*/", re.MULTILINE)
_UNCLOSED = re.compile(r"--[^\n]*|/\*.*?\*/|'(?:\\.|[^'\\])*'|\"(?:\\.|[^\"\\])*\"|`[^`]*`|(/\*|['\"`])", re.DOTALL)
_VIEW_PREFIXES = {"OR", "REPLACE", "TEMP", "TEMPORARY"}
_RENAMED = "renamedFrom"
_PROPERTIES = {"late": "policy", "late.policy": "policy", "late.allowed": "allowed", "late.sink": "sink"} | {
    _RENAMED: _RENAMED
}
"""Properties of a view, with the keys of `late` that they fill, or of the step itself."""
_LONGEST_EXCERPT = 60


def load_sql(path: Path) -> PipelineFile:
    """The pipeline of a SQL file; raises one error with everything that is wrong in it."""
    return parse_sql(read_text(path), path)


def parse_sql(text: str, path: Path) -> PipelineFile:
    """The pipeline of a SQL text; `path` is where it stands, or would stand."""
    text = text.replace("\r\n", "\n")
    start, end, body = _header_span(text, path)
    # What stands before the header is blanked out, so that places in it are places in the file.
    header = read_document(re.sub(r"[^\n]", " ", text[:start]) + text[start:end], str(path))
    script = _Script(text, body, _as_pipeline(header))
    script.read()
    places = script.findings.places
    return PipelineFile(assemble(script.document, places, script.findings.problems), places, path)


def _header_span(text: str, path: Path) -> tuple[int, int, int]:
    """Where the header's YAML starts and ends, and where the statements start.

    A line that starts with `*/` ends the header; a path such as `./in/*/day` inside it does not.
    """
    opening = _HEADER_START.match(text)
    if opening is None:
        reason = "the file is empty" if not text.strip() else "it does not start with `/* penstock`"
        raise PenstockError.of("SQL_FILE_HEADER", Location(str(path)), path=path, reason=reason)
    closing = _HEADER_END.search(text, opening.end())
    end, body = (closing.start(), closing.end()) if closing else (text.find("*/", opening.end()),) * 2
    place = _location(text, str(path), text.index("/*"))
    if end < 0:
        raise PenstockError.of("SQL_FILE_HEADER", place, path=path, reason="the comment is not closed with `*/`")
    if not text[opening.end() : end].strip():
        raise PenstockError.of("SQL_FILE_HEADER", place, path=path, reason="the header is empty")
    return opening.end(), end, body if closing else body + 2


def _as_pipeline(header: Document) -> Document:
    """The short header in the shape of a pipeline file, and its places with it."""
    content: dict[str, Any] = {"apiVersion": API_VERSION, "kind": "Pipeline"}
    metadata: dict[str, Any] = {}
    body: dict[str, Any] = {}
    moved: dict[str, Path_] = {}
    for key, value in header.content.items():
        if key in METADATA_KEYS:
            metadata[key], moved[key] = value, ("metadata", key)
        elif key in TOP_KEYS:
            content[key], moved[key] = value, (key,)
        else:
            body[key], moved[key] = value, ("spec", key)
    if isinstance(content.setdefault("metadata", {}), dict):
        content["metadata"] = {**content["metadata"], **metadata}
    if isinstance(content.setdefault("spec", {}), dict):
        content["spec"] = {**content["spec"], **body}
    places = Places(header.places.file)
    places.values[()] = header.places.of()
    places.take_over_keys(header.places, (), moved)
    return Document(content, places, header.problems)


def _location(text: str, file: str, offset: int) -> Location:
    line_start = text.rfind("\n", 0, offset) + 1
    return Location(file, text.count("\n", 0, offset) + 1, offset - line_start + 1)


@dataclass(frozen=True)
class _View:
    """What `CREATE VIEW` says of a step."""

    name: str
    query: str
    tables: list[TableRead]
    late: dict[str, str]


class _Script:
    """Reads the statements into the document that the header has begun."""

    def __init__(self, text: str, body: int, header: Document) -> None:
        self.text = text
        self.body = body
        self.document = header.content
        self.findings = Findings(header.places, header.problems)
        self.views: list[_View] = []

    def read(self) -> None:
        if not isinstance(self.document["spec"], dict):
            return
        for statement, end in self._statements():
            opening = " ".join(word(token) for token in statement[:2])
            if opening.startswith("CREATE"):
                self._view(statement, end)
            elif opening == "INSERT INTO":
                self._insert(statement, end)
            else:
                self._refuse(statement, end)
        # A pipeline of more is refused for that, and looking for all of their tables takes long.
        for view in self.views if len(self.views) <= MOST_NODES else ():
            self._connect(view)

    def _statements(self) -> Iterator[tuple[Sequence[Token], int]]:
        """The tokens of each statement, and the offset of the semicolon or the end of the text after it."""
        try:
            tokens = tokenize(" " * self.body + self.text[self.body :])
        except TokenError:
            unclosed = next((match for match in _UNCLOSED.finditer(self.text, self.body) if match[1]), None)
            offset = unclosed.start() if unclosed else self.body
            self._report(offset, self.text[offset:])
            return
        statement: list[Token] = []
        for token in tokens:
            if word(token) != ";":
                statement.append(token)
                continue
            if statement:
                yield statement, token.start
            statement = []
        if statement:
            yield statement, len(self.text)

    def _view(self, statement: Sequence[Token], end: int) -> None:
        """`CREATE VIEW name [TBLPROPERTIES (...)] AS query`: a step."""
        position = 1
        while position < len(statement) and word(statement[position]) in _VIEW_PREFIXES:
            position += 1
        properties = _property_list(statement[position + 2 :])
        rest = statement[position + 2 + len(properties) :]
        head, query = [*statement[position : position + 2], *rest[:1]], rest[1:]
        shape = [word(token) for token in head]
        if len(head) < 3 or shape[0] != "VIEW" or not is_name(head[1]) or shape[2] != "AS" or not query:
            self._refuse(statement, end)
            return
        name = head[1].text
        steps = self._section("steps")
        path: Path_ = ("spec", "steps", name)
        if name in steps:
            first = self.findings.places.of_key(*path)
            self.findings.add("SPEC_DUPLICATE_NAME", self._at(head[1].start), name=name, first=first)
            return
        written = self.text[head[2].end + 1 : end]
        start = head[2].end + 1 + len(written) - len(written.lstrip())
        places = self.findings.places
        places.keys[path] = places.values[path] = self._at(head[1].start)
        places.values[(*path, "sql")] = self._at(start)
        late = self._late(name, properties, (*path, "late"))
        self.views.append(_View(name, written.strip(), tables_read(query), late))
        steps[name] = {}

    def _late(self, view: str, properties: Sequence[Token], path: Path_) -> dict[str, str]:
        """What the properties of a view say of late rows."""
        late: dict[str, str] = {}
        places = self.findings.places
        for item in _split(properties[2:-1]):
            place = self._at(item[0].start)
            pair = _property(item)
            key = _PROPERTIES.get(pair[0]) if pair else None
            if pair is None or key is None:
                text = self.text[item[0].start : item[-1].end + 1]
                suggestion = did_you_mean(pair[0], _PROPERTIES) if pair else "Its value is a text in quotes."
                self.findings.add("SQL_FILE_PROPERTY", place, name=view, property=text, suggestion=suggestion)
            elif key in late:
                first = places.of_key(*path, key)
                self.findings.add("SPEC_DUPLICATE_KEY", place, key=pair[0], where=f"view '{view}'", first=first)
            else:
                late[key] = pair[1]
                places.keys.setdefault(path, place)
                places.keys[(*path, key)], places.values[(*path, key)] = place, self._at(item[-1].start)
        return late

    def _connect(self, view: _View) -> None:
        """Gives a step its inputs, once all names are known."""
        name, tables = view.name, view.tables
        known = {*self._section("sources"), *self._section("steps")} - {name}
        inputs = list(dict.fromkeys(found for table in tables if (found := _named(table.name, known))))
        late = {key: value for key, value in view.late.items() if key != _RENAMED}
        step: dict[str, Any] = {
            "sql": view.query,
            _RENAMED: view.late.get(_RENAMED),
            **({"late": late} if late else {}),
        }
        path: Path_ = ("spec", "steps", name, "from")
        read = [table for table in tables if _named(table.name, known)] or tables
        if read:
            self.findings.places.values[path] = self._at(read[0].offset)
            step["from"] = (inputs[0] if len(inputs) == 1 else inputs) or read[0].name
        if read and not inputs:
            params = {"node": name, "table": read[0].name, "suggestion": did_you_mean(read[0].name, known)}
            self.findings.at_value("SQL_UNKNOWN_TABLE", path, **params)
        self._section("steps")[name] = step

    def _insert(self, statement: Sequence[Token], end: int) -> None:
        """`INSERT INTO sink TABLE step` or `INSERT INTO sink SELECT * FROM step`: what feeds a sink."""
        rest = statement[3:] if len(statement) > 3 and word(statement[2]) == "TABLE" else statement[2:]
        shape = [word(token) for token in rest[1:-1]]
        if len(rest) < 3 or shape not in (["TABLE"], ["SELECT", "*", "FROM"]) or not is_name(rest[-1]):
            self._refuse(statement, end)
            return
        sinks = self._section("sinks")
        sink, origin = _named(rest[0].text, sinks), rest[-1]
        place = self._at(rest[0].start)
        if sink is None:
            suggestion = did_you_mean(rest[0].text, sinks)
            self.findings.add("SQL_FILE_SINK_UNKNOWN", place, name=rest[0].text, suggestion=suggestion)
            return
        if not isinstance(sinks[sink], dict):
            return
        path: Path_ = ("spec", "sinks", sink, "from")
        if "from" in sinks[sink]:
            first = self.findings.places.of_key(*path)
            self.findings.add("SPEC_DUPLICATE_KEY", place, key="from", where=f"sink '{sink}'", first=first)
            return
        known = [*self._section("sources"), *self._section("steps")]
        sinks[sink] = {**sinks[sink], "from": _named(origin.text, known) or origin.text}
        self.findings.places.keys[path] = self.findings.places.values[path] = self._at(origin.start)

    def _section(self, name: str) -> dict[str, Any]:
        """A section of the pipeline; one that is not a mapping is left alone and reported later."""
        section = self.document["spec"].get(name)
        if section is None:
            section = self.document["spec"][name] = {}
        return section if isinstance(section, dict) else {}

    def _refuse(self, statement: Sequence[Token], end: int) -> None:
        self._report(statement[0].start, self.text[statement[0].start : end])

    def _report(self, offset: int, statement: str) -> None:
        excerpt = " ".join(statement.split())
        short = excerpt if len(excerpt) <= _LONGEST_EXCERPT else excerpt[: _LONGEST_EXCERPT - 1] + "…"
        self.findings.add("SQL_FILE_STATEMENT", self._at(offset), statement=short)

    def _at(self, offset: int) -> Location:
        return _location(self.text, self.findings.places.file, offset)


def _property_list(tokens: Sequence[Token]) -> Sequence[Token]:
    """The tokens of `TBLPROPERTIES (...)` if they come first, else none."""
    if [word(token) for token in tokens[:2]] != ["TBLPROPERTIES", "("]:
        return ()
    closing = next((index for index, token in enumerate(tokens) if word(token) == ")"), None)
    return () if closing is None else tokens[: closing + 1]


def _split(tokens: Sequence[Token]) -> Iterator[Sequence[Token]]:
    """What stands between commas."""
    item: list[Token] = []
    for token in tokens:
        if word(token) != ",":
            item.append(token)
        elif item:
            yield item
            item = []
    if item:
        yield item


def _property(tokens: Sequence[Token]) -> tuple[str, str] | None:
    """Name and value of `'name' = 'value'`; the name may stand without quotes."""
    name, rest = tokens[:-2], tokens[-2:]
    if not name or word(rest[0]) != "=" or rest[1].token_type is not TokenType.STRING:
        return None
    return "".join(token.text for token in name), rest[1].text


def _named(name: str, known: Iterable[str]) -> str | None:
    """The known name that a table's name means; SQL does not tell upper from lower case."""
    return next((item for item in known if item.lower() == name.lower()), None)
