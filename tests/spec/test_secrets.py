from __future__ import annotations

import base64
import json
import time
from contextlib import suppress
from pathlib import Path
from urllib.parse import quote

import pytest

from penstock.access.addresses import AddressLimits
from penstock.access.limits import Access, limited
from penstock.access.paths import PathLimits
from penstock.access.secrets import SecretLimits
from penstock.errors import PenstockError
from penstock.spec import secrets
from penstock.spec.secrets import SecretRef, hide, references, resolve, texts, without_references


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


@pytest.mark.parametrize(
    "hostile", ["${secret:", "${secret:a", "${secret:env/A}", "${secret:}", "${", "$", "}", "${secret:${secret:env/"]
)
def test_the_time_to_read_a_text_grows_with_its_length_only(hostile: str) -> None:
    def seconds(size: int) -> float:
        text = hostile * (size // len(hostile))
        took = []
        for _ in range(5):
            began = time.perf_counter()
            with suppress(PenstockError):
                references(text)
            without_references(text, "x")
            took.append(time.perf_counter() - began)
        return min(took)

    # Eight times the text would take sixty-four times as long if every beginning were read to the end.
    assert seconds(800_000) < 24 * max(seconds(100_000), 0.001)


def test_a_secret_is_hidden_in_the_forms_that_drivers_and_messages_give_it(monkeypatch: pytest.MonkeyPatch) -> None:
    password = 'pa ss/w"örd+%'
    monkeypatch.setenv("PENSTOCK_TEST_URL", f"postgresql://u:{quote(password, safe='')}@h/x")
    monkeypatch.setattr(secrets, "_resolved", {})
    assert resolve("${secret:env/PENSTOCK_TEST_URL}").startswith("postgresql://")
    shown = [password, quote(password, safe=""), json.dumps(password), base64.b64encode(password.encode()).decode()]
    for text in shown:
        assert password not in hide(f"login with {text} failed")
        assert "${secret:env/PENSTOCK_TEST_URL}" in hide(f"login with {text} failed"), text


def test_a_process_with_limits_looks_up_only_what_it_may_have(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("NEWS_DB", "one")
    monkeypatch.setenv("news_db", "two")
    (tmp_path / "in").mkdir()
    (tmp_path / "key").write_text("three")
    (tmp_path / "in" / "link").symlink_to(tmp_path / "key")
    (tmp_path / "in" / "own").write_text("four")
    allowed = SecretLimits(("NEWS_*", "PENSTOCK_*"), (str(tmp_path / "in"),))
    with limited(Access(PathLimits(()), AddressLimits(()), allowed)):
        assert resolve("${secret:env/NEWS_DB}") == "one"
        assert resolve(f"${{secret:file/{tmp_path}/in/own}}") == "four"
        for reference in ("env/news_db", "env/PENSTOCK_TOKEN", f"file/{tmp_path}/in/link", f"file/{tmp_path}/key"):
            with pytest.raises(PenstockError) as raised:
                resolve(f"${{secret:{reference}}}")
            assert raised.value.code == "SECRET_NOT_ALLOWED"
