"""Fetches jars with the Ivy that lies among PySpark's own jars; it knows Maven Central by itself.

A jar is named `group:artifact:version`, or `group:artifact:version:classifier`.

Nothing is kept but what was asked for: Ivy's cache lives in a temporary folder.
"""

from __future__ import annotations

import re
import subprocess
from collections.abc import Iterable, Sequence
from pathlib import Path
from xml.sax.saxutils import quoteattr

import pyspark

from penstock.engine.jvm import find_java

SPARK_JARS = Path(pyspark.__file__).parent / "jars"
_SECONDS = 900
_MAVEN = "http://ant.apache.org/ivy/maven"
_LAYOUT = "[organisation]/[artifact]/[revision]/[artifact]-[revision](-[classifier]).[ext]"
_UNREACHABLE = re.compile(r"Server access error|UnknownHostException|ConnectException|SocketException|timed out")
_NOT_FOUND = re.compile(r":: ([^#\s]+)#([^;\s]+);(\S+?)(?:![^:\s]+)?: not found")


class IvyFailed(Exception):
    """Says in one line why there are no jars."""


def retrieve(
    coordinates: Iterable[str],
    folder: Path,
    *,
    transitive: bool = False,
    excluded: Iterable[str] = (),
    repositories: Sequence[str] = (),
) -> dict[str, Path]:
    """Fetches jars below a folder, and with them what they need if `transitive`.

    `excluded` are names `group:artifact` that are not followed, with `*` for any text. `repositories` are asked after
    Maven Central. Raises IvyFailed if one of the jars cannot be had.
    """
    folder.mkdir(parents=True, exist_ok=True)
    settings, module, jars = folder / "settings.xml", folder / "module.xml", folder / "jars"
    settings.write_text(_settings(folder / "cache", repositories, poms=transitive), "utf-8")
    module.write_text(_module(coordinates, transitive, excluded), "utf-8")
    command = [
        find_java(), "-XX:TieredStopAtLevel=1", f"-Divy.default.ivy.user.dir={folder / 'home'}",
        "-cp", str(_ivy_jar()), "org.apache.ivy.Main", "-settings", str(settings), "-ivy", str(module),
        "-types", "jar", "bundle", "-retrieve", str(jars / _LAYOUT),
    ]  # fmt: skip
    try:
        done = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=_SECONDS)
    except subprocess.TimeoutExpired:
        raise IvyFailed(f"{_asked(repositories)} gave no answer within {_SECONDS // 60} minutes") from None
    if done.returncode != 0:
        raise IvyFailed(_reason(done.stdout + done.stderr, repositories))
    return {_coordinate(jar, jars): jar for jar in sorted(jars.rglob("*.jar"))}


def _ivy_jar() -> Path:
    found = sorted(SPARK_JARS.glob("ivy-*.jar"))
    if not found:
        raise IvyFailed("this PySpark comes without Ivy")
    return found[0]


def _settings(cache: Path, repositories: Sequence[str], *, poms: bool) -> str:
    """A resolver without a root is Maven Central; without poms each jar is one request."""
    use = "true" if poms else "false"
    roots = ["", *(f" root={quoteattr(url)}" for url in repositories)]
    chain = "".join(
        f'<ibiblio name="{number}"{root} m2compatible="true" usepoms="{use}"/>' for number, root in enumerate(roots)
    )
    return (
        f'<ivysettings><settings defaultResolver="all"/><caches defaultCacheDir={quoteattr(str(cache))}/>'
        f'<resolvers><chain name="all">{chain}</chain></resolvers></ivysettings>'
    )


def _module(coordinates: Iterable[str], transitive: bool, excluded: Iterable[str]) -> str:
    follow = "true" if transitive else "false"
    lines = [f'<ivy-module version="2.0" xmlns:m="{_MAVEN}"><info organisation="penstock" module="jars"/>']
    lines.append('<configurations><conf name="default"/></configurations><dependencies>')
    modules: dict[tuple[str, ...], list[str]] = {}
    for coordinate in coordinates:
        group, artifact, version, *classifier = coordinate.split(":")
        modules.setdefault((group, artifact, version), []).append(classifier[0] if classifier else "")
    for (group, artifact, version), classifiers in modules.items():
        target = f"org={quoteattr(group)} name={quoteattr(artifact)} rev={quoteattr(version)}"
        lines.append(f'<dependency {target} conf="default-&gt;default" transitive="{follow}">')
        if any(classifiers):
            lines += (_artifact(artifact, classifier) for classifier in classifiers)
        lines.append("</dependency>")
    for name in excluded:
        group, artifact = (quoteattr(re.escape(part).replace(r"\*", ".*")) for part in name.split(":"))
        lines.append(f'<exclude org={group} module={artifact} matcher="regexp"/>')
    return "\n".join([*lines, "</dependencies></ivy-module>"])


def _artifact(name: str, classifier: str) -> str:
    further = f" m:classifier={quoteattr(classifier)}" if classifier else ""
    return f'<artifact name={quoteattr(name)} type="jar" ext="jar"{further}/>'


def _coordinate(jar: Path, below: Path) -> str:
    group, artifact, version, file = jar.relative_to(below).parts
    classifier = file.removeprefix(f"{artifact}-{version}").removesuffix(".jar").removeprefix("-")
    return ":".join([group, artifact, version, *([classifier] if classifier else [])])


def _asked(repositories: Sequence[str]) -> str:
    return "the repositories" if repositories else "Maven Central"


def _reason(output: str, repositories: Sequence[str]) -> str:
    # A server that does not answer is reported as "not found" as well, so this is asked first.
    if _UNREACHABLE.search(output):
        return "not all repositories can be reached" if repositories else "Maven Central cannot be reached"
    missing = dict.fromkeys(":".join(found) for found in _NOT_FOUND.findall(output))
    if missing:
        verb = "do" if repositories else "does"
        return f"{_asked(repositories)} {verb} not have {', '.join(missing)}"
    lines = [line.strip() for line in output.splitlines() if line.strip()]
    return lines[-1] if lines else "Ivy ended without a word"
