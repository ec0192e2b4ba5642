"""Asks about the state of a pipeline, in a process of its own that knows what the server does not."""

from __future__ import annotations

import json
from typing import Any, cast

from penstock.control.api.guard import visible
from penstock.control.api.queues import SIZES, Kind
from penstock.control.api.services import Services
from penstock.control.asking import Busy, NoAnswer, ask
from penstock.control.auth.roles import Grant
from penstock.control.launch.granted import access_of
from penstock.control.launch.limits import QUESTION
from penstock.control.store import pipelines
from penstock.errors import CODES, PenstockError, Problem
from penstock.reports.codec import plain
from penstock.spec.secrets import references_in

_PATIENCE = 60.0
_ASKED = "penstock.runner.asked"
"""It knows the state of pipelines, which is no business of the server."""


def asked_of_state(
    services: Services, grant: Grant, name: str, verb: str, *, patience: float = _PATIENCE, **more: Any
) -> Any:
    """What a process says that knows the state of pipelines; raises what it raises."""
    with services.store.reading() as connection:
        known = visible(connection, grant, name)
        document = pipelines.version(connection, name, known.version).document
    state = services.folder.state(name)
    if not state.is_dir():
        raise PenstockError.of("STATE_MISSING", name=name, path=_shown(services, str(state)))
    policy = services.policies.of(services.project_of(known))
    limits = {"folder": str(policy.folder), "access": plain(policy.access.with_own(state.parent))}
    question = {"verb": verb, "name": name, "document": document, "state": str(state), **limits, **more}
    access = access_of(policy, references_in(document), QUESTION)
    try:
        asked = json.dumps(question, default=str)
        found = ask(policy.launcher, _ASKED, [], access, patience, asked, own=[state])
    except Busy:
        raise PenstockError.of("SERVER_BUSY", kind=Kind.STATE, seconds=SIZES[Kind.STATE].retry) from None
    except NoAnswer as reason:
        raise PenstockError.of("LEDGER_NOT_READ", name=name, reason=reason) from None
    if "answer" not in found:
        raise PenstockError(_told(services, item) for item in found.get("problems", ()))
    return found["answer"]


def _told(services: Services, item: dict[str, Any]) -> Problem:
    code = item["code"] if item.get("code") in CODES else "INTERNAL"
    params = {key: _shown(services, str(value)) for key, value in cast(dict[str, Any], item.get("params", {})).items()}
    return Problem(code, params)


def _shown(services: Services, text: str) -> str:
    """Where the server keeps its files is nobody's business who asks."""
    return text.replace(f"{services.folder.path}/", "")
