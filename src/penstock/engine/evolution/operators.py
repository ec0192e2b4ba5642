"""Folders of state, one for each stateful operator of a query: moved to another number, or begun empty.

state/OPERATOR/PARTITION/[STORE/]   VERSION.zip names files in SSTs/; VERSION.changelog are the changes after it
state/OPERATOR/_metadata/           what the operator is, its number, and where the schema of its state is
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from penstock.engine.evolution.seed import VERSION
from penstock.engine.savepoints.trees import files_below, put

_NUMBERED = re.compile(r"(\d+)\.(zip|changelog)")
_STRUCT = '{"type":"struct"'


def move(old: Path, new: Path, live: Path) -> None:
    """Gives the state of one operator the number of another; `live` is what the old one is a copy of."""
    for name in files_below(old):
        _link(old / name, new / name)
    _renumber(live, new)


def begin(seed: Path, new: Path, version: int, seeded: int = VERSION) -> None:
    """Puts the state of a seed in place, as the state of a version; `seeded` is the version that it has there."""
    for name in files_below(seed):
        path = Path(name)
        number = _NUMBERED.fullmatch(path.name)
        if number is None:
            _link(seed / name, new / name)
        elif (int(number[1]), number[2]) == (seeded, "zip"):
            _link(seed / name, new / path.parent / f"{version}.zip")
    _renumber(seed, new)
    _keep_newest_metadata(new)


def _link(file: Path, target: Path) -> None:
    if file.name.startswith(".") and file.name.endswith(".crc"):
        # Checksums go with names and contents that may both be other ones now; Spark does without.
        return
    put(file, target, file.stat().st_mtime_ns)


def _renumber(old: Path, new: Path) -> None:
    """Lets metadata name the new number, and where the schema is now."""
    for file in _metadata_files(new):
        head, _, text = file.read_text("utf-8").partition("\n")
        content = json.loads(text)
        content["operatorInfo"]["operatorId"] = int(new.name)
        for store in content["stateStoreInfo"]:
            paths = store.get("stateSchemaFilePaths")
            if paths:
                store["stateSchemaFilePaths"] = [path.replace(f"{old}/", f"{new}/", 1) for path in paths]
        file.unlink()
        file.write_text(f"{head}\n{json.dumps(content, separators=(',', ':'))}", "utf-8")


def _keep_newest_metadata(operator: Path) -> None:
    """A seed was divided in a second batch; what holds since then holds from the first one on."""
    numbered = [file for file in _metadata_files(operator) if file.name.isdigit()]
    if not numbered:
        return
    newest = max(numbered, key=lambda file: int(file.name))
    text = newest.read_text("utf-8")
    for file in numbered:
        file.unlink()
    newest.with_name("0").write_text(text, "utf-8")


def _metadata_files(operator: Path) -> list[Path]:
    found = operator / "_metadata"
    return [file for file in found.rglob("*") if file.is_file() and not file.name.startswith(".")]


def set_partitions(operator: Path, partitions: int) -> None:
    """Lets metadata say into how many partitions the state is divided."""
    for file in _metadata_files(operator):
        head, _, text = file.read_text("utf-8").partition("\n")
        content = json.loads(text)
        for store in content["stateStoreInfo"]:
            store["numPartitions"] = partitions
        file.unlink()
        file.write_text(f"{head}\n{json.dumps(content, separators=(',', ':'))}", "utf-8")


def kind(operator: Path) -> tuple[Any, ...]:
    """What must be the same for Spark to go on with a state: the operator, its properties, and the schema it has."""
    files = sorted(_metadata_files(operator), key=lambda file: (len(file.name), file.name))
    content: Mapping[str, Any] = json.loads(files[-1].read_text("utf-8").partition("\n")[2])
    schemas = [_schemas(file) for file in sorted(operator.glob("0/**/_metadata/schema"))]
    return (content["operatorInfo"]["operatorName"], content.get("operatorPropertiesJson"), schemas)


def _schemas(file: Path) -> list[Any]:
    """The schemas in a file of Spark's, whether or not their columns may be null."""
    text = re.sub(r'"nullable":(true|false)', '"nullable":true', file.read_bytes().decode("latin-1"))
    found, start = [], text.find(_STRUCT)
    while start >= 0:
        value, length = json.JSONDecoder().raw_decode(text[start:])
        found.append(value)
        start = text.find(_STRUCT, start + length)
    return found
