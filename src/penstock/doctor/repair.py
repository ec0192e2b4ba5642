"""Writes the safe fixes into a pipeline file: all of it or nothing, and never over somebody else's change."""

from __future__ import annotations

from dataclasses import dataclass

from penstock.doctor.diagnose import Diagnosis
from penstock.doctor.edit import CannotEdit, edited
from penstock.doctor.findings import Finding
from penstock.durable import write_durably
from penstock.errors import Location, PenstockError

_BOM = "\ufeff"


@dataclass(frozen=True)
class Repair:
    """What became of the findings that can be fixed."""

    text: str
    """The new text of the file; the old one if nothing was fixed."""
    fixed: tuple[Finding, ...] = ()
    refused: tuple[tuple[Finding, str], ...] = ()
    """Findings whose fix was not written, with the reason."""


def repair(diagnosis: Diagnosis) -> Repair:
    """The text with every safe fix; nothing is written."""
    wanted = [finding for finding in diagnosis.findings if finding.edit is not None]
    if diagnosis.text is None:
        return Repair("", (), tuple((finding, "fixes are written into YAML only") for finding in wanted))
    newline = "\r\n" if "\r\n" in diagnosis.text else "\n"
    plain = diagnosis.text.replace("\r\n", "\n")
    if plain.replace("\n", newline) != diagnosis.text:
        reason = "some lines end with CRLF and some do not"
        return Repair(diagnosis.text, (), tuple((finding, reason) for finding in wanted))
    fixed, refused = [], []
    for finding in wanted:
        assert finding.edit is not None
        try:
            plain = edited(plain, finding.edit)
            fixed.append(finding)
        except CannotEdit as reason:
            refused.append((finding, str(reason)))
    return Repair(plain.replace("\n", newline), tuple(fixed), tuple(refused))


def write(diagnosis: Diagnosis, repaired: Repair) -> None:
    """Replaces the file at once; raises DOCTOR_FILE_CHANGED if it is no longer what was looked at.

    A link stays a link, and the file keeps its permissions.
    """
    if diagnosis.text is None or repaired.text == diagnosis.text:
        return
    file = diagnosis.path.resolve()
    found = file.read_bytes() if file.is_file() else b""
    mark = _BOM if found.startswith(_BOM.encode()) else ""
    if found != (mark + diagnosis.text).encode():
        raise PenstockError.of("DOCTOR_FILE_CHANGED", Location(str(diagnosis.path)), path=diagnosis.path)
    mode = file.stat().st_mode & 0o7777
    write_durably(file, mark + repaired.text, mode)
    file.chmod(mode)
