"""Calls `penstock` inside the test's process, so that many commands share one Spark session."""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest

from penstock.cli.main import main

HEAD = """\
apiVersion: penstock/v1
kind: Pipeline
metadata: {name: demo}
"""
MARK = "«"
"""Put before the text a problem must point at; it is not part of the file."""


@dataclass(frozen=True)
class Answer:
    """What a command said and how it ended."""

    code: int
    out: str
    err: str

    @property
    def text(self) -> str:
        return self.out + self.err


Command = Callable[..., Answer]


def command(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Command:
    def call(*arguments: object) -> Answer:
        monkeypatch.setattr(sys, "argv", ["penstock", *(str(argument) for argument in arguments)])
        capsys.readouterr()
        with pytest.raises(SystemExit) as ended:
            main()
        printed = capsys.readouterr()
        assert "Traceback" not in printed.out + printed.err
        return Answer(int(ended.value.code or 0), printed.out, printed.err)

    return call


def write_marked(path: Path, text: str) -> list[tuple[int, int]]:
    """Writes the text without its marks; gives line and column of each."""
    places, plain = [], ""
    for part in text.split(MARK):
        if plain or text.startswith(MARK):
            places.append((plain.count("\n") + 1, len(plain) - (plain.rfind("\n") + 1) + 1))
        plain += part
    path.write_text(plain, "utf-8")
    return places
