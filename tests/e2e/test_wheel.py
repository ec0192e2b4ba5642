"""The wheel holds everything that is needed at run time, not only the modules."""

from __future__ import annotations

import subprocess
import sys
import zipfile
from pathlib import Path

import pytest
from tests.servers.fixtures import missing

import penstock
from penstock.control.console import FOLDER

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Built from this tree, without the network."""
    folder = tmp_path_factory.mktemp("wheel")
    command = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(folder)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr
    (built,) = folder.glob("*.whl")
    return built


def test_the_wheel_holds_templates_settings_and_types(wheel: Path) -> None:
    names = set(zipfile.ZipFile(wheel).namelist())

    templates = ROOT / "src" / "penstock" / "cli" / "templates"
    needed = {
        f"penstock/cli/templates/{path.relative_to(templates)}" for path in templates.rglob("*") if path.is_file()
    }
    assert len(needed) >= 4
    needed |= {"penstock/engine/log4j2.properties", "penstock/py.typed", "penstock/frontends/catalog.pyi"}
    assert needed - names == set()


def test_the_wheel_holds_the_console_if_it_was_built(wheel: Path) -> None:
    built = {
        f"penstock/control/console_dist/{path.relative_to(FOLDER)}" for path in FOLDER.rglob("*") if path.is_file()
    }
    if not built:
        missing("Console", "it has not been built; run `make setup` with Node 20.19 or newer")
    assert "penstock/control/console_dist/index.html" in built
    assert built - set(zipfile.ZipFile(wheel).namelist()) == set()


def test_the_wheel_holds_every_module_and_nothing_else(wheel: Path) -> None:
    names = {name for name in zipfile.ZipFile(wheel).namelist() if name.endswith(".py")}

    source = ROOT / "src"
    assert names == {str(path.relative_to(source)) for path in source.rglob("*.py")}


def test_the_version_of_the_wheel_is_the_one_penstock_tells(wheel: Path) -> None:
    assert wheel.name == f"penstock-{penstock.__version__}-py3-none-any.whl"
    with zipfile.ZipFile(wheel) as archive:
        metadata = archive.read(f"penstock-{penstock.__version__}.dist-info/METADATA").decode()
        scripts = archive.read(f"penstock-{penstock.__version__}.dist-info/entry_points.txt").decode()
    assert f"\nVersion: {penstock.__version__}\n" in metadata
    assert "penstock = penstock.cli.entry:main" in scripts
