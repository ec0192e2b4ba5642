"""How much of the disk the projects with a quota use, measured every minute in a thread of its own.

To look through all files takes too long to do it when somebody asks.
"""

from __future__ import annotations

import logging
import os
import threading
from collections.abc import Iterable
from pathlib import Path

from penstock.control.files import DataFolder
from penstock.control.policies import Policies
from penstock.control.projects import Project, Projects
from penstock.control.store import pipelines
from penstock.control.store.database import Store
from penstock.errors import PenstockError

LOOK_SECONDS = 60.0
_log = logging.getLogger("penstock.server")


class DiskUse:
    """Bytes in the folder of each project, and in the folders of its pipelines."""

    def __init__(self, projects: Projects, policies: Policies, store: Store, folder: DataFolder) -> None:
        self._projects = projects
        self._policies = policies
        self._store = store
        self._folder = folder
        self._bytes: dict[str, int] = {}
        self._over = threading.Event()

    def of(self, project: Project) -> int | None:
        """As it was measured last; None for a project without a quota, and before that was done."""
        return self._bytes.get(project.id)

    def run(self) -> None:
        """Measures until `end` is called."""
        while True:
            try:
                self.measure()
            except PenstockError as error:
                _log.warning("the disk use of projects could not be measured: %s", error.problems[0].message)
            if self._over.wait(LOOK_SECONDS):
                return

    def end(self) -> None:
        self._over.set()

    def measure(self) -> None:
        limited = {project.id: project for project in self._projects.configured if project.quotas.disk is not None}
        if not limited:
            return
        with self._store.reading() as connection:
            known = pipelines.every(connection)
        places = {name: [self._policies.of(project).folder] for name, project in limited.items()}
        for each in known:
            found = self._projects.of(each.labels, each.scope)
            if found.id in places:
                places[found.id].append(self._folder.pipeline(each.name))
        for name, project in limited.items():
            used, before = size_of(places[name]), self._bytes.get(name, 0)
            self._bytes[name] = used
            assert project.quotas.disk is not None
            if used > project.quotas.disk.bytes >= before:
                _log.warning("%s uses %d bytes of the disk and may use %s", project, used, project.quotas.disk)


def size_of(folders: Iterable[Path]) -> int:
    """What their files take on the disk; links are not followed, and a file with several names counts once."""
    total, seen = 0, set[tuple[int, int]]()
    waiting = [str(folder) for folder in folders]
    while waiting:
        try:
            with os.scandir(waiting.pop()) as entries:
                for entry in entries:
                    found = entry.stat(follow_symlinks=False)
                    if entry.is_dir(follow_symlinks=False):
                        waiting.append(entry.path)
                    elif (found.st_dev, found.st_ino) not in seen:
                        seen.add((found.st_dev, found.st_ino))
                        total += found.st_blocks * 512
        except OSError:
            continue  # It went while it was looked at.
    return total
