"""Who writes results: the user and the host of this process."""

from __future__ import annotations

import os
import platform


def user_and_host() -> tuple[str, str]:
    import getpass  # few processes ever write

    try:
        user = getpass.getuser()
    except (KeyError, OSError):  # a container's user may have no name
        user = str(os.getuid())
    return user, platform.node()
