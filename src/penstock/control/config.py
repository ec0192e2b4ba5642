"""The configuration of a server, read from the file that `penstock serve --config` names. Without one, all defaults."""

from __future__ import annotations

import datetime as dt
import ipaddress
import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from itertools import combinations
from pathlib import Path
from typing import Any, Literal, TypeVar

from pydantic import ValidationInfo, field_validator, model_validator

from penstock.control.alerts.notify.channels import Channel
from penstock.control.auth.roles import LABEL_KEY, Role
from penstock.control.quotas import refuse_unlimited
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
_UNCHECKED = ("spark.jars.packages", "spark.jars.ivySettings")
_CONF_KEY = re.compile(r"spark\.[A-Za-z0-9._-]+")
_Named = TypeVar("_Named")
_SPARK_SIZE = re.compile(r"\d+[kmgt]")
_PACKAGE = re.compile(r"[A-Za-z0-9._-]+:[A-Za-z0-9._-]+:[A-Za-z0-9._-]+")


class Target(Config):
    """A Spark master with its options: a place where pipelines run."""

    master: str = field("local[*]", doc="The Spark master: `local[*]`, `spark://…`, `yarn` or `k8s://…`.")
    conf: dict[str, str] = field({}, doc="Further Spark options.")
    driver_memory: str | None = field(None, doc="Memory of the driver, such as `4g`.", pattern=r"^\d+[kmgt]$")
    packages: tuple[str, ...] = field(
        (), doc="Maven coordinates of jars to add. `penstock packages lock` notes what they are; only that is loaded."
    )
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
            if key in _UNCHECKED:
                raise ValueError(f"'{key}' would load jars that nobody checks; name them in `packages` of the target")
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
        (),
        doc="Folders below which pipelines may name paths, beside `folder`, and places such as `s3a://bucket/prefix`; "
        "where one of these is named, no other bucket may be. `/` allows all but the server's own folder.",
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
        (),
        doc="Names of environment variables, such as `NEWS_*`, upper and lower case as written. Those that begin with "
        "PENSTOCK_ never may. Default: none.",
    )
    files: tuple[str, ...] = field((), doc="Folders below which `${secret:file/…}` may lie.")


class RunSettings(Config):
    """How processes of pipelines are started: runs, operations, previews and examinations of Python files."""

    environment: tuple[str, ...] = field(
        (),
        doc="Further environment variables of the server that every pipeline gets, such as `AWS_*` or `HTTPS_PROXY`. "
        "Secrets that a pipeline refers to come by themselves.",
    )
    read: tuple[str, ...] = field(
        (),
        doc="Further files and folders that every pipeline may read, such as the configuration of a cluster. Python, "
        "Java, certificates and what `paths` allows are there without it.",
    )
    umask: str = field(
        "077", doc="Which rights files that pipelines write do not have, as three octal digits.", pattern=r"^[0-7]{3}$"
    )

    @property
    def readable(self) -> tuple[Path, ...]:
        return tuple(Path(path).expanduser().absolute() for path in self.read)

    @property
    def mask(self) -> int:
        return int(self.umask, 8)


class Quotas(Config):
    """How much the pipelines of a project may take together. Without a number there is no limit."""

    pipelines: int | None = field(None, ge=0, doc="How many pipelines there may be, running or not.")
    cores: int | None = field(None, ge=1, doc="Cores of all that run, by the options of their targets.")
    memory: Size | None = field(
        None, doc="Memory of all that run, by the options of their targets, such as `16g` or `16 GiB`."
    )
    disk: Size | None = field(None, doc="Bytes in the project's folder and in the state of its pipelines.")

    @field_validator("memory", "disk", mode="before")
    @classmethod
    def _as_spark_writes_it(cls, value: Any) -> Any:
        return f"{value[:-1]}{value[-1]}iB" if isinstance(value, str) and _SPARK_SIZE.fullmatch(value) else value


class ProjectSettings(Config):
    """Pipelines that are kept apart from all others: what they may touch, and how much they may take."""

    labels: dict[str, str] = field(
        doc="Pipelines with all these labels belong to the project. No pipeline can have the labels of two projects.",
        min_length=1,
    )
    paths: PathRules = field(
        PathRules(),
        doc="Where its pipelines may read and write files, in place of the server's `paths`. "
        "Default of `folder`: `projects/NAME/files` in the server's folder.",
    )
    addresses: AddressRules | None = field(
        None,
        doc="What its pipelines may reach over the network. Default: the server's. Hosts the server denies stay so.",
    )
    secrets: SecretRules = field(
        SecretRules(env=()), doc="Which secrets its pipelines may refer to, in place of the server's. Default: none."
    )
    targets: tuple[str, ...] | None = field(
        None,
        min_length=1,
        doc="The targets its pipelines may run on; the first is taken for a pipeline that names none. "
        "Default: those that no project names.",
    )
    notify: tuple[str, ...] | None = field(
        None, doc="The channels by which people are told of its alerts. Default: those that no project names."
    )
    quotas: Quotas = field(Quotas(), doc="How much its pipelines may take together.")
    groups: dict[str, Role] = field(
        {}, doc="Values of the claim `oidc.roleClaim`, such as groups, with the role that they give in this project."
    )

    @field_validator("labels")
    @classmethod
    def _have_keys(cls, value: dict[str, str]) -> dict[str, str]:
        for key in value:
            if not LABEL_KEY.fullmatch(key):
                raise ValueError(f"'{key}' cannot be the key of a label")
        return value


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
    requests: int = field(
        200, ge=1, doc="How many requests a second a token may make on average, and an address without a token."
    )
    failed_logins: int = field(10, ge=1, doc="How often an address may fail to log in within a minute.")
    streams: int = field(200, ge=1, doc="How many streams of events and logs may be open at once.")
    streams_each: int = field(20, ge=1, doc="How many of them one token may have open.")


class HistorySettings(Config):
    """How long what is kept."""

    batches: Duration = field(Duration(86_400_000), doc="How long every batch is kept.")
    minutes: Duration = field(Duration(7 * 86_400_000), doc="How long a row a minute is kept.")
    hours: Duration = field(
        Duration(90 * 86_400_000), doc="How long a row an hour is kept, and runs, events, exceptions and alerts."
    )
    audit: Duration = field(Duration(365 * 86_400_000), doc="How long the audit log is kept.")
    deleted: Duration = field(
        Duration(7 * 86_400_000),
        doc="How long the files of a deleted pipeline stay in `deleted/`: its state, logs and dead letters.",
    )

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
    run_as: str | None = field(
        None,
        doc="The system user that processes of pipelines run as, if root starts the server; `none` runs them as the "
        "server. Default: `penstock-run`, or else `nobody`, where that user reaches Python, Java and the folders of "
        "pipelines; otherwise the server says at its start what is missing.",
        pattern=r"^[a-z_][a-z0-9_-]*$",
    )
    runs: RunSettings = field(RunSettings(), doc="How processes of pipelines are started.")
    projects: dict[str, ProjectSettings] = field(
        {}, doc="Pipelines that are kept apart, by the name of their project. The rules above are for all others."
    )
    notify: dict[str, Channel] = field({}, doc="Channels by which people are told of alerts, by name.")
    cloud: Literal["aws", "azure", "google"] | None = field(
        None,
        doc="The cloud whose metadata address says that this machine will be taken away. Pipelines on targets that use "
        "this machine alone (`local`) then go on elsewhere.",
    )
    tls: Tls | None = field(None, doc="The server's certificate; without one it speaks plain HTTP.")
    oidc: OidcSettings | None = field(None, doc="Login by OpenID Connect, beside tokens.")
    trusted_proxies: tuple[str, ...] = field(
        (),
        doc="Networks such as `10.0.0.0/8` of the proxies before the server. Only they are believed about the address "
        "and the scheme that a request came with (`X-Forwarded-For`, `X-Forwarded-Proto`).",
    )
    limits: Limits = field(Limits(), doc="How much the server takes.")
    history: HistorySettings = field(HistorySettings(), doc="How long history is kept.")

    @field_validator("trusted_proxies")
    @classmethod
    def _are_networks(cls, value: tuple[str, ...]) -> tuple[str, ...]:
        for network in value:
            try:
                ipaddress.ip_network(network, strict=False)
            except ValueError:
                raise ValueError(f"'{network}' is not an address or a network such as 10.0.0.0/8") from None
        return value

    @field_validator("targets", "notify", "projects")
    @classmethod
    def _have_names(cls, value: dict[str, Any], info: ValidationInfo) -> dict[str, Any]:
        kind = {"targets": "target", "notify": "channel"}.get(info.field_name or "", "project")
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

    @model_validator(mode="after")
    def _keep_projects_apart(self) -> ServerConfig:
        refuse_overlaps(self.projects)
        refuse_unknown(self.projects, self.targets, self.notify)
        for name, project in self.projects.items():
            targets = kept_for(project.targets, self.targets, (each.targets for each in self.projects.values()))
            if not targets:
                raise ValueError(f"projects: '{name}' names no target, and other projects name all that there are")
            refuse_unlimited(name, project.quotas, targets)
        if self.projects and self.oidc is None and any(project.groups for project in self.projects.values()):
            raise ValueError("projects: `groups` need `oidc`")
        return self

    @property
    def supervised(self) -> dict[str, ports.Target]:
        """The targets as the supervisor takes them; the jars of their packages are in the lock."""
        return {
            name: ports.Target(
                target.master,
                target.conf,
                target.driver_memory,
                {},
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
    def private_files(self) -> tuple[Path, ...]:
        """Files of the server itself that no pipeline may read."""
        return () if self.tls is None else (Path(self.tls.key).absolute(),)

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


def refuse_overlaps(projects: Mapping[str, ProjectSettings]) -> None:
    """Raises ValueError unless no pipeline can belong to two projects, and no folder of one is in reach of another."""
    for (name, one), (other, another) in combinations(projects.items(), 2):
        if not any(key in another.labels and another.labels[key] != value for key, value in one.labels.items()):
            raise ValueError(
                f"projects: a pipeline could have the labels of both '{name}' and '{other}'; "
                "give them different values of one label"
            )
    for name, project in projects.items():
        own = project.paths.folder
        for other, another in projects.items():
            reach = (another.paths.folder, *another.paths.allowed)
            if own is not None and other != name and any(_within(own, root) for root in reach if root is not None):
                raise ValueError(f"projects: the folder of '{name}' is in reach of '{other}'")


def kept_for(
    own: Sequence[str] | None, known: Mapping[str, _Named], named: Iterable[Sequence[str] | None]
) -> dict[str, _Named]:
    """The targets or channels that a project names or, if it names none, those that no project does."""
    if own is not None:
        return {name: known[name] for name in own}
    taken = {name for each in named for name in each or ()}
    return {name: value for name, value in known.items() if name not in taken}


def _within(path: str, root: str) -> bool:
    return Path(path).expanduser().resolve().is_relative_to(Path(root).expanduser().resolve())


def refuse_unknown(
    projects: Mapping[str, ProjectSettings], targets: Collection[str], channels: Collection[str]
) -> None:
    """Raises ValueError for a project with a target or channel that is not there."""
    for name, project in projects.items():
        for kind, named, known in (("target", project.targets, targets), ("channel", project.notify, channels)):
            for each in named or ():
                if each not in known:
                    raise ValueError(f"projects: '{name}' names the {kind} '{each}', which is not there")


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
