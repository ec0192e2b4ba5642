"""One key is written into a YAML text, and nothing else of the text changes."""

from __future__ import annotations

import difflib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.doctor.edit import CannotEdit, edited
from penstock.doctor.findings import Edit
from penstock.frontends.document import read_document


@pytest.mark.parametrize(
    ("before", "path", "after"),
    [
        # A block gets a line of its own, before what only seems to belong to it.
        ("a:\n  b: 1\nc: 2\n", ("a", "k"), "a:\n  b: 1\n  k: new\nc: 2\n"),
        ("a:\n    b: 1  # why\n\n# of c\nc: 2\n", ("a", "k"), "a:\n    b: 1  # why\n    k: new\n\n# of c\nc: 2\n"),
        ("a:\n  b:\n    c: 1\n", ("a", "k"), "a:\n  b:\n    c: 1\n  k: new\n"),
        ("a:\n  b: [1,\n    2]\n", ("a", "k"), "a:\n  b: [1,\n    2]\n  k: new\n"),
        ("a:\n  b:\n    - 1\n    - x: 2\n", ("a", "k"), "a:\n  b:\n    - 1\n    - x: 2\n  k: new\n"),
        ("a:\n- x: 1\n- y: 2\n", ("a", 0, "k"), "a:\n- x: 1\n  k: new\n- y: 2\n"),
        (
            "a:\n  b: |\n    # text\n\n    more\nc: 1\n",
            ("a", "k"),
            "a:\n  b: |\n    # text\n\n    more\n  k: new\nc: 1\n",
        ),
        ("a:\n  b: >-\n    folded\n    text\n", ("a", "k"), "a:\n  b: >-\n    folded\n    text\n  k: new\n"),
        ("a:\n  b: 'it''s'  # 'quoted'\n", ("a", "k"), "a:\n  b: 'it''s'  # 'quoted'\n  k: new\n"),
        ("a:\n  b:\n", ("a", "k"), "a:\n  b:\n  k: new\n"),
        ("a: 1", ("k",), "a: 1\nk: new\n"),
        # Braces stay braces.
        ("a: {b: 1}  # why\n", ("a", "k"), "a: {b: 1, k: new}  # why\n"),
        ("a: { b: {c: 1} }\n", ("a", "k"), "a: { b: {c: 1}, k: new }\n"),
        ("a: {b: 1,\n    c: 2,\n}\n", ("a", "k"), "a: {b: 1,\n    c: 2, k: new,\n}\n"),
        ("a: {}\nb: 1\n", ("a", "k"), "a: {k: new}\nb: 1\n"),
        # A value that is there is replaced.
        ("a: {k: null, b: 1}\n", ("a", "k"), "a: {k: new, b: 1}\n"),
        ("a:\n  k: ~ # none\n  b: 1\n", ("a", "k"), "a:\n  k: new # none\n  b: 1\n"),
        ("a:\n  k:\n  b: 1\n", ("a", "k"), "a:\n  k: new\n  b: 1\n"),
        # An anchor and its aliases stay as they are.
        ("a: &x {b: 1}\nc: *x\nd:\n  e: 2\n", ("d", "k"), "a: &x {b: 1}\nc: *x\nd:\n  e: 2\n  k: new\n"),
    ],
)
def test_a_key_is_written_where_it_belongs(before: str, path: tuple[str | int, ...], after: str) -> None:
    if 0 in path:
        with pytest.raises(CannotEdit):
            edited(before, Edit(("a", 5, "k"), "new"))

    assert edited(before, Edit(path, "new")) == after
    assert edited(after, Edit(path, "new")) == after


@pytest.mark.parametrize(
    ("before", "path"),
    [
        # It would be written into both.
        ("a: &x\n  b: 1\nc: *x\n", ("a", "k")),
        ("a: &x {b: 1}\nc: *x\n", ("c", "k")),
        # What is merged in is written elsewhere.
        ("a: &x {b: {z: 1}}\nc: {<<: *x}\n", ("c", "b", "k")),
        # The blank line is part of the text.
        ("a:\n  b: |+\n    text\n\n", ("a", "k")),
        ("a: {b: 1}\n", ("a", "b", "k")),
        ("a: {b: 1}\n", ("x", "k")),
        ("a: {k: [1]}\n", ("a", "k")),
    ],
)
def test_what_cannot_be_written_alone_is_refused(before: str, path: tuple[str, ...]) -> None:
    with pytest.raises(CannotEdit):
        edited(before, Edit(path, "new"))


_scalars = st.sampled_from(
    ["1", "x", "'q # q'", '"d\\n"', "~", "", "[1, {a: b}]", "{a: [1], b: 2}", "|\n{i}  t\n{i}  # u"]
)
_comments = st.sampled_from(["", "  # why", "\n\n", "\n# left\n"])


@given(st.lists(st.tuples(_scalars, _comments), min_size=1, max_size=6), st.data())
def test_only_the_line_of_the_key_is_new(entries: list[tuple[str, str]], data: st.DataObject) -> None:
    text = "top: 1\nspec:\n"
    for number, (value, comment) in enumerate(entries):
        ending = comment if comment.startswith("\n") or not value.startswith(("|", "[")) else ""
        text += f"  key{number}: {value.format(i='  ') if value.startswith('|') else value}{ending}\n"
    text += data.draw(st.sampled_from(["", "last: 2\n", "# end\n"]))

    changed = edited(text, Edit(("spec", "new"), "{adaptive: true}"))

    added = [line for line in difflib.ndiff(text.splitlines(), changed.splitlines()) if line[0] in "+-"]
    assert added == ["+   new: {adaptive: true}"]
    content = read_document(changed, "").content
    assert content["spec"].pop("new") == {"adaptive": True}
    assert content == read_document(text, "").content
