"""A compiler that hangs, with a family of its own."""

from __future__ import annotations

from pathlib import Path

# The first child is an ordinary one. The second is in a session of its own, has no environment to
# be known by and was left by its parent. The third does not listen to requests to end.
_STUCK = """\
#!/bin/sh
case "$*" in
  *--version*) exec {real} --version ;;
  *{when}*) ;;
  *) exec {real} "$@" ;;
esac
echo $$ >> {pids}
sleep 600 &
echo $! >> {pids}
(env -i setsid sh -c 'echo $$ >> {pids}; exec sleep 600' &)
(trap '' TERM INT HUP; sh -c 'echo $$ >> {pids}; sleep 600; sleep 600')
"""


def stuck_compiler(path: Path, real: str, when: str, pids: Path) -> Path:
    """A script that is `real` unless `when` is among its arguments, where it never ends. Its own
    number and those of all it starts, four lines a call, are in `pids`."""
    path.write_text(_STUCK.format(real=real, when=when, pids=pids))
    path.chmod(0o755)
    return path


def numbers_in(pids: Path) -> list[int]:
    return [int(line) for line in pids.read_text().split()]
