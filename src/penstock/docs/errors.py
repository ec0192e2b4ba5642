"""The page of error codes."""

from __future__ import annotations

import re

from penstock.docs.markdown import NOTE, table
from penstock.errors import CODES, ErrorCode, Owner, Severity

_OWNERS = {
    Owner.AUTHOR: "who wrote the pipeline",
    Owner.OPERATOR: "who runs it",
    Owner.EXTERNAL: "who is in charge of the system it reads or writes",
    Owner.BUG: "who develops Penstock; please report it",
}


_EXIT_CODES = {0: "ok", 1: "failed", 2: "wrong usage or invalid pipeline", 3: "not found", 4: "refused"}


_SAID_WITH_THE_ERROR = {"advice", "suggestion"}
"""Parameters that hold a hint made for the case; there is nothing to say about them in general."""


def errors_page() -> str:
    """Every code, in alphabetical order."""
    codes = sorted(CODES.values(), key=lambda code: code.name)
    rows = [
        [f"`{code.name}`", template(code.message), _hint(code), str(code.owner), _exit_code(code)] for code in codes
    ]
    owners = table(["Who acts", "Who that is"], [[f"*{owner}*", words] for owner, words in _OWNERS.items()])
    intro = """\
# Errors

Every error has a code, a message, the place in the pipeline file if there is one, and what to do about it. Codes are
stable; scripts can switch on them (`penstock validate -o json`). Words in ‹angle quotes› are filled in."""
    head = ["Code", "Message", "What to do", "Who acts", "Exit code"]
    return f"{NOTE}\n{intro}\n\n{owners}\n{exit_codes_table()}\n{table(head, rows)}"


def _exit_code(code: ErrorCode) -> str:
    return str(code.exit_code) if code.severity is Severity.ERROR else "0; 2 with `--strict`"


def exit_codes_table() -> str:
    return table(["Exit code", "Meaning"], [[str(code), words] for code, words in _EXIT_CODES.items()])


def _hint(code: ErrorCode) -> str:
    general = re.sub(r"\{(\w+)\}\s*", lambda found: "" if found[1] in _SAID_WITH_THE_ERROR else found[0], code.hint)
    return template(general).strip() or "The error says what."


def template(text: str) -> str:
    """A message with its parameters in angle quotes, which show inside code too."""
    return text.format_map(_Angled())


class _Angled(dict[str, str]):
    def __missing__(self, key: str) -> str:
        return f"‹{key}›"
