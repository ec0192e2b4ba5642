"""Savepoints in an object store, with a real one; the state folder is written by hand, so nothing here starts Spark."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import TYPE_CHECKING

import obstore
import pytest
from tests.engine.savepoints.made import Made, made
from typer.testing import CliRunner

from penstock.cli.main import app
from penstock.components.shared.s3 import store
from penstock.engine.savepoints.pins import Pins
from penstock.engine.savepoints.places import found_in
from penstock.engine.savepoints.shelf import Shelf, shelf_of
from penstock.engine.savepoints.take import Wish
from penstock.engine.savepoints.trees import digest, files_below
from penstock.engine.statedir import StateDir
from penstock.errors import PenstockError
from penstock.runner.distant import discard_at, found_at, look, restore_from, take_to, verify_at

if TYPE_CHECKING:
    from tests.servers.s3 import S3


@pytest.fixture
def pipeline(tmp_path: Path) -> Made:
    return made(tmp_path / "here")


@pytest.fixture
def address(s3: S3, s3_bucket: str, monkeypatch: pytest.MonkeyPatch) -> str:
    """Where savepoints go."""
    monkeypatch.setenv("AWS_ENDPOINT_URL", s3.endpoint)
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", s3.access_key)
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", s3.secret_key)
    return f"s3://{s3_bucket}/saved/demo"


def everything(folder: Path) -> dict[str, str]:
    """All files of a folder but locks and notes of who was there, with their digests."""
    left_out = ("lock", "pipeline.json", "savepoints/", "logs/", ".lock")
    return {name: digest(folder / name) for name in files_below(folder) if not name.startswith(left_out)}


def refused(code: str, work: object) -> PenstockError:
    assert callable(work)
    with pytest.raises(PenstockError) as raised:
        work()
    assert raised.value.code == code
    return raised.value


def test_one_is_moved_there_listed_verified_restored_and_removed(
    pipeline: Made, address: str, s3: S3, s3_bucket: str, tmp_path: Path
) -> None:
    at = f"{address}/one"
    savepoint, place = take_to(pipeline.file, pipeline.state, Wish(note="away"), at)

    assert (savepoint.name, savepoint.batch, place) == ("one", 2, at)
    assert found_in(pipeline.state) == []
    assert {name: pin.stage for name, pin in Pins(pipeline.state).all().items()} == {"one": "taken"}
    assert look(at, None) == (savepoint, at)
    assert [(one.name, one.place) for one in found_at(address, None)] == [("one", at)]
    assert verify_at(at, None)[2] == []
    wanted = everything(pipeline.state)

    elsewhere = made(tmp_path / "there")
    shutil.rmtree(elsewhere.state)
    found, _ = restore_from(elsewhere.file, elsewhere.state, at)

    assert found == savepoint
    put_back = everything(elsewhere.state)
    assert {name: put_back.get(name) for name in wanted if name.startswith(("spool/", "checkpoint/commits"))} == {
        name: sha for name, sha in wanted.items() if name.startswith(("spool/", "checkpoint/commits"))
    }
    assert [item.name for item in (tmp_path / "there" / ".penstock").iterdir()] == ["demo"]

    assert discard_at(at, pipeline.state) == "one"
    assert s3.files(s3_bucket) == []
    assert {name: pin.stage for name, pin in Pins(pipeline.state).all().items()} == {"one": "released"}
    refused("SAVEPOINT_UNKNOWN", lambda: look(at, None))


def test_what_the_last_one_has_is_copied_within_the_store(pipeline: Made, address: str, s3: S3, s3_bucket: str) -> None:
    take_to(pipeline.file, pipeline.state, Wish(), f"{address}/one")
    asked = len(s3.requests(s3_bucket))
    pipeline.add_batch()
    savepoint, at = take_to(pipeline.file, pipeline.state, Wish(), f"{address}/two")

    later = [(what, key) for what, key, status in s3.requests(s3_bucket)[asked:] if status == "200"]
    copied = {key.split("/two/")[1] for what, key in later if what == "CopyObject"}
    put = {key.split("/two/")[1] for what, key in later if what == "PutObject" and "/two/" in key}
    assert {"checkpoint/state/0/0/1.changelog", "spool/views/000000000.json"} <= copied
    assert {"checkpoint/state/0/0/4.changelog", "spool/views/000000003.json", "savepoint.json"} <= put
    assert not copied & put
    assert copied | put >= {file.path for file in savepoint.files}
    assert verify_at(at, None)[2] == []
    discard_at(f"{address}/one", pipeline.state)
    assert verify_at(at, None)[2] == []


def test_a_damaged_one_is_named_and_not_restored(pipeline: Made, address: str, tmp_path: Path) -> None:
    _, at = take_to(pipeline.file, pipeline.state, Wish(), f"{address}/one")
    shelf, _ = shelf_of(at)
    changed = "checkpoint/state/0/0/2.changelog"
    obstore.put(store(shelf._access), f"one/{changed}", b"another")
    obstore.delete(store(shelf._access), ["one/spool/views/000000001.json"])

    damages = {damage.file: damage.reason for damage in verify_at(at, None)[2]}
    assert damages == {changed: "has another content", "spool/views/000000001.json": "is missing"}
    elsewhere = made(tmp_path / "there", batches=1)
    before = everything(elsewhere.state)
    error = refused("SAVEPOINT_DAMAGED", lambda: restore_from(elsewhere.file, elsewhere.state, at))
    assert changed in str(error)
    assert everything(elsewhere.state) == before
    assert [item.name for item in elsewhere.state.parent.iterdir()] == ["demo"]


def test_bad_requests_change_nothing(pipeline: Made, address: str, s3: S3, s3_bucket: str, tmp_path: Path) -> None:
    other = made(tmp_path / "other", "other")
    take_to(pipeline.file, pipeline.state, Wish(), f"{address}/one")
    stored = s3.files(s3_bucket)

    refused("SAVEPOINT_EXISTS", lambda: take_to(pipeline.file, pipeline.state, Wish(), f"{address}/one"))
    refused("SAVEPOINT_EXISTS", lambda: take_to(pipeline.file, pipeline.state, Wish(), f"{address}"))
    refused("SAVEPOINT_NAME", lambda: take_to(pipeline.file, pipeline.state, Wish(), f"{address}/.hidden"))
    refused("USAGE", lambda: take_to(pipeline.file, pipeline.state, Wish("two"), f"{address}/three"))
    refused("USAGE", lambda: take_to(pipeline.file, pipeline.state, Wish(), "s3://UPPER/x"))
    refused("SAVEPOINT_UNKNOWN", lambda: look(f"{address}/two", None))
    refused("SAVEPOINT_UNKNOWN", lambda: discard_at(f"{address}/two", pipeline.state))
    refused("SAVEPOINT_UNKNOWN", lambda: discard_at(address, pipeline.state))
    refused("SAVEPOINT_OF_ANOTHER_PIPELINE", lambda: restore_from(other.file, other.state, f"{address}/one"))
    with StateDir(pipeline.state, "demo"):
        refused("STATE_IN_USE", lambda: restore_from(pipeline.file, pipeline.state, f"{address}/one"))
    refused("SAVEPOINT_STORE", lambda: take_to(pipeline.file, pipeline.state, Wish(), "s3://no-such-bucket/a/b"))

    assert found_in(pipeline.state) == []
    assert s3.files(s3_bucket) == stored


def test_a_store_that_fails_half_way_leaves_nothing(
    pipeline: Made, address: str, s3: S3, s3_bucket: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    put = Shelf._upload

    def failing(self: Shelf, file: Path, target: str) -> None:
        if target.endswith("000000002.json"):
            raise PenstockError.of("SAVEPOINT_STORE", path=target, reason="out of order")
        put(self, file, target)

    monkeypatch.setattr(Shelf, "_upload", failing)
    refused("SAVEPOINT_STORE", lambda: take_to(pipeline.file, pipeline.state, Wish(), f"{address}/one"))
    assert s3.files(s3_bucket) == []
    assert found_in(pipeline.state) == []


def test_what_someone_who_died_has_left_makes_room(
    pipeline: Made, address: str, s3: S3, s3_bucket: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Files without a manifest are no savepoint; taking or removing one by that name clears them away."""
    shelf, _ = shelf_of(f"{address}/one")
    obstore.put(store(shelf._access), "one/unfinished.json", b"{}")
    obstore.put(store(shelf._access), "one/spool/left.json", b"left")
    assert found_at(address, None) == []
    refused("SAVEPOINT_UNKNOWN", lambda: look(f"{address}/one", None))

    savepoint, _ = take_to(pipeline.file, pipeline.state, Wish(), f"{address}/one")

    assert sorted(s3.files(s3_bucket)) == sorted(
        f"saved/demo/one/{path}" for path in ["savepoint.json", *(file.path for file in savepoint.files)]
    )
    obstore.put(store(shelf._access), "two/unfinished.json", b"{}")
    obstore.put(store(shelf._access), "two/spool/left.json", b"left")
    discard_at(f"{address}/two", pipeline.state)
    assert not [file for file in s3.files(s3_bucket) if "/two/" in file]


def test_the_commands_take_addresses(pipeline: Made, address: str) -> None:
    def said(*arguments: object) -> str:
        result = CliRunner().invoke(app, [str(one) for one in arguments])
        if result.exception is not None and not isinstance(result.exception, SystemExit):
            raise result.exception
        return result.output

    at = f"{address}/one"
    assert at in said("savepoint", "create", pipeline.path, "--to", at)
    assert json.loads(said("savepoint", "show", at, "-o", "json"))["folder"] == at
    assert [one["name"] for one in json.loads(said("savepoint", "list", "--at", address, "-o", "json"))] == ["one"]
    assert "all as they were" in said("savepoint", "verify", at)
    assert json.loads(said("plan", pipeline.path, "--against", at, "-o", "json"))["changes"] == []
    said("savepoint", "create", pipeline.path, "--name", "local")
    assert json.loads(said("savepoint", "diff", at, "local", pipeline.path, "-o", "json"))["same_lineage"] is True
    assert "goes on after batch 2" in said("savepoint", "restore", at, pipeline.path)
    assert "deleted one" in said("savepoint", "delete", at, pipeline.path)
