"""Fetches jars with the Ivy that lies among PySpark's own jars; it knows Maven Central by itself.

Nothing is kept but what was asked for: Ivy's cache lives in a temporary folder.
"""

from __future__ import annotations

import re
import subprocess
from collections.abc import Iterable
from pathlib import Path
from xml.sax.saxutils import quoteattr

import pyspark

from penstock.engine.jvm import find_java

SPARK_JARS = Path(pyspark.__file__).parent / "jars"
_SECONDS = 900
_LAYOUT = "[organisation]/[artifact]/[revision]/[artifact]-[revision](-[classifier]).[ext]"
_UNREACHABLE = re.compile(r"Server access error|UnknownHostException|ConnectException|SocketException|timed out")
_NOT_FOUND = re.compile(r":: ([^#\s]+)#([^;\s]+);(\S+?)(?:![^:\s]+)?: not found")


class IvyFailed(Exception):
    """Says in one line why there are no jars."""


def retrieve(
    coordinates: Iterable[str], folder: Path, *, transitive: bool = False, excluded: Iterable[str] = ()
) -> dict[str, Path]:
    """Fetches jars named `group:artifact:version` below a folder, and with them what they need if `transitive`.

    `excluded` are names `group:artifact` that are not followed. Raises IvyFailed if one of the jars cannot be had.
    """
    folder.mkdir(parents=True, exist_ok=True)
    settings, module, jars = folder / "settings.xml", folder / "module.xml", folder / "jars"
    settings.write_text(_settings(folder / "cache", poms=transitive), "utf-8")
    module.write_text(_module(coordinates, transitive, excluded), "utf-8")
    command = [
        find_java(), "-XX:TieredStopAtLevel=1", f"-Divy.default.ivy.user.dir={folder / 'home'}",
        "-cp", str(_ivy_jar()), "org.apache.ivy.Main", "-settings", str(settings), "-ivy", str(module),
        "-types", "jar", "bundle", "-retrieve", str(jars / _LAYOUT),
    ]  # fmt: skip
    try:
        done = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=_SECONDS)
    except subprocess.TimeoutExpired:
        raise IvyFailed(f"Maven Central gave no answer within {_SECONDS // 60} minutes") from None
    if done.returncode != 0:
        raise IvyFailed(_reason(done.stdout + done.stderr))
    return {_coordinate(jar, jars): jar for jar in sorted(jars.rglob("*.jar"))}


def _ivy_jar() -> Path:
    found = sorted(SPARK_JARS.glob("ivy-*.jar"))
    if not found:
        raise IvyFailed("this PySpark comes without Ivy")
    return found[0]


def _settings(cache: Path, *, poms: bool) -> str:
    """The resolver's own default is Maven Central; without poms each jar is one request."""
    use = "true" if poms else "false"
    return (
        f'<ivysettings><settings defaultResolver="central"/><caches defaultCacheDir={quoteattr(str(cache))}/>'
        f'<resolvers><ibiblio name="central" m2compatible="true" usepoms="{use}"/></resolvers></ivysettings>'
    )


def _module(coordinates: Iterable[str], transitive: bool, excluded: Iterable[str]) -> str:
    follow = "true" if transitive else "false"
    lines = ['<ivy-module version="2.0"><info organisation="penstock" module="jars"/>']
    lines.append('<configurations><conf name="default"/></configurations><dependencies>')
    for coordinate in coordinates:
        group, artifact, version = (quoteattr(part) for part in coordinate.split(":"))
        target = f"org={group} name={artifact} rev={version}"
        lines.append(f'<dependency {target} conf="default-&gt;default" transitive="{follow}"/>')
    for name in excluded:
        group, artifact = (quoteattr(part) for part in name.split(":"))
        lines.append(f"<exclude org={group} module={artifact}/>")
    return "\n".join([*lines, "</dependencies></ivy-module>"])


def _coordinate(jar: Path, below: Path) -> str:
    group, artifact, version, _ = jar.relative_to(below).parts
    return f"{group}:{artifact}:{version}"


def _reason(output: str) -> str:
    # A server that does not answer is reported as "not found" as well, so this is asked first.
    if _UNREACHABLE.search(output):
        return "Maven Central cannot be reached"
    missing = dict.fromkeys(":".join(found) for found in _NOT_FOUND.findall(output))
    if missing:
        return f"Maven Central does not have {', '.join(missing)}"
    lines = [line.strip() for line in output.splitlines() if line.strip()]
    return lines[-1] if lines else "Ivy ended without a word"
