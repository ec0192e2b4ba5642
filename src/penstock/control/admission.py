"""What the supervisor asks before it starts a run: by the rules of its project, may the pipeline run there and now?

A version was checked when it was applied. The configuration of the server may have changed since, so it is checked
again whenever a run starts, and when a server finds a run that an earlier one has started.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from pathlib import Path

from penstock.control.auth.roles import Role
from penstock.control.placing import refuse_full_disk
from penstock.control.policies import Policies
from penstock.control.projects import Project, Projects
from penstock.control.quotas import refuse_more, taken_by
from penstock.control.store import pipelines
from penstock.control.store.database import Store
from penstock.control.submitted import from_document
from penstock.control.supervisor.ports import Refusal, Target, Wanted
from penstock.errors import PenstockError, Problem
from penstock.spec.location import PipelineFile, Places

_ONLY_NOTICES = ("ALERT_CHANNEL_UNKNOWN",)
"""Problems with what is told to people: a run does no harm without it."""
_MAY_PASS = ("QUOTA_EXCEEDED", "STORE_DOWN")


class ProjectAdmission:
    """`penstock.control.supervisor.ports.Admission` by the projects of a server."""

    def __init__(
        self,
        projects: Projects,
        policies: Policies,
        store: Store,
        disk_use: Callable[[Project], int | None] = lambda _: None,
        jars: Mapping[str, Mapping[str, str]] | None = None,
    ) -> None:
        self._projects = projects
        self._policies = policies
        self._store = store
        self._disk_use = disk_use
        self._jars = jars or {}
        """By target: the jars of its packages, as they were locked."""
        self._judged: dict[tuple[str, str, str], tuple[Problem, ...]] = {}
        """What is wrong with a text in a project."""
        self._last: dict[tuple[str, int, str], tuple[Problem, ...]] = {}
        """The same by name and version, for while the store is down."""
        self._targets: dict[str, Mapping[str, Target]] = {}

    def folder(self, wanted: Wanted) -> Path:
        """Raises PATH_NOT_WRITABLE."""
        return self._policies.of(self._project(wanted)).folder

    def targets(self, wanted: Wanted) -> Mapping[str, Target]:
        project = self._project(wanted)
        if project.id not in self._targets:
            self._targets[project.id] = {
                name: replace(target, jars=self._jars.get(name, {}))
                for name, target in project.config.supervised.items()
            }
        return self._targets[project.id]

    def refusal(
        self,
        wanted: Wanted,
        target: str,
        version: int | None = None,
        running: Callable[[], Iterable[tuple[Wanted, str]]] | None = None,
    ) -> Refusal | None:
        project = self._project(wanted)
        try:
            project.refuse_target(target)
            problems = self._problems(wanted.name, version or wanted.version, project)
            if problems:
                return Refusal(problems[0].as_dict(), f"{project} does not allow this version: {problems[0].message}")
            if running is not None:
                refuse_full_disk(project, self._disk_use(project))
                self._refuse_more(project, target, running)
        except PenstockError as error:
            problem = error.problems[0]
            return Refusal(problem.as_dict(), problem.message, may_pass=problem.code in _MAY_PASS)
        return None

    def _refuse_more(self, project: Project, target: str, running: Callable[[], Iterable[tuple[Wanted, str]]]) -> None:
        if project.quotas.cores is None and project.quotas.memory is None:
            return
        known = project.config.targets
        taken = [
            taken_by(known[place])
            for other, place in running()
            if place in known and self._project(other).id == project.id
        ]
        refuse_more(project, taken, taken_by(known[target]))

    def _project(self, wanted: Wanted) -> Project:
        return self._projects.of(wanted.labels, wanted.scope)

    def _problems(self, name: str, version: int, project: Project) -> tuple[Problem, ...]:
        key = (name, version, project.id)
        try:
            with self._store.reading() as connection:
                found = pipelines.version(connection, name, version)
        except PenstockError as error:
            if error.code == "STORE_DOWN" and key in self._last:
                return self._last[key]
            raise
        text = (project.id, found.kind, found.checksum)
        if text not in self._judged:
            self._judged[text] = self._judge(found, project)
        self._last[key] = self._judged[text]
        return self._judged[text]

    def _judge(self, version: pipelines.Version, project: Project) -> tuple[Problem, ...]:
        pipeline = from_document(version.document)
        if pipeline is None:
            return (Problem("VERSION_NOT_JUDGED", {"version": version.number}),)
        policy = self._policies.of(project)
        file = PipelineFile(pipeline, Places("stored"), policy.folder / f"pipeline.{version.kind}")
        # Code was sent by somebody who might; who may send it now is another question.
        return tuple(each for each in policy.problems(file, Role.ADMIN) if each.code not in _ONLY_NOTICES)
