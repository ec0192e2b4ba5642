"""The files of a savepoint: what belongs to a batch, what is linked while others work, and digests that are kept."""

from __future__ import annotations

import json
import os
import zipfile
from pathlib import Path
from urllib.parse import quote

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.engine.checkpoint_cut import files_until, offsets_of, operators, watermark_after
from penstock.engine.checkpoint_paths import may_hold_paths, with_place, without_place
from penstock.engine.savepoints import trees
from penstock.engine.savepoints.trees import digest, digested, files_below, link_all, refuse_without_space
from penstock.errors import PenstockError


def write(path: Path, text: str = "x") -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, "utf-8")


def snapshot(path: Path, *ssts: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    listed = {"sstFiles": [{"localFileName": "1.sst", "dfsSstFileName": name, "sizeBytes": 1} for name in ssts]}
    with zipfile.ZipFile(path, "w") as content:
        content.writestr("metadata", f"v1\n{json.dumps(listed)}")


def state_files(checkpoint: Path, batch: int, folder: str) -> set[str]:
    found = files_until(checkpoint, batch, planned=False)
    return {name.removeprefix(f"{folder}/") for name in found if name.startswith(f"{folder}/")}


@pytest.mark.parametrize("store", ["state/0/1", "state/0/1/left-keyWithIndexToValue"])
def test_state_is_cut_to_what_one_version_is_loaded_from(tmp_path: Path, store: str) -> None:
    folder = tmp_path / store
    for version in range(1, 9):
        write(folder / f"{version}.changelog")
    write(folder / ".6.changelog.crc")
    write(folder / ".8.changelog.crc")
    write(folder / ".9.changelog.5.tmp")
    snapshot(folder / "2.zip", "old.sst")
    snapshot(folder / "5.zip", "old.sst", "new.sst")
    snapshot(folder / "8.zip", "newest.sst")
    for name in ("old", "new", "newest", "left"):
        write(folder / "SSTs" / f"{name}.sst")

    assert state_files(tmp_path, 6, store) == {
        "5.zip", "6.changelog", ".6.changelog.crc", "7.changelog", "SSTs/old.sst", "SSTs/new.sst",
    }  # fmt: skip
    assert state_files(tmp_path, 0, store) == {"1.changelog"}
    assert state_files(tmp_path, 2, store) == {"2.zip", "3.changelog", "SSTs/old.sst"}


@given(
    st.lists(st.tuples(st.integers(1, 30), st.booleans()), max_size=30, unique_by=lambda item: item[0]),
    st.integers(0, 30),
)
def test_every_version_can_be_loaded_from_its_cut(
    tmp_path_factory: pytest.TempPathFactory, made: list[tuple[int, bool]], batch: int
) -> None:
    """By the rule of Spark: the newest snapshot that is not newer, then every changelog up to the version."""
    checkpoint = tmp_path_factory.mktemp("cut")
    folder = checkpoint / "state" / "0" / "0"
    for version, with_snapshot in made:
        write(folder / f"{version}.changelog")
        if with_snapshot:
            snapshot(folder / f"{version}.zip")

    found = state_files(checkpoint, batch, "state/0/0")

    base = max((version for version, with_snapshot in made if with_snapshot and version <= batch + 1), default=0)
    wanted = {f"{version}.changelog" for version, _ in made if base < version <= batch + 1}
    assert found == wanted | ({f"{base}.zip"} if base else set())


def test_logs_end_with_the_batch_and_what_was_begun_is_kept_if_wanted(tmp_path: Path) -> None:
    for number in range(4):
        write(tmp_path / "offsets" / str(number), f'v2\n{{}}\nviews:{{"logOffset":{number}}}\nother:-')
        write(tmp_path / "offsets" / f".{number}.crc")
        if number < 3:
            write(tmp_path / "commits" / str(number), f'v1\n{{"nextBatchWatermarkMs":{number}00}}')
    write(tmp_path / "sources" / "views" / "3")
    write(tmp_path / "metadata")

    assert files_until(tmp_path, 1, planned=False) == [
        "commits/0", "commits/1", "metadata", "offsets/.0.crc", "offsets/.1.crc", "offsets/0", "offsets/1",
        "sources/views/3",
    ]  # fmt: skip
    more = set(files_until(tmp_path, 2, planned=True)) - set(files_until(tmp_path, 2, planned=False))
    assert more == {"offsets/3", "offsets/.3.crc"}
    assert offsets_of(tmp_path, 2) == {"views": {"logOffset": 2}, "other": None}
    assert watermark_after(tmp_path, 2) == 200


def test_operators_are_known_by_what_spark_calls_them(tmp_path: Path) -> None:
    about = 'v2\n{{"operatorInfo":{{"operatorId":{0},"operatorName":"{1}"}}}}'
    write(tmp_path / "state" / "10" / "_metadata" / "v2" / "0", about.format(10, "older"))
    write(tmp_path / "state" / "10" / "_metadata" / "v2" / "7", about.format(10, "newer"))
    write(tmp_path / "state" / "2" / "_metadata" / "metadata", about.format(2, "save"))

    assert [(one.id, one.kind) for one in operators(tmp_path)] == [(2, "save"), (10, "newer")]


# --- paths in it -------------------------------------------------------------------------------------------------

PATHS = st.lists(st.text("ab %#é=~'+", min_size=1, max_size=4), min_size=1, max_size=3).map(lambda p: "/" + "/".join(p))


def as_java_writes(path: str) -> str:
    """A path in a URI of Java's: letters beyond ASCII stay as they are."""
    return "".join(mark if ord(mark) > 127 else quote(mark, safe="/='~+") for mark in path)


@given(PATHS, PATHS, PATHS, PATHS)
def test_paths_below_the_state_move_with_it_and_others_stay(here: str, there: str, inside: str, outside: str) -> None:
    def text(root: str) -> str:
        encoded = as_java_writes(root + inside)
        return f'v1\n{{"path":"file://{encoded}","batchId":0}}\n{{"plain":["file:{root}{inside}"]}}\n'

    other = f'{{"path":"file:///elsewhere{quote(outside)}"}}'
    saved = without_place(text(here) + other, Path(here))

    assert f'"file://{as_java_writes(here)}/' not in saved
    assert with_place(saved, Path(there)) == text(there) + other
    assert with_place(saved, Path(here)) == text(here) + other


@pytest.mark.parametrize(
    ("path", "holds"),
    [("sources/views/0", True), ("sources/views/9.compact", True), ("sources/views/.0.crc", False),
     ("state/0/_metadata/v2/0", True), ("state/0/_metadata/metadata", True), ("state/0/0/1.changelog", False),
     ("state/0/_metadata/v2/.0.crc", False), ("offsets/3", False)],
)  # fmt: skip
def test_only_text_that_names_files_is_looked_at(path: str, holds: bool) -> None:
    assert may_hold_paths(path) is holds


# --- linking -----------------------------------------------------------------------------------------------------


def test_files_that_move_while_they_are_linked_are_there_once(tmp_path: Path) -> None:
    state, target = tmp_path / "state", tmp_path / "target"
    for name in ("late/a", "late/b"):
        write(state / name, name)
    looked = 0

    def listed() -> list[str]:
        nonlocal looked
        found = files_below(state)
        looked += 1
        if looked == 1:
            (state / "replay").mkdir()
            (state / "late" / "a").rename(state / "replay" / "a")
        return found

    assert link_all(state, listed, target) == ["late/b", "replay/a"]
    assert sorted(files_below(target)) == ["late/b", "replay/a"]
    assert (target / "replay" / "a").samefile(state / "replay" / "a")


def test_files_that_never_stop_changing_are_given_up(tmp_path: Path) -> None:
    number = iter(range(1000))

    def listed() -> list[str]:
        write(tmp_path / "state" / f"{next(number)}")
        return files_below(tmp_path / "state")

    with pytest.raises(PenstockError) as raised:
        link_all(tmp_path / "state", listed, tmp_path / "target")
    assert raised.value.code == "SAVEPOINT_FAILED"


def test_digests_of_files_that_are_the_same_are_not_computed_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    state, first, second = tmp_path / "state", tmp_path / "first", tmp_path / "second"
    for name in ("same", "replaced"):
        write(state / name, name)
    link_all(state, lambda: files_below(state), first)
    before = digested(first, ["same", "replaced"], {}, None)
    (state / "replaced").unlink()
    write(state / "replaced", "REPLACED")
    write(state / "new", "new")
    link_all(state, lambda: files_below(state), second)
    read: list[str] = []

    def watched(path: Path) -> str:
        read.append(path.name)
        return digest(path)

    monkeypatch.setattr(trees, "digest", watched)

    after = digested(second, files_below(second), {file.path: file for file in before}, first)

    assert sorted(read) == ["new", "replaced"]
    assert {file.path: file.sha256 for file in after} == {name: digest(state / name) for name in os.listdir(state)}


def test_what_does_not_fit_is_refused_before_it_is_copied(tmp_path: Path) -> None:
    refuse_without_space(tmp_path / "not" / "there" / "yet", 1)
    with pytest.raises(PenstockError) as raised:
        refuse_without_space(tmp_path / "not" / "there" / "yet", 1 << 60)
    assert raised.value.code == "SAVEPOINT_NO_SPACE"
    assert "1,152,921,504,606,846,976 bytes" in raised.value.problems[0].message
