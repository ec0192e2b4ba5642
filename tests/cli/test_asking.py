"""How commands ask a server, and how they show what it answers; no server is needed for that."""

from __future__ import annotations

import datetime as dt
import io
import re
from pathlib import Path
from typing import Any

import httpx
import pytest
from rich.console import Console

from penstock.cli import listing
from penstock.cli.client import Client, part, told
from penstock.cli.files import collected, labels_in, request
from penstock.cli.get import COLUMNS, NARROW, rows_of
from penstock.cli.listing import behind, clock, print_table, span
from penstock.cli.outage import Outage
from penstock.cli.plan import done, print_plan
from penstock.cli.steer import runs, stands
from penstock.errors import PenstockError

NOW = dt.datetime(2026, 3, 1, 12, 0, tzinfo=dt.UTC)


def answering(answer: httpx.Response) -> Client:
    client = Client("http://127.0.0.1:1", "pst_x")
    client._http = httpx.Client(base_url=client.url, transport=httpx.MockTransport(lambda _: answer))
    return client


def pipeline(name: str, **more: Any) -> dict[str, Any]:
    base = {"name": name, "state": "RUNNING", "desired": "running", "deleting": False, "generation": 3}
    return {**base, "observedGeneration": 3, "watermark": None, "rowsIn": 0, "rowsOut": 0, "reason": "", **more}


@pytest.mark.parametrize(
    ("seconds", "shown"),
    [(0.4, "0 s"), (59, "59 s"), (60, "1 min"), (3_725, "1 h 2 min"), (200_000, "2 d 7 h"), (-3, "0 s")],
)
def test_lengths_of_time_are_told_in_their_largest_units(seconds: float, shown: str) -> None:
    assert span(seconds) == shown


def test_times_are_shown_in_utc() -> None:
    assert clock("2026-03-01T13:00:00.123456+01:00") == "2026-03-01 12:00:00Z"
    assert behind(round(NOW.timestamp() * 1000) - 5_000, NOW) == "5 s ago"
    assert behind(None, NOW) == behind(0, NOW) == "·"


def test_in_a_pipe_every_cell_is_whole_and_columns_are_aligned(capsys: pytest.CaptureFixture[str]) -> None:
    long = "a" * 120
    rows = rows_of(
        [pipeline("clicks", rowsIn=12_345), pipeline(long, observedGeneration=2, deleting=True)], NOW, narrow=False
    )
    print_table(COLUMNS, rows)
    head, first, second = capsys.readouterr().out.splitlines()
    assert head.split() == ["NAME", "STATE", "DESIRED", "GENERATION", "WATERMARK", "ROWS", "IN", "ROWS", "OUT"]
    assert first.split() == ["clicks", "RUNNING", "running", "3", "·", "12,345", "0"]
    assert second.split() == [long, "RUNNING", "deleted", "2", "→", "3", "·", "0", "0"]
    assert head.index("STATE") == first.index("RUNNING") == second.index("RUNNING")


@pytest.mark.parametrize("width", [80, 160])
def test_on_a_terminal_a_table_fits_the_screen_and_long_names_are_folded(
    width: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    screen = io.StringIO()
    monkeypatch.setattr(listing, "out", Console(file=screen, force_terminal=True, width=width, soft_wrap=True))
    name = "orders-of-all-countries-and-of-all-shops-by-minute"
    late = round(NOW.timestamp() * 1000) - 36_000_000
    there = pipeline(name, watermark=late, rowsIn=10**9, rowsOut=99_999_999, state="CATCHING_UP", generation=12)
    print_table(NARROW, rows_of([there], NOW, narrow=True))
    lines = [_plain(line) for line in screen.getvalue().splitlines()]
    assert max(map(len, lines)) <= width
    for cell in ("CATCHING_UP", "running", "3 → 12", "10 h ago", "1,000.0 M", "99,999,999"):
        assert cell in lines[1]
    assert "".join(line.split(" ")[0] for line in lines[1:]).strip() == name


def _plain(line: str) -> str:
    return re.sub(r"\x1b\[[0-9;]*m", "", line)


def test_a_problem_of_a_newer_server_is_told_in_its_words() -> None:
    item: dict[str, Any] = {
        "code": "MOON_IS_FULL",
        "message": "the moon is full",
        "hint": "Wait.",
        "params": {},
        "location": None,
    }
    assert str(told(item)) == "error[SERVER_ERROR]: MOON_IS_FULL: the moon is full\n    Wait."


@pytest.mark.parametrize(
    "answer",
    [
        httpx.Response(502, text="<html>Bad gateway</html>"),
        httpx.Response(500, json=["no problem"]),
        httpx.Response(200, text="<html>hello</html>"),
    ],
)
def test_an_answer_of_something_else_is_told(answer: httpx.Response) -> None:
    with pytest.raises(PenstockError) as raised:
        answering(answer).get("/pipelines")
    assert (raised.value.code, raised.value.exit_code) == ("SERVER_ERROR", 1)
    assert "not as a Penstock server does" in str(raised.value)


def test_streams_are_read_event_by_event() -> None:
    text = ': ping\n\nevent: log\ndata: {"text": "a"}\n\nevent: trouble\ndata: {"code":\ndata: "X"}\n\ndata: {"torn"'
    found = list(answering(httpx.Response(200, text=text)).events("/logs/stream"))
    assert found == [("opened", {}), ("log", {"text": "a"}), ("trouble", {"code": "X"})]


def test_an_outage_is_said_once_with_ever_longer_pauses_and_a_refusal_ends_it() -> None:
    said: list[str] = []
    pauses: list[float] = []
    outage = Outage(said.append, pauses.append)
    outage.over()
    for _ in range(6):
        outage.wait(PenstockError.of("SERVER_UNREACHABLE", url="http://h", reason="refused"))
    assert said == ["no server answers at http://h: refused; trying again"]
    assert pauses == [0.5, 1, 2, 4, 5, 5]
    outage.over()
    outage.over()
    outage.wait(PenstockError.of("STORE_DOWN", reason="locked"))
    assert said[1:] == ["the server answers again", "the server's database does not answer: locked; trying again"]
    assert pauses[6:] == [0.5]
    with pytest.raises(PenstockError, match="no pipeline called"):
        outage.wait(PenstockError.of("PIPELINE_UNKNOWN", name="gone"))


@pytest.mark.parametrize("url", ["127.0.0.1:8080", "ftp://host", "http://", "http://[::1"])
def test_what_is_no_address_is_told(url: str) -> None:
    with pytest.raises(PenstockError) as raised:
        Client(url, "pst_x")
    assert raised.value.code == "USAGE"


def test_a_name_cannot_leave_its_place_in_the_path() -> None:
    assert part("../tokens?x=1") == "..%2Ftokens%3Fx%3D1"
    assert part("") == "%00"


def test_files_are_taken_once_and_unreadable_ones_are_told(tmp_path: Path) -> None:
    (tmp_path / "a.yaml").write_text("x", "utf-8")
    (tmp_path / "_part.py").write_text("x", "utf-8")
    assert [Path(file["path"]).name for file in collected([tmp_path, tmp_path / "a.yaml"])] == ["a.yaml"]
    (tmp_path / "b.yaml").write_bytes(b"\xff\xfe")
    with pytest.raises(PenstockError) as raised:
        collected([tmp_path])
    assert raised.value.code == "FILE_UNREADABLE"


def test_a_selector_belongs_to_prune(tmp_path: Path) -> None:
    (tmp_path / "a.yaml").write_text("x", "utf-8")
    with pytest.raises(PenstockError, match="--prune"):
        request([tmp_path], prune=False, selector=["a=b"], start=None, target=None)
    asked = request([tmp_path], prune=True, selector=["a=b"], start=False, target="spot")
    assert {key: asked[key] for key in ("absent", "selector", "start", "target")} == {
        "absent": "delete",
        "selector": {"a": "b"},
        "start": False,
        "target": "spot",
    }
    with pytest.raises(PenstockError, match="KEY=VALUE"):
        labels_in(["a"])


def test_waiting_ends_when_what_was_asked_has_been_seen_to() -> None:
    assert not stands(pipeline("a", state="STOPPED", observedGeneration=2))
    assert stands(pipeline("a", state="STOPPED"))
    assert stands(None)
    assert not runs(pipeline("a", state="RUNNING", observedGeneration=2))
    assert runs(pipeline("a", state="IDLE"))
    assert not runs(None)
    with pytest.raises(PenstockError, match="a failed: no"):
        runs(pipeline("a", state="FAILED", reason="no"))


def test_a_plan_counts_what_it_does(capsys: pytest.CaptureFixture[str]) -> None:
    step = {"name": "a", "reason": "it is new", "cost": "nothing", "changes": [], "warnings": [], "flow": [],
            "stages": [], "loses": []}  # fmt: skip
    changed = {"path": "x", "before": 1, "after": "y" * 100, "cost": "loses state", "reason": "why", "node": "x"}
    stages = ["stop", "savepoint", "graft", "start"]
    more = {"cost": "loses state", "changes": [changed], "stages": stages, "loses": ["x"], "flow": ["+ a → x"]}
    plan = {
        "steps": [
            {**step, "action": "create"},
            {**step, "name": "bb", "action": "upgrade", **more},
            {**step, "name": "c", "action": "delete", "cost": "loses state"},
            {**step, "action": "unchanged"},
        ]
    }
    print_plan(plan)
    lines = capsys.readouterr().out.splitlines()
    assert lines[:-2] == [
        "+ create    a   it is new",
        "~ upgrade   bb  it is new",
        f"    ~ x  1 → {'y' * 59}…",
        "        loses state: why",
        "    + a → x",
        "    costs: loses state; stop → savepoint → graft → start",
        "    it is done only with --lose x",
        "- delete    c   it is new, costs: loses state",
    ]
    assert lines[-1] == "1 to create, 1 to upgrade, 1 to delete, 1 unchanged"
    assert done(plan) == "1 created, 1 upgraded, 1 deleted, 1 unchanged"
    assert done({"steps": []}) == "nothing to change in 0 pipelines"
