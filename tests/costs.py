"""What tests cost in CPU-seconds, child processes included, and who may cost how much.

    COSTS=costs.jsonl make test-all      a line for each test
    python tests/costs.py costs.jsonl    a table of folders, and the dearest tests

A test without a mark is for `make quick`, one that is `medium` for `make test`, both up to one
CPU-second; `slow` ones are left to `make test-all`. One that goes through all of a capability is
`whole` and may take longer. Ten times the limit fails: a core that is shared with another process
counts its seconds double, and some machines take several times as long as others.
"""

from __future__ import annotations

import fcntl
import json
import os
import re
import resource
import sys
import time
from collections import Counter, defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import Any

import pytest

SHARED = re.compile(r"""^@pytest\.fixture\(.*scope=["'](module|class)["']""", re.MULTILINE)

LIMIT_S = 1.0
AT_A_TIME = 4
FREE = ("slow", "whole", "gpu")


def spent_s() -> float:
    """Of this process and of those of its children that have ended."""
    used = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(one.ru_utime + one.ru_stime for one in used)


class _Cost:
    """Since it was made."""

    def __init__(self) -> None:
        self._before, self._began = spent_s(), time.monotonic()

    @property
    def wall_s(self) -> float:
        return time.monotonic() - self._began

    @property
    def cpu_s(self) -> float:
        """Not more than there can have been: a child of many tests that ends in one is counted
        there with all it did."""
        return min(spent_s() - self._before, self.wall_s * (os.cpu_count() or 1))


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Those that take long come first, and files that one process has to run, so that no core is
    left with one at the end: `slow(40)`, of 40 CPU-seconds or as long otherwise, before others.
    Those that need quiet come last."""

    def order(item: pytest.Item) -> tuple[int, int]:
        if item.get_closest_marker("timing"):
            return 2, 0
        stated = [mark.args[0] for mark in item.iter_markers("slow") if mark.args]
        long = any(map(item.get_closest_marker, ("slow", "whole")))
        return (0, -max(stated, default=0)) if long or _shares(item.path) else (1, 0)

    items.sort(key=order)


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """What the tests of a file share is made by one process, which runs all of that file. Other
    tests are handed out some at a time, since the scheduler takes as long for one as for many."""
    from xdist.scheduler import LoadScopeScheduling

    class ByFixtures(LoadScopeScheduling):
        def _split_scope(self, nodeid: str) -> str:
            return scope(nodeid)

    @cache
    def scope(nodeid: str) -> str:
        file = nodeid.partition("::")[0]
        if _shares(config.rootpath / file):
            return file
        counts[file] += 1
        return f"{file} {counts[file] // AT_A_TIME}"

    counts: Counter[str] = Counter()
    config.option.loadscopereorder = False
    return ByFixtures(config, log)


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_auto_num_workers(config: pytest.Config) -> int:
    """More than there are cores: many tests wait, for a server, a limit or another process. But
    not those that take a moment, for which `-n logical` is asked."""
    cores = len(os.sched_getaffinity(0))
    return cores if config.option.numprocesses == "logical" else 2 * cores


@cache
def _shares(file: Path) -> bool:
    return SHARED.search(file.read_text()) is not None


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Iterator[None]:
    with _alone(item.get_closest_marker("timing") is not None):
        took = _Cost()
        result = yield
        if name := os.environ.get("COSTS"):
            line = {"id": item.nodeid, "s": round(took.cpu_s, 3), "wall_s": round(took.wall_s, 3)}
            with Path(name).open("a") as file:
                file.write(json.dumps(line) + "\n")
        return result


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item: pytest.Item) -> Iterator[None]:
    took, was_large = _Cost(), "torch" in sys.modules
    result = yield
    if os.environ.get("TESTS_GO") == "small" and "torch" in sys.modules and not was_large:
        pytest.fail(
            "it loads torch, after which every fork takes longer: import it at the top of "
            "the file, so that the file is of the second go",
            pytrace=False,
        )
    free = any(map(item.get_closest_marker, FREE))
    if (took_s := took.cpu_s) > 10 * LIMIT_S and not free:
        words = f"took {took_s:.0f} CPU-seconds; what is not marked slow may take {LIMIT_S:g}"
        pytest.fail(f"{words}: make it cheaper, or mark it", pytrace=False)
    return result


@contextmanager
def _alone(quiet: bool) -> Iterator[None]:
    """All tests share a lock on this file; one that needs quiet has it for itself."""
    with Path(__file__).open() as file:
        fcntl.flock(file, fcntl.LOCK_EX if quiet else fcntl.LOCK_SH)
        yield


def _table(lines: list[dict[str, Any]]) -> None:
    folders: dict[str, list[dict[str, Any]]] = defaultdict(list)
    for line in lines:
        parts = line["id"].partition("::")[0].split("/")
        folders["/".join(parts[1:-1]) or "."].append(line)
        folders["all"].append(line)
    print("  tests  CPU-s  above limit  wall-s")
    for folder, some in sorted(folders.items(), key=lambda item: -_sum(item[1], "s")):
        above = _sum([line for line in some if line["s"] > LIMIT_S], "s")
        wall_s = _sum(some, "wall_s")
        print(f"{len(some):>7}  {_sum(some, 's'):>5.0f}  {above:>11.0f}  {wall_s:>6.0f}  {folder}")
    for key in ("s", "wall_s"):
        print(f"the dearest by {key}")
        for line in sorted(lines, key=lambda line: -line[key])[:20]:
            print(f"{line[key]:>14.1f}  {line['id']}")


def _sum(lines: list[dict[str, Any]], key: str) -> float:
    return sum(line[key] for line in lines)


if __name__ == "__main__":
    _table([json.loads(line) for line in Path(sys.argv[1]).read_text().splitlines()])
