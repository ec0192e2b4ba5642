"""What `make setup` installs is checked by hash, the installer too."""

from __future__ import annotations

import importlib.util
import re
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).parents[2]


@pytest.fixture
def setup() -> ModuleType:
    found = importlib.util.spec_from_file_location("penstock_setup", ROOT / "scripts" / "setup.py")
    assert found is not None
    assert found.loader is not None
    module = importlib.util.module_from_spec(found)
    found.loader.exec_module(module)
    return module


@pytest.mark.parametrize("lock", ["scripts/uv.lock", "requirements.lock"])
def test_each_package_is_locked_with_its_hashes(lock: str) -> None:
    text = re.sub(r"^\s*#.*$", "", (ROOT / lock).read_text("utf-8"), flags=re.MULTILINE).replace("\\\n", " ")
    packages = [line for line in text.splitlines() if line.strip()]
    assert packages
    assert [line for line in packages if not re.search(r"^\S+==\S+.*--hash=sha256:[0-9a-f]{64}", line)] == []


@pytest.mark.parametrize("without_uv", [False, True])
def test_nothing_is_installed_without_its_hash(
    setup: ModuleType, monkeypatch: pytest.MonkeyPatch, without_uv: bool
) -> None:
    commands: list[tuple[str, ...]] = []

    def run(*command: str, **_: object) -> str:
        commands.append(command)
        if without_uv and str(setup.UV) in command:
            raise setup.SetupFailed("there is no uv for this machine")
        return ""

    monkeypatch.setattr(setup, "run", run)
    setup.install_packages()
    installs = [command for command in commands if "install" in command]
    assert len(installs) == 3
    for command in installs:
        ours = "--no-deps" in command and "--no-build-isolation" in command and command[-2:] == ("-e", ".")
        assert ours or "--require-hashes" in command, command
