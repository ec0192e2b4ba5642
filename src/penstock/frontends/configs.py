"""Reads one configuration from plain data, and turns whatever is wrong with it into problems with a place.

The rules are those of the class's fields; the messages are ours, since what pydantic says is about Python.
"""

from __future__ import annotations

import re
import types
import typing
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, TypeVar

from pydantic import TypeAdapter, ValidationError

from penstock.errors import PenstockError, did_you_mean
from penstock.frontends.findings import Findings, describe, place_in_words
from penstock.spec.fields import Config, is_secret
from penstock.spec.location import Path_
from penstock.spec.secrets import references, texts

ConfigT = TypeVar("ConfigT", bound=Config)

_EXPECTED = {
    "string": "text", "int": "a whole number", "float": "a number", "decimal": "a number", "bool": "true or false",
    "dict": "a mapping", "mapping": "a mapping", "model": "a mapping", "list": "a list", "tuple": "a list",
    "set": "a list", "frozen_set": "a list", "none": "empty",
    "datetime": "a time such as 2024-01-01T00:00:00Z", "datetime_from_date": "a time such as 2024-01-01T00:00:00Z",
    "date": "a date such as 2024-01-01", "date_from_datetime": "a date such as 2024-01-01",
}  # fmt: skip
_TYPE_ERROR = re.compile(r"(\w+?)_(type|parsing|from_float|parsing_size|required|attributes_type|sub_type)")
_REASONS = {
    "greater_than_equal": "must be at least {ge}",
    "greater_than": "must be more than {gt}",
    "less_than_equal": "must be at most {le}",
    "less_than": "must be less than {lt}",
    "string_too_short": "needs at least {min_length} characters",
    "string_too_long": "takes at most {max_length} characters",
    "too_short": "needs at least {min_length} entries",
    "too_long": "takes at most {max_length} entries",
    "string_pattern_mismatch": "{found} does not fit the pattern {pattern}",
    "literal_error": "{found} is not one of {expected}",
    "enum": "{found} is not one of {expected}",
    "finite_number": "must be a finite number",
}


def aliases(cls: type[Config]) -> dict[str, str]:
    """The keys of a configuration in files, with the names of the fields they fill."""
    return {info.alias or name: name for name, info in cls.model_fields.items()}


def read_config(cls: type[ConfigT], value: Any, path: Path_, findings: Findings) -> ConfigT | None:
    """The configuration at a path, or None after noting everything that is wrong with it.

    The value is a mapping in the spelling of files, nothing at all, an instance that Python code has made, or
    what the class takes as its shorthand.
    """
    if isinstance(value, cls):
        _check_secrets(value, cls, path, findings)
        return value
    content = _written_out(cls, value, path, findings)
    if content is None:
        params = {"where": place_in_words(path), "expected": "a mapping", "found": describe(value)}
        keys = ", ".join(f"`{key}`" for key in aliases(cls))
        findings.at_value("SPEC_WRONG_TYPE", path, **params, advice=f"Its keys are: {keys}." if keys else "")
        return None
    before = len(findings.problems)
    try:
        config = cls.model_validate(content, by_alias=True, by_name=False)
    except ValidationError as error:
        faulty = _note(error, cls, content, path, findings)
        _note_coerced(cls, content, _read_alone(cls, content, content.keys() - faulty), path, findings)
        return None
    except PenstockError as error:
        findings.take(error, path)
        return None
    read = {key: getattr(config, name) for key, name in aliases(cls).items() if key in content}
    _note_coerced(cls, content, read, path, findings)
    _check_secrets(config, cls, path, findings)
    return config if len(findings.problems) == before else None


def _written_out(cls: type[Config], value: Any, path: Path_, findings: Findings) -> Mapping[str, Any] | None:
    """The value as a mapping of keys, with a shorthand written out; None if it cannot be one."""
    shorthand: str | None = getattr(cls, "shorthand", None)
    is_mapping = isinstance(value, Mapping)
    if shorthand is not None and value is not None:
        info = cls.model_fields[shorthand]
        long_form = is_mapping and (not _takes_mapping(info.annotation) or set(value) <= set(aliases(cls)))
        if not long_form and not isinstance(value, Config):
            key = info.alias or shorthand
            findings.places.take_over(findings.places, path, (*path, key))
            return {key: value}
    if value is None:
        return {}
    return value if is_mapping else None


def _takes_mapping(annotation: Any) -> bool:
    if isinstance(annotation, types.UnionType) or typing.get_origin(annotation) is typing.Union:
        return any(_takes_mapping(member) for member in typing.get_args(annotation))
    origin = typing.get_origin(annotation) or annotation
    return isinstance(origin, type) and issubclass(origin, Mapping)


@dataclass(frozen=True)
class _Fault:
    """One error of pydantic, with its place in the written content rather than in the model."""

    kind: str
    path: Path_
    key: str
    found: Any
    context: Mapping[str, Any]
    text: str

    @property
    def expected(self) -> str | None:
        """The expected type in plain words, if the type is what is wrong."""
        match = _TYPE_ERROR.fullmatch(self.kind)
        return _EXPECTED.get(match[1]) if match else None


def _note(error: ValidationError, cls: type[Config], content: Any, path: Path_, findings: Findings) -> set[str]:
    """Notes all errors of pydantic; gives back the keys under which there are any."""
    faults = [_fault(item, content) for item in error.errors(include_url=False)]
    by_path: dict[Path_, list[_Fault]] = {}
    for fault in faults:
        if fault.kind == "missing":
            where = place_in_words((*path, *fault.path))
            advice = _doc_of(_class_at(cls, fault.path), fault.key)
            findings.at_key("SPEC_MISSING_KEY", (*path, *fault.path), key=fault.key, where=where, advice=advice)
        elif fault.kind == "extra_forbidden":
            note_unknown_key((*path, *fault.path), fault.key, aliases(_class_at(cls, fault.path)), findings)
        else:
            by_path.setdefault(fault.path, []).append(fault)
    for inner, group in by_path.items():
        _note_value(cls, path, inner, group, by_path, findings)
    return {str((*fault.path, fault.key)[0]) for fault in faults}


def _note_value(
    cls: type[Config], path: Path_, inner: Path_, group: list[_Fault], others: Iterable[Path_], findings: Findings
) -> None:
    """One problem for a value, although each alternative of a union has complained about it."""
    expected = list(dict.fromkeys(fault.expected for fault in group if fault.expected))
    if len(expected) == len({fault.expected for fault in group}):
        deeper = any(len(other) > len(inner) and other[: len(inner)] == inner for other in others)
        if not deeper:
            _wrong_type(cls, (*path, *inner), inner, expected, group[0].found, findings)
        return
    fault = next(fault for fault in group if not fault.expected)
    where, reason, advice = place_in_words((*path, *inner)), _reason(fault), _suggestion(fault)
    if _secret_at(cls, inner):
        reason, advice = "this value cannot be used here", ""
    findings.at_value("SPEC_BAD_VALUE", (*path, *inner), where=where, reason=reason, advice=advice)


def note_unknown_key(path: Path_, key: str, known: Iterable[str], findings: Findings) -> None:
    where = place_in_words(path)
    findings.at_key("SPEC_UNKNOWN_KEY", (*path, key), key=key, where=where, suggestion=did_you_mean(key, known))


def _wrong_type(
    cls: type[Config], path: Path_, inner: Path_, expected: list[str], found: Any, findings: Findings
) -> None:
    advice = ""
    if expected == ["text"] and isinstance(found, bool | int | float):
        advice = "Put it in quotes."
    elif isinstance(found, str) and expected in (["a whole number"], ["a number"], ["true or false"]):
        advice = "Write it without quotes."
    words = "text" if _secret_at(cls, inner) and isinstance(found, str) else describe(found)
    params = {"where": place_in_words(path), "expected": " or ".join(expected), "found": words, "advice": advice}
    findings.at_value("SPEC_WRONG_TYPE", path, **params)


def _fault(item: Mapping[str, Any], content: Any) -> _Fault:
    """Drops from pydantic's location the parts that name alternatives of a union."""
    location = list(item["loc"])
    key = str(location.pop()) if item["type"] in ("missing", "extra_forbidden") else ""
    path: list[str | int] = []
    value = content
    for part in location:
        in_list = isinstance(value, list | tuple) and isinstance(part, int) and part < len(value)
        if in_list or (isinstance(value, Mapping) and part in value):
            value = value[part]
            path.append(part)
    return _Fault(item["type"], tuple(path), key, value, item.get("ctx", {}), item["msg"])


def _reason(fault: _Fault) -> str:
    if fault.kind == "unfit":
        return str(fault.context["reason"])
    if fault.kind in ("value_error", "assertion_error"):
        return str(fault.context.get("error", fault.text))
    if fault.kind in ("string_too_short", "too_short") and fault.context.get("min_length") == 1:
        return "must not be empty"
    template = _REASONS.get(fault.kind)
    if template is None:
        return fault.text[:1].lower() + fault.text[1:].replace("Input should", "must").replace("input should", "must")
    return template.format_map({**fault.context, "found": describe(fault.found)})


def _suggestion(fault: _Fault) -> str:
    if fault.kind == "unfit":
        return str(fault.context["advice"])
    if fault.kind not in ("literal_error", "enum") or not isinstance(fault.found, str):
        return ""
    return did_you_mean(fault.found, re.findall(r"'([^']*)'", str(fault.context.get("expected", ""))))


def _note_coerced(
    cls: type[Config], content: Mapping[str, Any], read: Mapping[str, Any], path: Path_, findings: Findings
) -> None:
    """Refuses scalars that pydantic silently turns into another type, such as the text '8' into a number."""
    for key, value in read.items():
        for inner, expected, found in _coerced(content[key], value, (key,)):
            _wrong_type(cls, (*path, *inner), inner, [expected], found, findings)


def _read_alone(cls: type[Config], content: Mapping[str, Any], keys: Iterable[str]) -> dict[str, Any]:
    """The values of single fields, for a configuration that as a whole cannot be read."""
    read = {}
    for key in keys:
        annotation: Any = cls.model_fields[aliases(cls)[key]].annotation
        with suppress(ValidationError):
            read[key] = TypeAdapter(annotation).validate_python(content[key])
    return read


def _coerced(written: Any, read: Any, path: Path_ = ()) -> Iterator[tuple[Path_, str, Any]]:
    """The scalars of a value that are of another type than what was read from them."""
    if isinstance(read, Config) and isinstance(written, Mapping):
        for key, name in aliases(type(read)).items():
            if key in written:
                yield from _coerced(written[key], getattr(read, name), (*path, key))
    elif isinstance(read, Mapping) and isinstance(written, Mapping):
        for key in written.keys() & read.keys():
            yield from _coerced(written[key], read[key], (*path, key))
    elif isinstance(read, list | tuple) and isinstance(written, list | tuple):
        for index, (before, after) in enumerate(zip(written, read, strict=False)):
            yield from _coerced(before, after, (*path, index))
    elif isinstance(read, bool) and not isinstance(written, bool):
        yield path, "true or false", written
    elif type(read) is int and not (isinstance(written, int) and not isinstance(written, bool)):
        yield path, "a whole number", written
    elif type(read) is float and (isinstance(written, str | bool)):
        yield path, "a number", written


def _class_at(cls: type[Config], path: Path_) -> type[Config]:
    """The configuration class that describes the mapping at a path inside another."""
    for part in path:
        name = aliases(cls).get(str(part))
        inner = _config_in(cls.model_fields[name].annotation) if name else None
        cls = inner or cls
    return cls


def _config_in(annotation: Any) -> type[Config] | None:
    if isinstance(annotation, type) and issubclass(annotation, Config):
        return annotation
    return next((found for member in typing.get_args(annotation) if (found := _config_in(member))), None)


def _doc_of(cls: type[Config], key: str) -> str:
    name = aliases(cls).get(key)
    return (cls.model_fields[name].description or "") if name else ""


def _secret_at(cls: type[Config], path: Path_) -> bool:
    for index, part in enumerate(path):
        holder = _class_at(cls, path[:index])
        name = aliases(holder).get(str(part))
        if name is not None and is_secret(holder, name):
            return True
    return False


def _check_secrets(config: Config, cls: type[Config], path: Path_, findings: Findings) -> None:
    """Fields that are declared secret may hold references only."""
    for key, name in aliases(cls).items():
        value = getattr(config, name)
        for inner, nested in _configs(value, (*path, key)):
            _check_secrets(nested, type(nested), inner, findings)
        if is_secret(cls, name) and not isinstance(value, Config):
            for inner, text in texts(value):
                if text and not _has_reference(text):
                    full = (*path, key, *inner)
                    findings.at_value("SECRET_IN_PLAIN_TEXT", full, where=place_in_words(full))


def _configs(value: Any, path: Path_) -> Iterator[tuple[Path_, Config]]:
    """A configuration, or those that a mapping or a list holds."""
    if isinstance(value, Config):
        yield path, value
    elif isinstance(value, Mapping):
        for key, inner in value.items():
            yield from _configs(inner, (*path, str(key)))
    elif isinstance(value, list | tuple):
        for index, inner in enumerate(value):
            yield from _configs(inner, (*path, index))


def _has_reference(text: str) -> bool:
    try:
        return bool(references(text))
    except PenstockError:
        return True  # A malformed reference is reported as such.
