"""By whose rules the files are judged that somebody sends: those of the project that each file belongs to."""

from __future__ import annotations

from dataclasses import dataclass

from penstock.control.auth.roles import Grant, Role
from penstock.control.policies import Policies
from penstock.control.policy import Policy
from penstock.control.projects import Projects
from penstock.control.store import pipelines
from penstock.control.store.database import Store
from penstock.control.submitted import Rules
from penstock.spec.pipeline import Pipeline


@dataclass(frozen=True)
class SentRules:
    """`penstock.control.submitted.RulesOf` of a caller."""

    store: Store
    projects: Projects
    policies: Policies
    grant: Grant
    forked: pipelines.Pipeline | None = None
    """The pipeline whose state the file takes over under another name."""

    @property
    def unread(self) -> Policy:
        """That of the first project of the sender in which code may be run."""
        coding = [each for each in self.grant.accesses if each.role.covers(Role.CODER)] or self.grant.accesses
        whole = any(not each.scope for each in coding)
        return self.policies.of(self.projects.default if whole else self.projects.of_access(coding[0]))

    def __call__(self, pipeline: Pipeline) -> Rules:
        with self.store.reading() as connection:
            known = self.forked or pipelines.find(connection, pipeline.name)
        # To those who may not see it, the name of another's pipeline is like one that nobody has.
        there = known is not None and self.grant.sees(known.labels)
        scope = (known.scope or {}) if known is not None and there else None
        project, role = self.projects.for_file(self.grant, pipeline.labels, scope)
        return Rules(self.policies.of(project), role, project)
