"""The state folder belongs to one pipeline, is used by one run at a time, and notices when it was tampered with."""

from __future__ import annotations

import errno
import json
import os
import subprocess
import sys
import threading
from contextlib import suppress
from dataclasses import asdict
from pathlib import Path

import pytest

from penstock.engine.statedir import Identity, StateDir, read_identity, refuse_foreign, storage_error
from penstock.errors import PenstockError


def refusal(path: Path, name: str = "demo") -> PenstockError:
    with pytest.raises(PenstockError) as raised, StateDir(path, name):
        pass
    return raised.value


def bound(path: Path, query_id: str = "q1") -> None:
    """A state folder whose checkpoint belongs to that query."""
    with StateDir(path, "demo") as state:
        state.checkpoint.mkdir()
        (state.checkpoint / "metadata").write_text(json.dumps({"id": query_id}))
        state.bind(query_id)


def test_each_run_counts_the_epoch_up_and_keeps_the_lineage(tmp_path: Path) -> None:
    identities = []
    for _ in range(3):
        with StateDir(tmp_path / "s", "demo") as state:
            identities.append(state.identity)
    assert [identity.epoch for identity in identities] == [1, 2, 3]
    assert len({identity.lineage for identity in identities}) == 1


def test_two_state_folders_have_different_lineages(tmp_path: Path) -> None:
    with StateDir(tmp_path / "a", "demo") as first, StateDir(tmp_path / "b", "demo") as second:
        assert first.identity.lineage != second.identity.lineage


def test_a_folder_in_use_is_refused_and_the_holder_is_named(tmp_path: Path) -> None:
    with StateDir(tmp_path, "demo"):
        error = refusal(tmp_path)
    assert error.code == "STATE_IN_USE"
    assert error.problems[0].params["pid"] == str(os.getpid())


def test_a_refused_run_leaves_the_epoch_as_it_was(tmp_path: Path) -> None:
    with StateDir(tmp_path, "demo"):
        refusal(tmp_path)
    assert read_identity(tmp_path) is not None
    with StateDir(tmp_path, "demo") as state:
        assert state.identity.epoch == 2


def test_the_lock_is_free_again_when_its_process_was_killed(tmp_path: Path) -> None:
    program = (
        "import os, sys; from pathlib import Path; from penstock.engine.statedir import StateDir;"
        "StateDir(Path(sys.argv[1]), 'demo'); os.kill(os.getpid(), 9)"
    )
    killed = subprocess.run([sys.executable, "-c", program, str(tmp_path)], check=False)
    assert killed.returncode == -9
    with StateDir(tmp_path, "demo") as state:
        assert state.identity.epoch == 2


def test_state_of_another_pipeline_is_refused_and_left_alone(tmp_path: Path) -> None:
    with StateDir(tmp_path, "other"):
        pass
    before = read_identity(tmp_path)
    error = refusal(tmp_path, "demo")
    assert error.code == "STATE_OF_ANOTHER_PIPELINE"
    assert error.problems[0].params["found"] == "other"
    assert read_identity(tmp_path) == before


def test_a_checkpoint_that_is_not_ours_is_refused(tmp_path: Path) -> None:
    (tmp_path / "checkpoint").mkdir()
    (tmp_path / "checkpoint" / "metadata").write_text('{"id":"x"}')
    assert refusal(tmp_path).code == "STATE_OF_ANOTHER_PIPELINE"


def test_a_swapped_checkpoint_is_noticed(tmp_path: Path) -> None:
    bound(tmp_path)
    (tmp_path / "checkpoint" / "metadata").write_text('{"id":"q2"}')
    assert refusal(tmp_path).code == "STATE_OF_ANOTHER_PIPELINE"


def test_binding_to_a_second_query_is_refused(tmp_path: Path) -> None:
    bound(tmp_path)
    with StateDir(tmp_path, "demo") as state:
        with pytest.raises(PenstockError) as raised:
            state.bind("q2")
        assert raised.value.code == "STATE_OF_ANOTHER_PIPELINE"
        assert state.identity.query_id == "q1"


@pytest.mark.parametrize("content", ["", "{", "[]", '{"name": "demo"}', "\x00\x01", '"text"'])
def test_an_identity_that_cannot_be_read_is_named(tmp_path: Path, content: str) -> None:
    (tmp_path / "pipeline.json").write_text(content)
    error = refusal(tmp_path)
    assert error.code == "STATE_UNREADABLE"
    assert error.problems[0].params["path"] == tmp_path / "pipeline.json"
    assert (tmp_path / "pipeline.json").read_text() == content


@pytest.mark.parametrize("content", ["", "{", "[]", "{}"])
def test_checkpoint_metadata_that_cannot_be_read_is_named(tmp_path: Path, content: str) -> None:
    bound(tmp_path)
    (tmp_path / "checkpoint" / "metadata").write_text(content)
    error = refusal(tmp_path)
    assert error.code == "STATE_UNREADABLE"
    assert error.problems[0].params["path"] == tmp_path / "checkpoint" / "metadata"


@pytest.mark.parametrize("lost", ["metadata", ""])
def test_a_checkpoint_that_is_missing_is_named(tmp_path: Path, lost: str) -> None:
    bound(tmp_path)
    (tmp_path / "checkpoint" / lost).rename(tmp_path / "elsewhere")
    error = refusal(tmp_path)
    assert (error.code, error.problems[0].params["path"]) == ("STATE_UNREADABLE", tmp_path / "checkpoint" / "metadata")


def test_an_empty_folder_is_nobodys(tmp_path: Path) -> None:
    refuse_foreign(tmp_path, "demo")
    assert read_identity(tmp_path) is None
    assert list(tmp_path.iterdir()) == []


def test_a_file_in_place_of_the_folder_is_refused(tmp_path: Path) -> None:
    (tmp_path / "state").write_text("")
    assert refusal(tmp_path / "state").code == "PATH_NOT_WRITABLE"


def test_the_identity_is_written_whole(tmp_path: Path) -> None:
    with StateDir(tmp_path, "demo") as state:
        state.bind("q1")
        assert read_identity(tmp_path) == state.identity == Identity("demo", state.identity.lineage, 1, "q1")
    assert sorted(item.name for item in tmp_path.iterdir()) == ["lock", "pipeline.json"]


def test_a_full_disk_and_a_forbidden_one_are_told_apart(tmp_path: Path) -> None:
    assert storage_error(OSError(errno.ENOSPC, "full"), tmp_path).code == "DISK_FULL"
    forbidden = storage_error(OSError(errno.EACCES, "Permission denied"), tmp_path)
    assert (forbidden.code, forbidden.problems[0].params["reason"]) == ("PATH_NOT_WRITABLE", "Permission denied")


# --- the lease ---------------------------------------------------------------------------------------------


def test_a_held_folder_is_taken_over_only_by_who_says_so(tmp_path: Path) -> None:
    with StateDir(tmp_path, "demo") as older:
        assert refusal(tmp_path).code == "STATE_IN_USE"
        with StateDir(tmp_path, "demo", take_over=True) as newer:
            assert (older.identity.epoch, newer.identity.epoch) == (1, 2)
            assert (older.overtaken, newer.overtaken) == (True, False)
            with pytest.raises(PenstockError) as raised:
                older.refuse_overtaken()
            assert (raised.value.code, raised.value.problems[0].params["newer"]) == ("FENCED", 2)
            newer.refuse_overtaken()
            assert refusal(tmp_path).code == "STATE_IN_USE"


def test_a_run_that_was_overtaken_cannot_change_whose_the_state_is(tmp_path: Path) -> None:
    with StateDir(tmp_path, "demo") as older, StateDir(tmp_path, "demo", take_over=True) as newer:
        for change in (lambda: older.bind("q1"), lambda: older.settle_buckets(4)):
            with pytest.raises(PenstockError) as raised:
                change()
            assert raised.value.code == "FENCED"
        assert read_identity(tmp_path) == newer.identity


def test_epochs_go_on_after_a_take_over_even_if_the_older_run_wrote_its_own_once_more(tmp_path: Path) -> None:
    with StateDir(tmp_path, "demo") as older:
        with StateDir(tmp_path, "demo", take_over=True) as newer:
            # As if it had been stopped between looking and writing.
            (tmp_path / "pipeline.json").write_text(json.dumps(asdict(older.identity)))
        assert older.overtaken
        with StateDir(tmp_path, "demo") as third:
            assert third.identity.epoch == newer.identity.epoch + 1
    with StateDir(tmp_path, "demo") as fourth:
        assert fourth.identity.epoch == 4


def test_taking_over_a_folder_that_nobody_holds_is_opening_it(tmp_path: Path) -> None:
    with StateDir(tmp_path, "demo", take_over=True) as state:
        assert state.identity.epoch == 1
    assert sorted(item.name for item in tmp_path.iterdir()) == ["lock", "pipeline.json"]


def test_of_many_that_take_over_at_once_one_has_it_and_no_two_have_the_same_epoch(tmp_path: Path) -> None:
    with StateDir(tmp_path, "demo"):
        found: list[StateDir] = []
        gate = threading.Barrier(8)

        def take() -> None:
            gate.wait()
            with suppress(PenstockError):
                found.append(StateDir(tmp_path, "demo", take_over=True))

        threads = [threading.Thread(target=take) for _ in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        epochs = [state.identity.epoch for state in found]
        assert len(set(epochs)) == len(epochs)
        assert [state.overtaken for state in found].count(False) == 1
        for state in found:
            state.close()
