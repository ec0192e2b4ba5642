"""What keeps a server from confining its pipelines as well as it could, in words for the one who started it."""

from __future__ import annotations

from collections.abc import Sequence

from penstock.control.launch.launcher import Launcher


def warnings_of(launcher: Launcher, no_other_user: Sequence[str] = ()) -> list[str]:
    """Each says what is missing and what to do."""
    found = list(no_other_user)
    if not launcher.kernel_list:
        found.append(
            "this kernel cannot limit which files pipelines open, so they open what the server's user can; "
            "Linux from 5.19 on can, with Landlock among its security modules (the kernel option lsm=landlock,…)"
        )
    return found
