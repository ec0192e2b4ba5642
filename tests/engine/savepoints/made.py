"""A state folder as a run that ended well leaves it, written by hand: what needs no Spark is tested without."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from pathlib import Path

from penstock.engine.ledger import BatchEntry, Ledger
from penstock.engine.savepoints.standing import note_standing
from penstock.engine.savepoints.take import Moment
from penstock.engine.statedir import Identity
from penstock.frontends.load import load
from penstock.reports.savepoints import SavedSink
from penstock.spec.location import PipelineFile

BODY = """\
apiVersion: penstock/v1
kind: Pipeline
metadata: {name: NAME}
spec:
  sources:
    views: {memory: {schema: {id: string}}}
  sinks:
    store: {from: views, memory: {}}
"""
QUERY = "11111111-1111-1111-1111-111111111111"


@dataclass(frozen=True)
class Made:
    """A pipeline file and its state."""

    path: Path
    state: Path

    @property
    def file(self) -> PipelineFile:
        return load(self.path)

    def add_batch(self, *, planned: bool = False) -> int:
        """One batch more, with its state; one that is only planned has no more than its offsets."""
        checkpoint = self.state / "checkpoint"
        number = sum(1 for _ in (checkpoint / "commits").glob("[0-9]*"))
        write(checkpoint / "offsets" / str(number), f'v2\n{{"conf":{{}}}}\nviews:{{"logOffset":{number}}}')
        if planned:
            return number
        write(checkpoint / "commits" / str(number), f'v1\n{{"nextBatchWatermarkMs":{number}000}}')
        spool = self.state / "spool" / "views" / f"{number:09d}.json"
        write(spool, f'{{"id": "{number}"}}\n')
        write(checkpoint / "sources" / "views" / str(number), f'v1\n{{"path":"{spool.as_uri()}","batchId":{number}}}')
        write(checkpoint / "state" / "0" / "0" / f"{number + 1}.changelog", f"state {number}")
        Ledger(self.state / "ledger.db").record(BatchEntry(number, 1, {"views": 1}, rows_out={"store": 1}))
        identity = json.loads((self.state / "pipeline.json").read_text("utf-8"))
        sinks = (SavedSink("store", "memory", {"batch": number}),)
        note_standing(self.state, identity["lineage"], Moment(number, sinks=sinks, steps={0: "counts"}))
        return number


def write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, "utf-8")


def made(folder: Path, name: str = "demo", batches: int = 3) -> Made:
    path, state = folder / f"{name}.yaml", folder / ".penstock" / name
    write(path, BODY.replace("NAME", name))
    identity = Identity(name, f"lineage-of-{name}", 1, QUERY, 16)
    write(state / "pipeline.json", json.dumps(asdict(identity)))
    write(state / "checkpoint" / "metadata", json.dumps({"id": QUERY}))
    about = {"operatorInfo": {"operatorId": 0, "operatorName": "transformWithState"}}
    where = {"stateSchemaFilePaths": [f"file:{state}/checkpoint/state/0/_stateSchema/default/0"]}
    write(state / "checkpoint" / "state" / "0" / "_metadata" / "v2" / "0", f"v2\n{json.dumps(about | where)}")
    write(state / "checkpoint" / "state" / "0" / "_stateSchema" / "default" / "0", "schema")
    found = Made(path, state)
    for _ in range(batches):
        found.add_batch()
    return found
