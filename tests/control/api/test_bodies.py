"""Bodies of requests are parsed within bounds."""

from __future__ import annotations

import json

import pytest
from fastapi.exceptions import RequestValidationError

from penstock.control.api.bodies import parse
from penstock.errors import PenstockError


@pytest.mark.parametrize(
    "value", [{}, [], {"files": [{"path": "a", "text": '"\\\\", [[{{,,'}]}, "ä\U0001f600", [1, 2.5, None, True]]
)
def test_what_json_says_is_read(value: object) -> None:
    assert parse(json.dumps(value).encode()) == value
    assert parse(json.dumps(value, ensure_ascii=False).encode()) == value


@pytest.mark.parametrize("name", ["NaN", "Infinity", "-Infinity", "[NaN]", "1" * 5_000, "[" * 15_000, "{", '"', "\xff"])
def test_what_is_no_json_is_refused(name: str) -> None:
    with pytest.raises(RequestValidationError):
        parse(name.encode("latin-1"))


@pytest.mark.parametrize("text", ['"\\ud800"', '{"\\uDFFF": 1}', '[[{"a": ["\\udc00"]}]]'])
def test_half_characters_are_refused(text: str) -> None:
    with pytest.raises(PenstockError) as caught:
        parse(text.encode())
    assert caught.value.code == "REQUEST_INVALID"


@pytest.mark.parametrize("part", ["[],", '"a",', '{"a":1},', "0,", '"\\\\",', '"\\"",', "["])
def test_more_values_than_a_request_needs_are_refused_before_they_are_parsed(
    part: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def parses(*_: object, **__: object) -> None:
        raise AssertionError("it was parsed")

    monkeypatch.setattr(json, "loads", parses)
    with pytest.raises(PenstockError) as caught:
        parse(("[" + part * (4_000_000 // len(part))).encode())
    assert caught.value.code == "REQUEST_INVALID"


def test_commas_and_brackets_in_a_text_are_not_values() -> None:
    text = '[{,"\\' * 100_000
    assert parse(json.dumps([text]).encode()) == [text]
