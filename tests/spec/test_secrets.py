from __future__ import annotations

from pathlib import Path

import pytest

from penstock.errors import PenstockError
from penstock.spec.secrets import SecretRef, references, resolve, texts


def test_references_are_found_in_order() -> None:
    assert references("a ${secret:env/A} b ${secret:file/x/y}") == [SecretRef("env", "A"), SecretRef("file", "x/y")]
    assert references("no $ {secret} here") == []


def test_values_come_from_the_environment_and_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PENSTOCK_TEST_SECRET", "one")
    (tmp_path / "key").write_text("two\n")
    assert resolve(f"${{secret:env/PENSTOCK_TEST_SECRET}}-${{secret:file/{tmp_path}/key}}") == "one-two"


def test_a_secret_that_is_not_set_says_who_must_act() -> None:
    with pytest.raises(PenstockError) as raised:
        resolve("${secret:env/PENSTOCK_TEST_NOT_SET}")
    assert (raised.value.code, raised.value.problems[0].definition.owner) == ("SECRET_NOT_SET", "operator")


def test_a_malformed_reference_does_not_show_the_text_around_it() -> None:
    with pytest.raises(PenstockError) as raised:
        references("postgres://me:hunter2@${secret:env/HOST")
    assert raised.value.code == "SECRET_SYNTAX"
    assert "hunter2" not in str(raised.value)


def test_texts_are_found_at_any_depth() -> None:
    assert list(texts({"a": ["x", {"b": "y"}], "c": 5})) == [(("a", 0), "x"), (("a", 1, "b"), "y")]
