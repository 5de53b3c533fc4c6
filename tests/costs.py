"""What tests cost in CPU-seconds, child processes included, and who may cost how much.

    COSTS=costs.jsonl make test-all      a line for each test
    python tests/costs.py costs.jsonl    a table of folders, and the dearest tests

A test without a mark is for `make quick`, one that is `medium` for `make test`, both up to two
CPU-seconds; `slow` ones are left to `make test-all`. One that goes through all of a capability is
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
from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import Any

import pytest

SHARED = re.compile(r"""^@pytest\.fixture\(.*scope=["'](module|class)["']""", re.MULTILINE)

LIMIT_S = 2.0
FREE = ("slow", "whole", "gpu")


def spent_s() -> float:
    """Of this process and of those of its children that have ended."""
    used = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(one.ru_utime + one.ru_stime for one in used)


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Those that need quiet come last."""
    items.sort(key=lambda item: item.get_closest_marker("timing") is not None)


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """What the tests of a file share is made by one process, which runs all of that file."""
    from xdist.scheduler import LoadScopeScheduling

    class ByFixtures(LoadScopeScheduling):
        def _split_scope(self, nodeid: str) -> str:
            file = nodeid.partition("::")[0]
            return file if _shares(config.rootpath / file) else nodeid

    return ByFixtures(config, log)


@cache
def _shares(file: Path) -> bool:
    return SHARED.search(file.read_text()) is not None


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Iterator[None]:
    with _alone(item.get_closest_marker("timing") is not None):
        before = spent_s()
        result = yield
        if name := os.environ.get("COSTS"):
            line = {"id": item.nodeid, "s": round(spent_s() - before, 3)}
            with Path(name).open("a") as file:
                file.write(json.dumps(line) + "\n")
        return result


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item: pytest.Item) -> Iterator[None]:
    before = spent_s()
    result = yield
    free = any(map(item.get_closest_marker, FREE))
    if (took_s := spent_s() - before) > 10 * LIMIT_S and not free:
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
    folders: dict[str, list[float]] = defaultdict(list)
    for line in lines:
        parts = line["id"].partition("::")[0].split("/")
        folders["/".join(parts[1:-1]) or "."].append(line["s"])
        folders["all"].append(line["s"])
    print("  tests  CPU-s  above limit")
    for folder, costs in sorted(folders.items(), key=lambda item: -sum(item[1])):
        above = sum(cost for cost in costs if cost > LIMIT_S)
        print(f"{len(costs):>7}  {sum(costs):>5.0f}  {above:>11.0f}  {folder}")
    for line in sorted(lines, key=lambda line: -line["s"])[:20]:
        print(f"{line['s']:>14.1f}  {line['id']}")


if __name__ == "__main__":
    _table([json.loads(line) for line in Path(sys.argv[1]).read_text().splitlines()])
