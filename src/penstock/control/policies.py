"""What the files of each project may name, read once from its configuration, with its folder made."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from penstock.control.launch.user import SystemUser
from penstock.control.policy import Policy
from penstock.control.projects import Project
from penstock.errors import PenstockError


class Policies:
    """The policies of the projects of a server whose folder is `data`."""

    def __init__(self, data: Path, user: SystemUser | None = None) -> None:
        self._data = data
        self._user = user
        """Who processes of pipelines run as; None for the server's own user."""
        self._known: dict[str, Policy] = {}

    def of(self, project: Project) -> Policy:
        """Raises PATH_NOT_WRITABLE if the folder of the project is not there and cannot be made."""
        if project.id not in self._known:
            policy = Policy.of(project.config, self._data)
            try:
                policy.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            except OSError as error:
                reason = error.strerror or str(error)
                raise PenstockError.of("PATH_NOT_WRITABLE", path=policy.folder, reason=reason) from error
            self._known[project.id] = policy if self._user is None else self._given(policy, self._user)
        return self._known[project.id]

    def _given(self, policy: Policy, user: SystemUser) -> Policy:
        """Lets the folder belong to the user that pipelines run as, where it is in the server's own."""
        if policy.folder.is_relative_to(self._data):
            user.let_reach(policy.folder, self._data)
            user.own(policy.folder)
        return replace(policy, launcher=replace(policy.launcher, user=user))
