from __future__ import annotations

import math
from pathlib import Path
from textwrap import dedent
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.frontends.reading import places_of, problems_of

from penstock.errors import Location, PenstockError
from penstock.frontends.document import Document, read_document, read_text


def document(text: str) -> Document:
    return read_document(dedent(text).lstrip("\n"), "f.yaml")


def at(line: int, column: int) -> Location:
    return Location("f.yaml", line, column)


def test_every_key_and_value_has_its_place() -> None:
    places = document("""
        name: demo
        spec:
          list: [a, {b: 1}]
    """).places
    assert places.of_key("name") == at(1, 1)
    assert places.of("name") == at(1, 7)
    assert places.of_key("spec", "list") == at(3, 3)
    assert places.of("spec", "list", 0) == at(3, 10)
    assert places.of_key("spec", "list", 1, "b") == at(3, 14)
    assert places.of("spec", "list", 1, "b") == at(3, 17)


def test_a_value_that_is_not_written_has_the_place_of_its_key() -> None:
    assert document("a:\nb: 1\n").places.of("a") == at(1, 1)


@pytest.mark.parametrize(
    ("written", "value"),
    [
        ("5", 5), ("-3", -3), ("+7", 7), ("0o17", 15), ("0x1F", 31), ("007", 7), ("1_000", "1_000"),
        ("1.5", 1.5), (".5", 0.5), ("1e3", 1000.0), ("-.inf", -math.inf), ("1.", 1.0),
        ("true", True), ("False", False), ("yes", "yes"), ("on", "on"), ("off", "off"),
        ("null", None), ("~", None), ("", None), ("'5'", "5"), ('"true"', "true"), ("!!str 5", "5"),
        ("2024-01-01", "2024-01-01"), ("2024-01-01T00:00:00Z", "2024-01-01T00:00:00Z"), ("12:30", "12:30"),
    ],
)  # fmt: skip
def test_scalars_follow_the_core_schema_and_dates_stay_text(written: str, value: Any) -> None:
    found = document(f"a: {written}\n").content["a"]
    assert found == value
    assert type(found) is type(value)


def test_not_a_number_is_a_float() -> None:
    assert math.isnan(document("a: .nan\n").content["a"])


def test_keys_are_text_as_written() -> None:
    assert document("{on: 1, 2: x, null: y}\n").content == {"on": 1, "2": "x", "null": "y"}


def test_the_place_of_a_block_is_its_first_line_of_text() -> None:
    found = document("""
        steps:
          sql: |-
            SELECT *
              FROM views
    """)
    assert found.content["steps"]["sql"] == "SELECT *\n  FROM views"
    assert found.places.of("steps", "sql") == at(3, 5)
    assert ("steps", "sql") in found.places.block_texts
    assert found.places.inside_text(1, 7, "steps", "sql") == at(3, 12)
    assert found.places.inside_text(2, 7, "steps", "sql") == at(4, 12)


def test_a_block_may_be_indented_by_its_indicator_and_commented() -> None:
    found = document("a:\n  b: |2 # why\n      SELECT 1\n    FROM x\n")
    assert found.content["a"]["b"] == "  SELECT 1\nFROM x\n"
    assert found.places.inside_text(1, 2, "a", "b") == at(3, 7)
    assert found.places.inside_text(2, 5, "a", "b") == at(4, 10)


@pytest.mark.parametrize(
    ("written", "text", "position", "place"),
    [
        ("a: SELECT x\n  FROM views\n", "SELECT x FROM views", (1, 14), (2, 8)),
        ("a: >\n  SELECT x\n  FROM views\n\n  WHERE y\n", "SELECT x FROM views\nWHERE y\n", (2, 6), (5, 9)),
        ("a: 'SELECT x\n  FROM views'\n", "SELECT x FROM views", (1, 14), (2, 8)),
        ("a: 'SELECT x'\n", "SELECT x", (1, 7), (1, 12)),
        ('a: "SELECT x FROM \\"v\\""\n', 'SELECT x FROM "v"', (1, 7), (1, 12)),
        ("a: SELECT x\n", "SELECT x", (1, 7), (1, 11)),
    ],
)
def test_positions_inside_folded_and_quoted_text_are_found_in_the_file(
    written: str, text: str, position: tuple[int, int], place: tuple[int, int]
) -> None:
    found = document(written)
    assert found.content["a"] == text
    assert found.places.inside_text(*position, "a") == at(*place)


def test_aliases_repeat_what_was_anchored_and_point_to_it() -> None:
    found = document("a: &x {p: 1}\nb: *x\n")
    assert found.content == {"a": {"p": 1}, "b": {"p": 1}}
    assert found.places.of("b", "p") == at(1, 11)


def test_a_merge_adds_what_is_not_written_beside_it() -> None:
    found = document("""
        base: &base {p: 1, q: 2}
        more: &more {q: 3, r: 4}
        both:
          <<: [*base, *more]
          p: 9
    """)
    assert found.content["both"] == {"p": 9, "q": 2, "r": 4}
    assert found.places.of("both", "p") == at(5, 6)
    assert found.places.of_key("both", "r") == at(2, 20)
    assert found.problems == ()


def test_a_repeated_name_is_noted_and_reading_goes_on() -> None:
    found = document("""
        spec:
          sources:
            a: 1
            a: 2
          run: {x: 1, x: 2}
    """)
    assert found.content == {"spec": {"sources": {"a": 1}, "run": {"x": 1}}}
    assert places_of(list(found.problems)) == [("SPEC_DUPLICATE_NAME", 4, 5), ("SPEC_DUPLICATE_KEY", 5, 15)]
    assert found.problems[0].params["first"] == at(3, 5)
    assert found.problems[1].params["first"] == at(5, 9)


@pytest.mark.parametrize(
    ("text", "place", "advice"),
    [
        ("a:\n\tb: 1\n", (2, 1), "spaces"),
        ("a: b: c\n", (1, 5), "quotes"),
        ("a: {b: 1\nc: 2\n", (1, 4), "`}`"),
        ("a: [1, 2\nc: 2\n", (1, 4), "`]`"),
        ("a: 'x\nb: 2\n", (1, 4), "'"),
        ("a: *\n", (1, 4), "quotes"),
        ("a: *nope\n", (1, 4), "quotes"),
        ("a: @x\n", (1, 4), "quotes"),
        ("a: `x`\n", (1, 4), "quotes"),
        ("a: }\n", (1, 4), "quotes"),
        ("a: 1\n---\nb: 2\n", (2, 1), "one pipeline"),
        ('a: "\\q"\n', (1, 6), "single quotes"),
        ("a: |x\n  y\n", (1, 5), "next line"),
        ("- a\nb: 1\n", (2, 1), "indentation"),
        ("  a: 1\nb: 2\n", (2, 1), "indentation"),
        ("a: - b\n", (1, 4), "line of its own"),
        ("a: 1\nb: \x01\n", (2, 4), "control character"),
        ("a: &x [*x]\n", (1, 4), "Write the repeated part out"),
    ],
)
def test_syntax_errors_have_a_place_and_say_what_to_do(text: str, place: tuple[int, int], advice: str) -> None:
    (problem,) = problems_of(read_document, text, "f.yaml")
    assert (problem.code, problem.location) == ("YAML_SYNTAX", at(*place))
    assert advice in problem.hint


def test_brackets_without_end_are_a_syntax_error() -> None:
    assert [problem.code for problem in problems_of(read_document, "[" * 5000, "f.yaml")] == ["YAML_SYNTAX"]


def test_aliases_of_aliases_cannot_grow_without_end() -> None:
    lines = ["a0: &a0 [x, x, x, x, x, x, x, x, x]"]
    lines += [f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 9)}]" for n in range(1, 9)]
    (problem,) = problems_of(read_document, "\n".join(lines), "f.yaml")
    assert (problem.code, problem.params["reason"]) == ("YAML_SYNTAX", "too many values")


@pytest.mark.parametrize("text", ["", "\n\n", "# only a comment\n", "---\n"])
def test_a_file_without_content_is_empty(text: str) -> None:
    assert [problem.code for problem in problems_of(read_document, text, "f.yaml")] == ["FILE_EMPTY"]


@pytest.mark.parametrize(("text", "found"), [("- a\n", "a list"), ("hello\n", "the text 'hello'")])
def test_a_document_is_a_mapping(text: str, found: str) -> None:
    (problem,) = problems_of(read_document, text, "f.yaml")
    assert (problem.code, problem.params["found"], problem.location) == ("SPEC_WRONG_TYPE", found, at(1, 1))


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("a: !thing x\n", ("SPEC_BAD_VALUE", 1, 4)),
        ("a: {{x}: 1}\n", ("SPEC_WRONG_TYPE", 1, 5)),
        ("a: {<<: 5}\n", ("SPEC_WRONG_TYPE", 1, 9)),
        ('a: {b: "\\ud83d"}\n', ("SPEC_BAD_VALUE", 1, 8)),
        ('a: {"\\ude00b": 1}\n', ("SPEC_BAD_VALUE", 1, 5)),
    ],
)
def test_what_plain_data_cannot_hold_is_noted(text: str, expected: tuple[str, int, int]) -> None:
    assert places_of(list(document(text).problems)) == [expected]


def test_windows_line_ends_do_not_move_places() -> None:
    found = read_document("a: 1\r\nb: |\r\n  x\r\n  y\r\n", "f.yaml")
    assert found.content == {"a": 1, "b": "x\ny\n"}
    assert found.places.inside_text(2, 0, "b") == at(4, 3)


def test_a_file_that_is_not_utf8_is_unreadable(tmp_path: Path) -> None:
    file = tmp_path / "p.yaml"
    file.write_bytes(b"a: \xff\n")
    (problem,) = problems_of(read_text, file)
    assert (problem.code, problem.params["reason"]) == ("FILE_UNREADABLE", "byte 4 is not UTF-8")


def test_a_byte_order_mark_is_no_text(tmp_path: Path) -> None:
    file = tmp_path / "p.yaml"
    file.write_bytes(b"\xef\xbb\xbfa: 1\n")
    assert read_document(read_text(file), "f.yaml").places.of("a") == at(1, 4)


@given(st.text(max_size=60))
def test_any_text_is_read_or_refused_with_a_code(text: str) -> None:
    try:
        outcome = type(read_document(text, "f.yaml").content).__name__
    except PenstockError as error:
        outcome = error.code
    assert outcome in {"dict", "YAML_SYNTAX", "FILE_EMPTY", "SPEC_WRONG_TYPE"}
