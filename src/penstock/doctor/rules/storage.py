"""Rules on where things lie: on disks that last, and with room for them."""

from __future__ import annotations

from collections.abc import Iterator

from penstock.doctor.checkup import Checkup
from penstock.doctor.findings import Severity
from penstock.doctor.rule import Found, rule
from penstock.doctor.state_folder import is_temporary
from penstock.spec.alerts import DEFAULTS
from penstock.spec.conditions import in_words
from penstock.spec.fields import Holds


@rule(
    "temporary-folder",
    Severity.ERROR,
    message="{path} is in a temporary folder",
    why="Systems empty such folders when they start, or after some days; some keep them in memory.",
    fix="Take a folder that lasts.",
)
def temporary_folder(checkup: Checkup) -> Iterator[Found]:
    for text in checkup.texts():
        if text.holds is Holds.PATH and is_temporary(text.text):
            yield Found(text.path, {"path": text.text})


@rule(
    "state-in-temporary-folder",
    Severity.ERROR,
    message="the state folder {path} is temporary",
    why="It holds the checkpoint and the ledger. When it is emptied, the pipeline begins anew: rows are read again or "
    "never, and all windows are lost.",
    fix="Take a folder that lasts for `--state-dir`; on a cluster one that all machines reach.",
)
def state_in_temporary_folder(checkup: Checkup) -> Iterator[Found]:
    if checkup.state is not None and is_temporary(checkup.state.path):
        yield Found((), {"path": checkup.state.path})


@rule(
    "disk-space-low",
    Severity.ERROR,
    message="{free} are free for the state folder {path}, and the alert `disk_free` fires below {limit}",
    why="State, savepoints, dead letters and 50 MB of log for each run grow there. On a full disk the pipeline stops.",
    fix="Make room, or take a larger disk before the pipeline starts.",
)
def disk_space_low(checkup: Checkup) -> Iterator[Found]:
    if checkup.state is None or checkup.state.free is None:
        return
    own = {alert.title: alert for alert in checkup.pipeline.alerts if not alert.off}
    condition = own.get("disk_free", DEFAULTS["disk_free"]).when
    if condition is not None and condition.measure == "disk_free" and condition.holds(float(checkup.state.free)):
        gib = f"{checkup.state.free / 2**30:.1f} GiB"
        limit = in_words("disk_free", condition.threshold)
        yield Found((), {"path": checkup.state.path, "free": gib, "limit": limit})
