"""A pipeline of a server that is saved, changed, divided anew and put back while rows come in: each row counts once."""

from __future__ import annotations

import datetime as dt
import json
import signal
import sqlite3
from collections.abc import Callable
from contextlib import closing
from typing import Any

import pytest
from tests.e2e.commands import Command
from tests.e2e.serving import Site
from tests.e2e.test_serve_spark import site_with

from penstock.testing.processes import PATIENCE, until

HEAD = """\
apiVersion: penstock/v1
kind: Pipeline
metadata: {name: shop}
spec:
  sources:
    sales:
      files: {path: ./sales, maxFilesPerBatch: 1}
      format: {json: {schema: {id: bigint, ts: timestamp, user: string, amount: bigint}}}
      eventTime: {column: ts, maxDelay: 1 hour}
"""
FIRST = f"""{HEAD}\
  steps:
    recent:
      from: sales
      rolling: {{by: [user], over: 30 days, emit: at once, values: {{n: count(*), total: sum(amount)}}}}
  sinks:
    counted: {{from: recent, sqlite: {{path: ./shop.db, table: recent, key: [id]}}}}
    kept: {{from: sales, sqlite: {{path: ./shop.db, table: sales, batchColumn: batch}}}}
  run: {{trigger: 200 ms}}
"""
SECOND = (
    FIRST.replace("total: sum(amount)", "total: sum(amount), most: max(amount)")
    .replace("  steps:\n", "  steps:\n    newest: {from: sales, latest: {by: [user], order: [id]}}\n")
    .replace(
        "  sinks:\n", "  sinks:\n    last: {from: newest, sqlite: {path: ./shop.db, table: newest, key: [user]}}\n"
    )
)
START = dt.datetime(2024, 1, 1, tzinfo=dt.UTC)
ROWS = 6


class Shop:
    """What is sold, and what the tables of the pipeline must say of it, by plain Python."""

    def __init__(self, site: Site, penstock: Command) -> None:
        self.site = site
        self.call = penstock
        self.folder = site.data / "files"
        (self.folder / "sales").mkdir(parents=True)
        self.sold: list[dict[str, Any]] = []

    def sell(self) -> None:
        """A further file; its rows are later than all before."""
        first = len(self.sold)
        more = [
            {
                "id": id,
                "ts": (START + dt.timedelta(minutes=id)).isoformat(),
                "user": "ab"[id % 2],
                "amount": id * 7 % 53,
            }
            for id in range(first, first + ROWS)
        ]
        self.sold += more
        hidden = self.folder / "sales" / f".{first}.json"
        hidden.write_text("".join(json.dumps(row) + "\n" for row in more), "utf-8")
        hidden.rename(self.folder / "sales" / f"{first:04d}.json")

    def query(self, text: str) -> list[tuple[Any, ...]]:
        try:
            with closing(sqlite3.connect(f"file:{self.folder / 'shop.db'}?mode=ro", uri=True)) as db:
                return db.execute(text).fetchall()
        except sqlite3.OperationalError:
            return []

    def expected(self) -> list[tuple[int, int, int]]:
        """Of each row how many of its user there were up to it, and what they cost."""
        found = []
        for row in self.sold:
            up_to = [each["amount"] for each in self.sold if each["user"] == row["user"] and each["id"] <= row["id"]]
            found.append((row["id"], len(up_to), sum(up_to)))
        return found

    def is_right(self) -> bool:
        every = [(row["id"],) for row in self.sold]
        return (
            self.query("SELECT id, n, total FROM recent ORDER BY id") == self.expected()
            and self.query("SELECT id FROM sales ORDER BY id") == every
        )

    def wait(self, what: str) -> None:
        """Until all rows are there and nothing is at work: a batch that was planned must come to its end first."""
        until(self.is_right, what, 2 * PATIENCE, every=0.2)
        self.site.wait_for("shop", "IDLE", seconds=PATIENCE)

    def command(self, *words: object) -> str:
        answer = self.call(*words)
        assert answer.code == 0, answer.text
        return answer.text

    def operation(self, kind: str) -> dict[str, Any]:
        found: list[dict[str, Any]] = self.site.ask("/pipelines/shop/operations")["items"]
        return next(item for item in found if item["kind"] == kind)

    def wait_until(self, condition: Callable[[], object], what: str) -> None:
        until(condition, what, 2 * PATIENCE, every=0.1)


@pytest.mark.long
@pytest.mark.timeout(1800)
def test_state_goes_along_whatever_is_done_to_a_pipeline(
    tmp_path: Any, penstock: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    with site_with(tmp_path) as site:
        shop = Shop(site, penstock)
        monkeypatch.setenv("PENSTOCK_TOKEN", site.token)
        monkeypatch.setenv("PENSTOCK_URL", site.server.url)
        file = tmp_path / "shop.yaml"
        file.write_text(FIRST, "utf-8")
        shop.sell()
        shop.command("apply", "-f", file, "--yes")
        shop.wait("the first rows")
        run = site.pipeline("shop")["run"]

        # Live: the run takes it, and goes on.
        assert "savepoint one after batch" in shop.command("savepoint", "create", "shop", "--name", "one")
        assert site.pipeline("shop")["run"] == run
        assert "all as they were" in shop.command("savepoint", "verify", "one", "shop")
        shop.sell()
        shop.wait("rows after the savepoint")

        # Another version, with the server killed while the state is carried over.
        with closing(sqlite3.connect(shop.folder / "shop.db")) as db:
            db.execute("ALTER TABLE recent ADD COLUMN most BIGINT")
            db.commit()
        file.write_text(SECOND, "utf-8")
        planned = shop.command("plan", "-f", file)
        assert "stop → savepoint → graft → start" in planned
        shop.command("apply", "-f", file, "--yes")
        shop.wait_until(lambda: site.pipeline("shop")["state"] == "UPGRADING", "that it is upgraded")
        shop.wait_until(lambda: shop.operation("upgrade")["stage"] is not None, "that its process is at work")
        site.server.signal(signal.SIGKILL)
        site.server.wait()
        site.serve()
        monkeypatch.setenv("PENSTOCK_URL", site.server.url)
        shop.wait_until(lambda: shop.operation("upgrade")["state"] != "running", "that it is done")
        upgraded = shop.operation("upgrade")
        assert (upgraded["state"], upgraded["attempts"]) == ("done", 1), upgraded
        assert set(upgraded["result"]["grafted"]["kept"]) == {"recent"}
        shop.sell()
        shop.wait("rows of the new version, with the state of the old one")
        assert site.pipeline("shop")["version"] == 2
        last = shop.sold[-1]
        most = max(row["amount"] for row in shop.sold if row["user"] == last["user"])
        assert shop.query(f"SELECT most FROM recent WHERE id = {last['id']}") == [(most,)]
        assert len(shop.query("SELECT user FROM newest")) == 2

        # Other partitions.
        assert "to 3 partitions" in shop.command("rescale", "shop", "--partitions", 3)
        shop.sell()
        shop.wait("rows after rescaling")

        # Back to the first version and to what it had then; what came since is read again.
        shop.command("savepoint", "restore", "one", "shop")
        assert site.pipeline("shop")["version"] == 1
        shop.wait("all rows again, each once")
        shop.sell()
        shop.wait("further rows")
        shop.command("stop", "shop", "--savepoint", "--note", "the end", "--wait")
        listed = json.loads(shop.command("savepoint", "list", "shop", "-o", "json"))
        assert [(one["version"], one["note"]) for one in listed][-1] == (1, "the end")
        kinds = {event["kind"] for event in site.ask("/events?pipeline=shop&limit=1000")["items"]}
        assert {"savepoint_taken", "upgraded", "rescaled", "restored"} <= kinds
        assert site.ask("/exceptions")["items"] == []


@pytest.mark.long
@pytest.mark.timeout(1800)
def test_a_new_version_follows_and_takes_over(
    tmp_path: Any, penstock: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also over a server that is killed meanwhile; given up once, and then to its end."""
    with site_with(tmp_path) as site:
        shop = Shop(site, penstock)
        monkeypatch.setenv("PENSTOCK_TOKEN", site.token)
        monkeypatch.setenv("PENSTOCK_URL", site.server.url)
        file, new = tmp_path / "shop.yaml", tmp_path / "new.yaml"
        file.write_text(FIRST, "utf-8")
        new.write_text(SECOND, "utf-8")
        shop.sell()
        shop.command("apply", "-f", file, "--yes")
        shop.wait("the first rows")
        run = site.pipeline("shop")["run"]

        begun = shop.command("cutover", "start", "shop", new, "--once")
        assert "recent goes on with" in begun
        assert "newest begins empty" in begun
        assert "the new version stands where the pipeline does" in begun
        shop.command("cutover", "abort", "shop")
        assert shop.call("cutover", "status", "shop").code == 3
        assert shop.operation("cutover")["state"] == "done"

        shop.command("cutover", "start", "shop", new)
        shop.sell()
        shop.wait("rows while it is followed")
        assert site.pipeline("shop")["run"] == run
        site.server.signal(signal.SIGKILL)
        site.server.wait()
        site.serve()
        monkeypatch.setenv("PENSTOCK_URL", site.server.url)
        shop.wait_until(lambda: site.ask("/pipelines/shop/cutover")["behind"] == 0, "that it has caught up")
        compared = json.loads(shop.command("cutover", "compare", "shop", "-o", "json"))
        counts = {one["sink"]: one["compared"] for one in compared["sinks"]}
        assert counts["counted"]["equal"] == ROWS
        assert counts["kept"]["equal"] == ROWS
        assert counts["last"] is None

        with closing(sqlite3.connect(shop.folder / "shop.db")) as db:
            db.execute("ALTER TABLE recent ADD COLUMN most BIGINT")
            db.commit()
        assert "version 2 has taken over" in shop.command("cutover", "finish", "shop")
        shop.sell()
        shop.wait("rows of the new version, each once")
        assert site.pipeline("shop")["version"] == 2
        last = shop.sold[-1]
        most = max(row["amount"] for row in shop.sold if row["user"] == last["user"])
        assert shop.query(f"SELECT most FROM recent WHERE id = {last['id']}") == [(most,)]
        kinds = {event["kind"] for event in site.ask("/events?pipeline=shop&limit=1000")["items"]}
        assert {"cutover_given_up", "cutover_compared", "cutover_ended", "taken_over"} <= kinds
        assert site.ask("/exceptions")["items"] == []
