"""Makes a checkout ready: Python, Java and Node are there, `.venv` holds what requirements.lock names, the console is
built.

Only the standard library, and only syntax of Python 3.8: it has to run where the right Python is yet to be found.
A stamp in `.venv` remembers what was done, so that the second time takes no time.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import shutil
import subprocess
import sys
import time
from pathlib import Path
from typing import Callable, Tuple

ROOT = Path(__file__).resolve().parent.parent
VENV = ROOT / ".venv"
VENV_PYTHON = VENV / "bin" / "python"
STAMP = VENV / "penstock-setup.json"
WARM = ROOT / "src" / "penstock" / "engine" / "warm.py"
LOCAL_FILES = ROOT / "src" / "penstock" / "engine" / "spark" / "LocalFiles.java"
JARS = ROOT / "src" / "penstock" / "engine" / "jars.lock"
CONSOLE = ROOT / "console"
BUILT = ROOT / "src" / "penstock" / "control" / "console_dist" / "index.html"
UV = ROOT / "scripts" / "uv.lock"

PYTHON_NEEDED = (3, 11)
JAVA_NEEDED = 17
NODE_NEEDED = (20, 19)
AGAIN_SECONDS = 600
"""After so long it is worth trying again to build what could not be built."""

Version = Tuple[int, ...]

# By package manager: what to install, the first that exists. Distributions drop old Java versions over time.
PACKAGES: dict[str, dict[str, list[str]]] = {
    "apt-get": {
        "python": ["python3.13 python3.13-venv", "python3.12 python3.12-venv", "python3.11 python3.11-venv"],
        "venv": ["python3-venv"],
        "java": ["openjdk-17-jre-headless", "openjdk-21-jre-headless"],
        "node": ["nodejs npm"],
    },
    "dnf": {
        "python": ["python3.13", "python3.12", "python3.11"],
        "venv": ["python3"],
        "java": ["java-17-openjdk-headless", "java-21-openjdk-headless"],
        "node": ["nodejs npm"],
    },
    "brew": {"python": ["python@3.12"], "venv": ["python@3.12"], "java": ["openjdk@17"], "node": ["node"]},
}


class SetupFailed(Exception):
    """Told to the person as it is; there is nothing to trace."""


# --- what a person sees ------------------------------------------------------------------------------------
class Stage:
    """One line: what is being done, how it ended and how long it took."""

    def __init__(self, title: str) -> None:
        self.title = title
        self.result = "done"

    def __enter__(self) -> Stage:
        self.started = time.monotonic()
        print(f"  {self.title:<24}", end="", flush=True)
        return self

    def __exit__(self, kind: object, error: object, trace: object) -> None:
        result = self.result if error is None else "failed"
        print(f"{result:<36} {time.monotonic() - self.started:6.1f} s", flush=True)


def run(*command: str, env: dict[str, str] | None = None) -> str:
    """Runs a command silently; its last lines are shown if it fails."""
    done = subprocess.run(
        command,
        cwd=ROOT,
        env=env,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    if done.returncode != 0:
        tail = "\n".join("    " + line for line in done.stdout.strip().splitlines()[-15:])
        raise SetupFailed(f"`{' '.join(command)}` ended with {done.returncode}\n{tail}")
    return done.stdout


def output_of(*command: str) -> str:
    """What a command prints, or nothing if it cannot be run."""
    try:
        return run(*command)
    except (SetupFailed, OSError):
        return ""


# --- what the system has -----------------------------------------------------------------------------------
def version_in(text: str) -> Version:
    match = re.search(r"(\d+)(?:\.(\d+))?(?:\.(\d+))?", text)
    return tuple(int(part) for part in match.groups() if part) if match else ()


def dotted(version: Version) -> str:
    return ".".join(str(part) for part in version)


def find_python() -> tuple[str, Version]:
    """The Python for the environment: the one running this, or a newer one on the PATH."""
    names = [sys.executable, "python3", "python3.13", "python3.12", "python3.11"]
    for name in names:
        version = version_in(output_of(name, "-c", "import platform; print(platform.python_version())"))
        if version >= PYTHON_NEEDED:
            return name, version
    return "", ()


def has_venv(python: str) -> bool:
    return bool(output_of(python, "-c", "import ensurepip, venv; print('yes')"))


def java_version() -> Version:
    """Of the Java that Spark would start: JAVA_HOME wins over the PATH."""
    home = os.environ.get("JAVA_HOME")
    text = output_of(str(Path(home, "bin", "java")) if home else "java", "-version")
    match = re.search(r'version "([^"]+)"', text)
    version = version_in(match[1]) if match else ()
    return version[1:] if version[:1] == (1,) else version


def node_version() -> Version:
    return version_in(output_of("node", "--version"))


# --- installing with the system's package manager ------------------------------------------------------------
def package_manager() -> str | None:
    return next((name for name in PACKAGES if shutil.which(name)), None)


def privilege(manager: str) -> list[str] | None:
    """What to put before an install command so that it needs no password; None if there is no such way."""
    if manager == "brew" or os.geteuid() == 0:
        return []
    if shutil.which("sudo") and subprocess.run(["sudo", "-n", "true"], capture_output=True).returncode == 0:
        return ["sudo", "-n"]
    return None


def install_command(manager: str, packages: str) -> list[str]:
    if manager == "brew":
        return ["brew", "install", *packages.split()]
    extra = ["--no-install-recommends"] if manager == "apt-get" else []
    return [manager, "install", "-y", *extra, *packages.split()]


def install(what: str) -> None:
    """Installs a missing tool, or says exactly which command would."""
    manager = package_manager()
    if manager is None:
        raise SetupFailed("install it with your system's package manager and run `make setup` again")
    choices = PACKAGES[manager][what]
    prefix = privilege(manager)
    if prefix is None:
        command = " ".join(["sudo", *install_command(manager, choices[0])])
        raise SetupFailed(f"run this, then `make setup` again:\n    {command}")
    if manager == "apt-get":
        output_of(*prefix, "apt-get", "update")
    env = dict(os.environ, DEBIAN_FRONTEND="noninteractive", HOMEBREW_NO_AUTO_UPDATE="1")
    for number, packages in enumerate(choices, start=1):
        try:
            run(*prefix, *install_command(manager, packages), env=env)
            return
        except SetupFailed:
            if number == len(choices):
                raise


def require(title: str, what: str, needed: Version, found: Callable[[], Version]) -> None:
    """Makes sure a tool is there in the version needed, and installs it if not."""
    with Stage(title) as stage:
        version = found()
        if version < needed:
            missing = f"{title} {dotted(needed)} or newer is needed, found {dotted(version) or 'none'}"
            if what == "java" and os.environ.get("JAVA_HOME"):
                raise SetupFailed(f"{missing} in JAVA_HOME; point JAVA_HOME to a newer one or unset it")
            try:
                install(what)
            except SetupFailed as error:
                raise SetupFailed(f"{missing}; {error}") from None
            version = found()
            if version < needed:
                raise SetupFailed(f"{missing}, also after installing it; {advice_after_install(what)}")
        stage.result = dotted(version)


def advice_after_install(what: str) -> str:
    if what == "java" and package_manager() == "brew":
        home = "$(brew --prefix openjdk@17)/libexec/openjdk.jdk/Contents/Home"
        return f"tell where it is, then `make setup` again:\n    export JAVA_HOME={home}"
    return "put a newer one first on the PATH, then `make setup` again"


def require_tools() -> str:
    """Checks the tools and returns the Python to build the environment with."""
    require("Python", "python", PYTHON_NEEDED, lambda: find_python()[1])
    python = find_python()[0]
    if not has_venv(python):
        with Stage("Python's venv"):
            install("venv")
    require("Java", "java", (JAVA_NEEDED,), java_version)
    look_for_node()
    return python


def look_for_node() -> None:
    """Node builds the console; one that is missing is installed or noted, as all else works without it."""
    with Stage("Node") as stage:
        try:
            if node_version() < NODE_NEEDED:
                install("node")
        except SetupFailed as error:
            print(f"(only the console needs it) {' '.join(str(error).split())[:200]}")
        stage.result = dotted(node_version()) or "none"


# --- the environment -----------------------------------------------------------------------------------------
def digest(*parts: object) -> str:
    """A key that changes when one of the texts or the content of one of the files does."""
    contents = [part.read_bytes() if isinstance(part, Path) else str(part).encode() for part in parts]
    return hashlib.sha256(b"\0".join(contents)).hexdigest()


def environment_key() -> str:
    return digest(str(ROOT), UV, ROOT / "requirements.lock", ROOT / "pyproject.toml")


def uv_version() -> str:
    return next(line.split()[0] for line in UV.read_text("utf-8").splitlines() if line.startswith("uv=="))


def archive_key() -> str:
    return digest(ROOT / "requirements.lock", WARM, LOCAL_FILES)


def code_key() -> str:
    return digest(archive_key(), *sorted((ROOT / "src" / "penstock").rglob("*.py")))


def read_stamp() -> dict[str, str]:
    try:
        stamp = json.loads(STAMP.read_text("utf-8"))
    except (OSError, ValueError):
        return {}
    return stamp if isinstance(stamp, dict) else {}


def remember(**keys: str) -> None:
    fresh = STAMP.with_suffix(".new")
    fresh.write_text(json.dumps({**read_stamp(), **keys}, indent=2) + "\n", "utf-8")
    fresh.replace(STAMP)


def venv_is_usable() -> bool:
    """Whether `.venv` runs a fitting Python and stands where it was made; scripts inside hold its path."""
    moved = read_stamp().get("root", str(ROOT)) != str(ROOT)
    return not moved and version_in(output_of(str(VENV_PYTHON), "--version")) >= PYTHON_NEEDED


def make_venv(python: str) -> None:
    if venv_is_usable():
        return
    with Stage("Virtual environment"):
        if VENV.exists():
            shutil.rmtree(VENV)
        run(python, "-m", "venv", str(VENV))


def install_packages() -> None:
    pip = [str(VENV_PYTHON), "-m", "pip", "--disable-pip-version-check", "--quiet"]
    uv = [str(VENV / "bin" / "uv"), "pip", "--quiet"]
    env = dict(os.environ, VIRTUAL_ENV=str(VENV))
    with Stage("uv") as stage:
        try:
            run(*pip, "install", "--require-hashes", "--only-binary", ":all:", "-r", str(UV))
            stage.result = uv_version()
        except SetupFailed:
            stage.result = "not available, pip does the work"
            uv = pip
    with Stage("Packages") as stage:
        locked = ["install", "--require-hashes", "-r", "requirements.lock"]
        try:
            run(*uv, *locked, env=env)
        except SetupFailed:
            # uv does not read pip's configuration, so a mirror or proxy known to pip alone is worth a second try.
            if uv is pip:
                raise
            uv = pip
            run(*pip, *locked)
            stage.result = "done by pip"
    with Stage("Penstock"):
        # The build backend comes from the lock file too, so nothing unlocked is fetched to build with.
        run(*uv, "install", "--no-deps", "--no-build-isolation", "-e", ".", env=env)


def fetch_jars() -> None:
    """Jars of connectors; what cannot be had now is fetched when a pipeline first needs it."""
    if read_stamp().get("jars") == digest(JARS):
        return
    with Stage("Connector jars") as stage:
        try:
            stage.result = run(str(VENV_PYTHON), "-m", "penstock.engine.jars").strip()
        except SetupFailed as error:
            reason = str(error).strip().splitlines()[-1].strip()
            stage.result = f"not fetched, done when first used ({reason})"
        remember(jars=digest(JARS))


def make_archive() -> None:
    """The archive of Spark's classes only makes starts faster: without it everything works."""
    if not WARM.is_file() or read_stamp().get("archive") == archive_key():
        return
    # What failed will fail again, so it is only tried again with other code.
    if read_stamp().get("archive_failed") == code_key():
        return
    with Stage("Spark start-up archive") as stage:
        try:
            run(str(VENV_PYTHON), "-m", "penstock.engine.warm", env=dict(os.environ, PYSPARK_PYTHON=str(VENV_PYTHON)))
        except SetupFailed as error:
            reason = str(error).strip().splitlines()[-1].strip()
            stage.result = f"not made, Spark starts slower ({reason})"
            remember(archive_failed=code_key())
        else:
            remember(archive=archive_key())


def console_key() -> str:
    found = [*CONSOLE.iterdir(), *(CONSOLE / "src").rglob("*"), *(CONSOLE / "public").rglob("*")]
    return digest(*sorted(path for path in found if path.is_file()))


def console_is_due(key: str) -> bool:
    """Whether it is to be built: it has changed, and did not fail to build a moment ago."""
    stamp = read_stamp()
    if stamp.get("console") == key and BUILT.is_file():
        return False
    failed, _, at = stamp.get("console_failed", "").partition(" ")
    return failed != key or time.time() - float(at or 0) > AGAIN_SECONDS


def build_console() -> None:
    """The pages that `penstock serve` shows; without them it serves a page that says how to get them."""
    key = console_key()
    if not console_is_due(key):
        return
    with Stage("Console") as stage:
        try:
            if node_version() < NODE_NEEDED:
                raise SetupFailed(f"it takes Node {dotted(NODE_NEEDED)} or newer")
            install_console_packages()
            run("npm", "--prefix", str(CONSOLE), "run", "build")
        except (SetupFailed, OSError) as error:
            reason = str(error).strip().splitlines()[-1].strip()
            stage.result = f"not built ({reason})"
            remember(console_failed=f"{key} {int(time.time())}")
        else:
            remember(console=key)


def install_console_packages() -> None:
    locked = digest(CONSOLE / "package-lock.json")
    if read_stamp().get("console_packages") == locked and (CONSOLE / "node_modules").is_dir():
        return
    run("npm", "--prefix", str(CONSOLE), "ci", "--no-audit", "--no-fund", "--fetch-retries=1")
    remember(console_packages=locked)


def main() -> int:
    started = time.monotonic()
    if read_stamp().get("environment") != environment_key() or not VENV_PYTHON.exists():
        print("Setting up Penstock")
        python = require_tools()
        make_venv(python)
        install_packages()
        remember(root=str(ROOT), environment=environment_key())
        fetch_jars()
        make_archive()
        build_console()
        print(f"Ready after {time.monotonic() - started:.1f} s")
    else:
        fetch_jars()
        make_archive()
        build_console()
    return 0


if __name__ == "__main__":
    try:
        sys.exit(main())
    except SetupFailed as error:
        print(f"\nsetup: {error}", file=sys.stderr)
        sys.exit(1)
    except KeyboardInterrupt:
        print("\nsetup: stopped", file=sys.stderr)
        sys.exit(130)
