"""The configuration of a server, read from the file that `penstock serve --config` names. Without one, all defaults."""

from __future__ import annotations

import datetime as dt
import re
from pathlib import Path
from typing import Any, Literal

from pydantic import ValidationInfo, field_validator, model_validator

from penstock.control.alerts.notify.channels import Channel
from penstock.control.auth.roles import Role
from penstock.control.store.thin import Keep
from penstock.control.supervisor import ports
from penstock.errors import PenstockError, did_you_mean
from penstock.frontends.configs import read_config
from penstock.frontends.document import read_document, read_text
from penstock.frontends.findings import Findings
from penstock.spec.fields import Config, field
from penstock.spec.pipeline import PIPELINE_NAME
from penstock.spec.secrets import references, texts
from penstock.spec.units import Duration, Size

_MASTER = re.compile(r"local(\[(\*|\d+)(,\d+)?\])?|yarn|(spark|k8s)://[A-Za-z0-9.:,/_\-\[\]]+")
_CONF_KEY = re.compile(r"spark\.[A-Za-z0-9._-]+")
_PACKAGE = re.compile(r"[A-Za-z0-9._-]+:[A-Za-z0-9._-]+:[A-Za-z0-9._-]+")


class Target(Config):
    """A Spark master with its options: a place where pipelines run."""

    master: str = field("local[*]", doc="The Spark master: `local[*]`, `spark://…`, `yarn` or `k8s://…`.")
    conf: dict[str, str] = field({}, doc="Further Spark options.")
    driver_memory: str | None = field(None, doc="Memory of the driver, such as `4g`.", pattern=r"^\d+[kmgt]$")
    packages: tuple[str, ...] = field((), doc="Maven coordinates of jars to add.")
    failover: tuple[str, ...] | None = field(
        None, doc="Where pipelines go when it is taken away, in this order. Default: all other targets, in theirs."
    )
    role: Role = field(Role.OPERATOR, doc="The role it takes to put a pipeline there.")

    @field_validator("master")
    @classmethod
    def _is_a_master(cls, value: str) -> str:
        if not _MASTER.fullmatch(value):
            raise ValueError("it is not local[*], local[N], spark://host:port, yarn or k8s://…")
        return value

    @field_validator("conf")
    @classmethod
    def _has_spark_keys(cls, value: dict[str, str]) -> dict[str, str]:
        for key in value:
            if not _CONF_KEY.fullmatch(key):
                raise ValueError(f"'{key}' is not a Spark option")
        return value

    @field_validator("packages")
    @classmethod
    def _are_coordinates(cls, value: tuple[str, ...]) -> tuple[str, ...]:
        for package in value:
            if not _PACKAGE.fullmatch(package):
                raise ValueError(f"'{package}' is not group:artifact:version")
        return value


class PathRules(Config):
    """Where pipelines may read and write files."""

    folder: str | None = field(
        None, doc="The folder at which relative paths in pipelines start. Default: `files` in the server's folder."
    )
    allowed: tuple[str, ...] = field(
        (), doc="Folders below which pipelines may name paths, beside `folder`. An absolute `/` allows everything."
    )


class AddressRules(Config):
    """What pipelines may reach over the network, as far as their files name it."""

    schemes: tuple[str, ...] = field(
        ("s3", "s3a", "http", "https", "postgresql", "postgres", "mysql", "mariadb", "redis", "rediss"),
        doc="Schemes of URLs that pipelines may name; `file` is never needed, as plain paths do the same.",
    )
    hosts: tuple[str, ...] = field(
        (), doc="Hosts that may be named, such as `*.example.org`. Default: all but those that are denied."
    )
    denied: tuple[str, ...] = field(
        (), doc="Hosts that may not be named, beside the metadata addresses of clouds, which never may."
    )


class SecretRules(Config):
    """Which secrets pipelines may refer to. They are looked up where the pipeline runs, with the server's rights."""

    env: tuple[str, ...] = field(
        ("*",), doc="Names of environment variables, such as `NEWS_*`. Those that begin with PENSTOCK_ never may."
    )
    files: tuple[str, ...] = field((), doc="Folders below which `${secret:file/…}` may lie.")


class Tls(Config):
    """The certificate with which the server shows itself."""

    cert: str = field(doc="PEM file with the certificate, and those between it and its issuer.")
    key: str = field(doc="PEM file with its key.")


class OidcSettings(Config):
    """Login of people by an issuer of OpenID Connect."""

    issuer: str = field(doc="The issuer's address, as it calls itself.", pattern=r"^https?://\S+$")
    client_id: str = field(doc="The name under which the server is known there.", min_length=1)
    client_secret: str | None = field(None, doc="The secret of the client, as a secret reference.", secret=True)
    redirect: str = field(
        doc="The address of this server to which people come back: `https://HOST/api/v1/login/callback`.",
        pattern=r"^https?://\S+$",
    )
    scopes: tuple[str, ...] = field(("profile", "email"), doc="What is asked for beside `openid`.")
    name_claim: str = field("email", doc="The claim that names the person in the audit log.")
    role_claim: str = field("groups", doc="The claim whose values are mapped to roles.")
    roles: dict[str, Role] = field({}, doc="The role of each value of that claim; the highest counts.")
    session: Duration = field(Duration(8 * 3_600_000), doc="How long a login lasts.")


class Limits(Config):
    """How much the server takes."""

    body: Size = field(Size(4_000_000), doc="The largest request.")
    failed_logins: int = field(10, ge=1, doc="How often an address may fail to log in within a minute.")
    streams: int = field(200, ge=1, doc="How many streams of events and logs may be open at once.")


class HistorySettings(Config):
    """How long what is kept."""

    batches: Duration = field(Duration(86_400_000), doc="How long every batch is kept.")
    minutes: Duration = field(Duration(7 * 86_400_000), doc="How long a row a minute is kept.")
    hours: Duration = field(
        Duration(90 * 86_400_000), doc="How long a row an hour is kept, and runs, events, exceptions and alerts."
    )
    audit: Duration = field(Duration(365 * 86_400_000), doc="How long the audit log is kept.")

    @property
    def keep(self) -> Keep:
        lengths = (self.batches, self.minutes, self.hours, self.audit)
        return Keep(*(dt.timedelta(milliseconds=length.millis) for length in lengths))


class ServerConfig(Config):
    """All that can be said about a server."""

    targets: dict[str, Target] = field(
        {"local": Target()},
        doc="Where pipelines run, by name. The first is taken for a pipeline that names none.",
        min_length=1,
    )
    paths: PathRules = field(PathRules(), doc="Where pipelines may read and write files.")
    addresses: AddressRules = field(AddressRules(), doc="What pipelines may reach over the network.")
    secrets: SecretRules = field(SecretRules(), doc="Which secrets pipelines may refer to.")
    notify: dict[str, Channel] = field({}, doc="Channels by which people are told of alerts, by name.")
    cloud: Literal["aws", "azure", "google"] | None = field(
        None,
        doc="The cloud whose metadata address says that this machine will be taken away. Pipelines on targets that use "
        "this machine alone (`local`) then go on elsewhere.",
    )
    tls: Tls | None = field(None, doc="The server's certificate; without one it speaks plain HTTP.")
    oidc: OidcSettings | None = field(None, doc="Login by OpenID Connect, beside tokens.")
    limits: Limits = field(Limits(), doc="How much the server takes.")
    history: HistorySettings = field(HistorySettings(), doc="How long history is kept.")

    @field_validator("targets", "notify")
    @classmethod
    def _have_names(cls, value: dict[str, Any], info: ValidationInfo) -> dict[str, Any]:
        kind = "target" if info.field_name == "targets" else "channel"
        for name in value:
            if not PIPELINE_NAME.fullmatch(name):
                raise ValueError(f"'{name}' cannot be the name of a {kind}; use lower-case letters, digits and dashes")
        return value

    @model_validator(mode="after")
    def _minutes_follow_batches(self) -> ServerConfig:
        kept = self.history
        if not kept.batches <= kept.minutes <= kept.hours:
            raise ValueError("history: `batches` must not be longer than `minutes`, nor `minutes` than `hours`")
        return self

    @field_validator("targets")
    @classmethod
    def _fail_over_to_each_other(cls, value: dict[str, Target]) -> dict[str, Target]:
        for name, target in value.items():
            for other in target.failover or ():
                if other not in value or other == name:
                    raise ValueError(f"target '{name}' cannot fail over to '{other}'")
        return value

    @property
    def supervised(self) -> dict[str, ports.Target]:
        """The targets as the supervisor takes them."""
        return {
            name: ports.Target(
                target.master,
                target.conf,
                target.driver_memory,
                target.packages,
                tuple(other for other in self.targets if other != name) if target.failover is None else target.failover,
            )
            for name, target in self.targets.items()
        }

    @property
    def own_variables(self) -> frozenset[str]:
        """Environment variables with secrets of the server itself, which are not for pipelines."""
        found = (ref for _, text in texts(self.model_dump()) for ref in references(text))
        return frozenset(ref.key for ref in found if ref.store == "env")

    @property
    def local_targets(self) -> tuple[str, ...]:
        """Targets that end with this machine."""
        return tuple(name for name, target in self.targets.items() if target.master.startswith("local"))

    @property
    def default_target(self) -> str:
        return next(iter(self.targets))

    def target(self, name: str | None) -> Target:
        """Raises TARGET_UNKNOWN."""
        chosen = name or self.default_target
        if chosen not in self.targets:
            raise PenstockError.of("TARGET_UNKNOWN", name=chosen, suggestion=did_you_mean(chosen, self.targets))
        return self.targets[chosen]


def read_server_config(path: Path | None) -> ServerConfig:
    """The configuration in a file, or the default one; raises all that is wrong with it, each at its place."""
    if path is None:
        return ServerConfig()
    if not path.exists():
        raise PenstockError.of("FILE_NOT_FOUND", path=path)
    text = read_text(path)
    if not _says_anything(text):
        return ServerConfig()
    document = read_document(text, str(path))
    findings = Findings(document.places, document.problems)
    config = read_config(ServerConfig, document.content, (), findings)
    findings.raise_if_any()
    assert config is not None
    return config


def _says_anything(text: str) -> bool:
    return any(line.strip() and not line.strip().startswith("#") for line in text.splitlines())
