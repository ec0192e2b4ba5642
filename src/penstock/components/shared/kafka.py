"""What the Kafka source and sink have in common: the broker's address, how it is trusted, and which options may be set.

Nothing of a pipeline file reaches the client unchecked: options stand on a list, and each has a form.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from penstock.access.limits import check_address
from penstock.components.base import resolve_path
from penstock.errors import PenstockError, Problem, did_you_mean
from penstock.spec.fields import Config, Holds, field

if TYPE_CHECKING:
    from confluent_kafka import KafkaException

_ADDRESS = re.compile(r"[A-Za-z0-9._\-\[\]:]+:\d{1,5}")
_SECONDS = 10.0
LONGEST_TRANSACTION = 900
"""Seconds that a broker allows as it comes (`transaction.max.timeout.ms`)."""
SLOWEST_ROWS = 5_000
"""How many rows a second are sent at least; with fewer a transaction may be ended by the broker."""
TRANSACTION_TIMEOUT = "transaction.timeout.ms"
Mechanism = Literal["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"]


class Security(Config):
    """How the broker is trusted and how the pipeline logs in."""

    tls: bool = field(False, doc="Whether the connection is encrypted.")
    ca: str | None = field(
        None, holds=Holds.PATH, doc="PEM file with the certificates to trust. Default: those of the system."
    )
    certificate: str | None = field(None, holds=Holds.PATH, doc="PEM file with the client's own certificate.")
    certificate_key: str | None = field(None, holds=Holds.PATH, doc="PEM file with its key.")
    username: str | None = field(None, holds=Holds.LOGIN, doc="The name to log in with.")
    password: str | None = field(None, holds=Holds.LOGIN, doc="The password, as a secret reference.", secret=True)
    mechanism: Mechanism = field("PLAIN", doc="How the password is checked.")

    @property
    def protocol(self) -> str:
        return f"{'SASL_' if self.username else ''}{'SSL' if self.tls else 'PLAINTEXT'}"

    def problems(self) -> Iterator[Problem]:
        """What does not go together."""
        where = "security of kafka"
        if (self.username is None) != (self.password is None):
            missing = "password" if self.password is None else "username"
            params = {"key": missing, "where": where, "advice": "A login has both a name and a password."}
            yield Problem("SPEC_MISSING_KEY", params, at=("security", missing))
        if not self.tls and (self.ca or self.certificate or self.certificate_key):
            reason = "certificates are of no use without encryption"
            params = {"where": where, "reason": f"{reason}; write `tls: true`"}
            yield Problem("SPEC_BAD_VALUE", params, at=("security", "tls"))
        if (self.certificate is None) != (self.certificate_key is None):
            missing = "certificate" if self.certificate is None else "certificateKey"
            params = {"key": missing, "where": where, "advice": "A certificate goes with its key."}
            yield Problem("SPEC_MISSING_KEY", params, at=("security", missing))

    def missing_files(self, folder: Path) -> Iterator[Problem]:
        for key, path in (("ca", self.ca), ("certificate", self.certificate), ("certificateKey", self.certificate_key)):
            if path is not None and not Path(resolve_path(folder, path)).is_file():
                yield Problem("PATH_NOT_FOUND", {"where": "security of kafka", "path": path}, at=("security", key))

    def for_c(self, folder: Path) -> dict[str, str]:
        """As the client takes it."""
        found = {"security.protocol": self.protocol}
        if self.username is not None:
            found |= {"sasl.mechanism": self.mechanism, "sasl.username": self.username}
            found["sasl.password"] = self.password or ""
        for key, path in (("ssl.ca.location", self.ca), ("ssl.certificate.location", self.certificate),
                          ("ssl.key.location", self.certificate_key)):  # fmt: skip
            if path is not None:
                found[key] = resolve_path(folder, path)
        return found


def reachable(bootstrap: str) -> str:
    """The brokers' addresses; raises URL_NOT_ALLOWED for one that this process may not reach."""
    check_address(bootstrap, "the address of a broker")
    return bootstrap


def address_problems(bootstrap: str) -> Iterator[Problem]:
    for address in bootstrap.split(","):
        if not _ADDRESS.fullmatch(address.strip()):
            reason = f"'{address.strip()}' is not host:port"
            yield Problem("SPEC_BAD_VALUE", {"where": "bootstrap of kafka", "reason": reason}, at=("bootstrap",))


def option_problems(options: Mapping[str, str], allowed: Mapping[str, re.Pattern[str]]) -> Iterator[Problem]:
    """Options that are not on the list, or whose value is not of its form."""
    for key, value in options.items():
        if key not in allowed:
            reason = f"option '{key}' may not be set. {did_you_mean(key, allowed)}".rstrip()
            yield Problem("SPEC_BAD_VALUE", {"where": "options of kafka", "reason": reason}, at=("options", key))
        elif not allowed[key].fullmatch(value):
            reason = f"option '{key}' cannot be '{value}'"
            yield Problem("SPEC_BAD_VALUE", {"where": "options of kafka", "reason": reason}, at=("options", key))


NUMBER = re.compile(r"\d{1,18}")
WORD = re.compile(r"[A-Za-z0-9_.\-]{1,100}")


def topics_at(bootstrap: str, security: Security, folder: Path, node: str) -> list[str]:
    """The topics that the broker has; raises KAFKA_UNREACHABLE with what is wrong."""
    from confluent_kafka import KafkaException
    from confluent_kafka.admin import AdminClient

    troubles: list[Any] = []
    settings: dict[str, Any] = {
        "bootstrap.servers": reachable(bootstrap),
        "error_cb": troubles.append,
        "logger": silent(),
        "socket.connection.setup.timeout.ms": 5000,
        **security.for_c(folder),
    }
    client = AdminClient(settings)
    try:
        return list(client.list_topics(timeout=_SECONDS).topics)
    except KafkaException as error:
        # What went wrong is told only to those who ask.
        client.poll(0)
        raise unreachable(node, bootstrap, error, troubles) from None


def unreachable(node: str, bootstrap: str, error: KafkaException, troubles: list[Any]) -> PenstockError:
    texts = [str(trouble.str()) for trouble in troubles] or [str(error.args[0].str())]
    login = next((text for text in texts if "uthenticat" in text), None)
    if login is not None:
        return PenstockError.of("KAFKA_LOGIN_FAILED", node=node, bootstrap=bootstrap, reason=_first(login))
    return PenstockError.of("KAFKA_UNREACHABLE", node=node, bootstrap=bootstrap, reason=_first(texts[0]))


def _first(text: str) -> str:
    return text.split(" (after")[0].strip()


def silent() -> Any:
    import logging

    logger = logging.getLogger("penstock.kafka")
    logger.addHandler(logging.NullHandler())
    logger.propagate = False
    return logger
