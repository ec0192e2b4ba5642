"""Which project a pipeline belongs to, and what the server's configuration says for each project. Pure.

There are three kinds. A configured project has the pipelines with its labels. A pipeline without one that somebody
applied with a limited token belongs to the project of that limit, so that teams are kept apart before anybody has
configured them. All others belong to the default project, which only unlimited tokens may change.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from penstock.control.auth.roles import Access, Grant, Labels, Role, highest_of, in_words
from penstock.control.config import PathRules, ProjectSettings, Quotas, SecretRules, ServerConfig, kept_for
from penstock.errors import PenstockError, did_you_mean

Kind = Literal["configured", "scope", "default"]
DEFAULT = "default"
"""The name of the project of all that belongs to no other; a configured one of this name is another."""
_NOT_IN_NAMES = re.compile(r"[^a-z0-9._=-]")


@dataclass(frozen=True)
class Project:
    """Pipelines that are kept apart from all others."""

    id: str
    """Unlike that of every other project; also its folder below `projects`."""
    kind: Kind
    name: str
    labels: Labels
    """Those that each of its pipelines has."""
    config: ServerConfig
    """The configuration of the server as far as it holds for this project."""
    quotas: Quotas = field(default_factory=Quotas)

    def __str__(self) -> str:
        if self.kind == "configured":
            return f"project '{self.name}'"
        return f"the project of {self.name}" if self.kind == "scope" else "the default project"

    @property
    def targets(self) -> tuple[str, ...]:
        return tuple(self.config.targets)

    @property
    def default_target(self) -> str:
        """That of a pipeline that names none; empty if the project has none."""
        return next(iter(self.targets), "")

    def refuse_target(self, name: str) -> None:
        """Raises TARGET_NOT_ALLOWED for a target that its pipelines may not use."""
        if name not in self.config.targets:
            allowed = ", ".join(self.targets) or "none"
            raise PenstockError.of("TARGET_NOT_ALLOWED", project=self, name=name, allowed=allowed)

    def target(self, name: str | None) -> str:
        """The target of a pipeline that names this one or none; raises TARGET_NOT_ALLOWED."""
        chosen = name or self.default_target
        self.refuse_target(chosen)
        return chosen


class Projects:
    """All projects of a server whose folder is `data`."""

    def __init__(self, config: ServerConfig, data: Path) -> None:
        self._config = config
        self._data = data
        self.default = Project(f"_{DEFAULT}", "default", DEFAULT, {}, config)
        self.configured = tuple(self._configured(name, settings) for name, settings in config.projects.items())
        self._scopes: dict[str, Project] = {}

    def of(self, labels: Labels, scope: Labels | None = None) -> Project:
        """The project of a pipeline with these labels; `scope` is the limit of the token that made it."""
        for project in self.configured:
            if project.labels.items() <= labels.items():
                return project
        return self._of_scope(scope) if scope else self.default

    def of_access(self, access: Access) -> Project:
        """The project of what somebody with this access makes, as long as it has no labels."""
        return self.of(access.scope, access.scope)

    def named(self, name: str) -> Project:
        """A configured project; raises PROJECT_UNKNOWN."""
        known = {project.name: project for project in self.configured}
        if name not in known:
            raise PenstockError.of("PROJECT_UNKNOWN", name=name, suggestion=did_you_mean(name, known))
        return known[name]

    def seen_by(self, grant: Grant) -> tuple[Project, ...]:
        """The projects in which somebody may do something."""
        if grant.whole:
            return (*self.configured, self.default)
        found = [project for project in self.configured if any(_meets(project, scope) for scope in grant.scopes)]
        found += [self.of_access(access) for access in grant.accesses]
        return tuple({project.id: project for project in found}.values())

    def for_file(self, grant: Grant, labels: Labels, scope: Labels | None) -> tuple[Project, Role]:
        """Whose rules hold for a file that somebody sends, and their role there; raises FORBIDDEN.

        `scope` is the limit of the token that made the pipeline; None for one that is new. A file without the labels
        that its sender is limited to is judged as if it had them: it can be tried out, and `apply` refuses it.
        """
        access = next((each for each in grant.accesses if each.sees(labels)), None) or _only(grant)
        judged = labels if access.sees(labels) else {**labels, **access.scope}
        project = self.of(judged, access.scope if scope is None else scope)
        role = max(
            (each.role for each in grant.accesses if may_change(each, project) and each.sees(judged)),
            key=list(Role).index,
            default=None,
        )
        if role is None:
            reason = f"the pipeline belongs to {project}, and your token is limited to {in_words(grant.scopes)}"
            advice = "Use an unlimited token, or ask an operator to configure a project with those labels."
            raise PenstockError.of("FORBIDDEN", reason=reason, advice=advice)
        return project, role

    # --- the configuration of each -----------------------------------------------------------------------------

    def _configured(self, name: str, settings: ProjectSettings) -> Project:
        paths = settings.paths
        if paths.folder is None:
            paths = paths.model_copy(update={"folder": str(self._folder(name))})
        addresses = settings.addresses or self._config.addresses
        denied = tuple(dict.fromkeys((*addresses.denied, *self._config.addresses.denied)))
        config = self._config.model_copy(
            update={
                "paths": paths,
                "addresses": addresses.model_copy(update={"denied": denied}),
                "secrets": settings.secrets,
                **self._places(settings.targets, settings.notify),
            }
        )
        return Project(name, "configured", name, settings.labels, config, settings.quotas)

    def _of_scope(self, scope: Labels) -> Project:
        """Its pipelines have a folder of their own, no secrets, and the targets and channels that nobody names."""
        name = scope_id(scope)
        if name not in self._scopes:
            config = self._config.model_copy(
                update={
                    "paths": PathRules(folder=str(self._folder(name))),
                    "secrets": SecretRules(env=()),
                    **self._places(None, None),
                }
            )
            self._scopes[name] = Project(name, "scope", in_words([scope]), dict(scope), config)
        return self._scopes[name]

    def _folder(self, name: str) -> Path:
        return self._data / "projects" / name / "files"

    def _places(self, targets: Sequence[str] | None, channels: Sequence[str] | None) -> dict[str, object]:
        settings = self._config.projects.values()
        kept = kept_for(targets, self._config.targets, (each.targets for each in settings))
        order = list(self._config.targets)
        return {
            "targets": {
                name: target.model_copy(
                    update={
                        "failover": tuple(
                            other
                            for other in (order if target.failover is None else target.failover)
                            if other in kept and other != name
                        )
                    }
                )
                for name, target in kept.items()
            },
            "notify": kept_for(channels, self._config.notify, (each.notify for each in settings)),
        }


def may_change(access: Access, project: Project) -> bool:
    """Whether files with the rights of this project may be sent with this access.

    A configured project is open to accesses within its labels and to those that hold all of it. One that is limited by
    other labels could choose a project by the labels it writes, and so reach all of them.
    """
    if not access.scope:
        return True
    if project.kind == "default":
        return False
    whole = access.scope.items() <= project.labels.items()
    return whole or (project.kind == "configured" and project.labels.items() <= access.scope.items())


def unguarded_secrets(projects: Projects) -> list[str]:
    """Warnings of projects whose authors may send their secrets to any host."""
    found = []
    for project in (projects.default, *projects.configured):
        config = project.config
        if (config.secrets.env or config.secrets.files) and not config.addresses.hosts:
            found.append(
                f"authors of {project} may send its secrets to any host, as a password is sent to the host in its URL "
                "(name the hosts that its pipelines may reach under `addresses: {hosts: […]}`)"
            )
    return found


def scope_id(scope: Labels) -> str:
    """A name for a limit that can be a folder, is like no other's, and shows what it is of."""
    text = json.dumps(dict(sorted(scope.items())))
    shown = _NOT_IN_NAMES.sub("_", ",".join(f"{key}={value}" for key, value in sorted(scope.items())).lower())
    return f"{shown[:60]}=-{hashlib.sha256(text.encode()).hexdigest()[:16]}"


def accesses_of(config: ServerConfig, groups: Iterable[str]) -> tuple[Access, ...]:
    """What the groups of a person give: the highest role of the whole server, and that in each project."""
    values = tuple(groups)
    whole = highest_of(config.oidc.roles, values) if config.oidc is not None else ()
    inside = (highest_of(project.groups, values, project.labels) for project in config.projects.values())
    return (*whole, *(access for found in inside for access in found))


def _only(grant: Grant) -> Access:
    """The access with which a file is judged that has the labels of none; raises FORBIDDEN if there are several."""
    if len(grant.accesses) == 1:
        return grant.accesses[0]
    reason = "it is not clear which of your projects the pipeline is for"
    advice = f"Give it the labels of one: {in_words(grant.scopes)}."
    raise PenstockError.of("FORBIDDEN", reason=reason, advice=advice)


def _meets(project: Project, scope: Labels) -> bool:
    """Whether a pipeline of the project can have the labels of the scope."""
    return all(project.labels.get(key, value) == value for key, value in scope.items())
