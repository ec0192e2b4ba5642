"""Rules on secrets and connections: nothing secret stands in a file or goes over a network without encryption."""

from __future__ import annotations

import re
from collections.abc import Iterator
from urllib.parse import parse_qs, urlsplit

from penstock.components.formats.avro import Avro
from penstock.components.shared.kafka import Security
from penstock.components.shared.registry_field import Registry
from penstock.components.sinks.kafka import Kafka as KafkaSink
from penstock.doctor.checkup import Checkup, host_of, is_this_machine
from penstock.doctor.findings import Severity
from penstock.doctor.rule import Found, rule
from penstock.spec.fields import Holds
from penstock.spec.location import Path_
from penstock.spec.secrets import without_references

_LITERALS = {
    "an AWS access key": re.compile(r"\b(?:AKIA|ASIA)[0-9A-Z]{16}\b"),
    "a private key": re.compile(r"-----BEGIN [A-Z ]*PRIVATE KEY-----"),
    "a GitHub token": re.compile(r"\b(?:ghp|gho|ghs|github_pat)_[A-Za-z0-9_]{20,}"),
    "a signed token": re.compile(r"\beyJ[A-Za-z0-9_-]{8,}\.eyJ[A-Za-z0-9_-]{8,}\."),
    "a token of Penstock": re.compile(r"\bpst_[A-Za-z0-9_-]{16,}"),
    "a password in an address": re.compile(r"\b[a-z][a-z0-9+.-]*://[^\s/:@$]+:[^\s/@$]+@"),
}


@rule(
    "secret-literal",
    Severity.ERROR,
    message="{where} seems to hold {what}",
    why="Pipeline files are committed, sent to servers, shown in the console and kept in every version. "
    "A secret that was in one is no longer secret.",
    fix="Revoke it, and refer to a new one in the field of a connection: `${{secret:env/NAME}}`.",
)
def secret_literal(checkup: Checkup) -> Iterator[Found]:
    for path, text in _all_texts(checkup):
        what = next((name for name, pattern in _LITERALS.items() if pattern.search(text)), None)
        if what is not None:
            yield Found(path, {"where": f"`{path[-1]}`", "what": what})


def _all_texts(checkup: Checkup) -> Iterator[tuple[Path_, str]]:
    for key, value in checkup.pipeline.labels.items():
        yield ("metadata", "labels", key), value
    for text in checkup.texts():
        yield text.path, text.text


@rule(
    "login-unencrypted",
    Severity.ERROR,
    message="the connection to {host} has a login and no encryption",
    why="Anyone on the network path can read and change what is transferred, and often obtain the login too.",
    fix="{advice}",
)
def login_unencrypted(checkup: Checkup) -> Iterator[Found]:
    for path, address, security in _brokers(checkup):
        if security.username is not None and not security.tls and not is_this_machine(address.split(",")[0]):
            evidence = {"host": host_of(address.split(",")[0]), "advice": "Write `security: {tls: true, …}`."}
            yield Found((*path, "security"), evidence, key=True)
    for path, registry in _registries(checkup):
        host = host_of(registry.url)
        if registry.url.startswith("http://") and registry.password and not is_this_machine(registry.url):
            yield Found((*path, "url"), {"host": host, "advice": "Write `url: https://…`."})
    for text in checkup.texts():
        advice = _open_database(text.text) if text.holds is Holds.ADDRESS else None
        if advice is not None:
            host = host_of(without_references(text.text, "x"))
            yield Found(text.path, {"host": host, "advice": advice})


def _brokers(checkup: Checkup) -> Iterator[tuple[Path_, str, Security]]:
    for _, kafka, path in checkup.kafka_sources():
        yield path, kafka.bootstrap, kafka.security
    for sink in checkup.all_sinks():
        if isinstance(sink.component, KafkaSink):
            yield sink.path, sink.component.bootstrap, sink.component.security


def _registries(checkup: Checkup) -> Iterator[tuple[Path_, Registry]]:
    for source in checkup.pipeline.sources:
        if isinstance(source.format, Avro) and source.format.registry is not None:
            yield ("spec", "sources", source.name, "format", "avro", "registry"), source.format.registry


def _open_database(url: str) -> str | None:
    """What to write in a URL that turns encryption off; None if it does not."""
    plain = without_references(url, "x")
    try:
        parts = urlsplit(plain)
        options, password = parse_qs(parts.query), parts.password
    except ValueError:
        return None
    if not password or is_this_machine(plain):
        return None
    if parts.scheme.startswith("postgres") and options.get("sslmode", [""])[0] in ("disable", "allow"):
        return "Write `sslmode=verify-full`, or `require`, in the URL."
    if parts.scheme in ("mysql", "mariadb") and options.get("ssl_mode") == ["disabled"]:
        return "Write `ssl_mode=verify-identity`, or `verify-ca`, in the URL."
    return None


@rule(
    "address-localhost",
    Severity.WARNING,
    message="{address} means the machine that the pipeline happens to run on",
    why="A pipeline that is moved to another machine or a cluster finds another server there, or none.",
    fix="Write the name of the server.",
    production_only=True,
)
def address_localhost(checkup: Checkup) -> Iterator[Found]:
    for text in checkup.texts():
        address = without_references(text.text, "x")
        if text.holds is Holds.ADDRESS and any(is_this_machine(part) for part in address.split(",")):
            yield Found(text.path, {"address": host_of(address.split(",")[0])})
