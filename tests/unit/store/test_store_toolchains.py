"""Workloads by the versions of what built them."""

from __future__ import annotations

import pytest

from whet.store.matching import built_with, current, matches, versions
from whet.testing.samples import a_workload

GCC = "gcc (Debian 12.2.0-14) 12.2.0"


@pytest.mark.parametrize(
    ("version", "asked", "is_it"),
    [
        ("3.5", "3.5", True),
        ("3.5.1", "3.5", True),
        ("3.5.0+git1a2b", "3.5.0", True),
        ("3.50", "3.5", False),
        ("13.5", "3.5", False),
        ("2.3.5", "3.5", False),
        ("3.5", "3.5.1", False),
        ("3.5.1", "3x5", False),
        (GCC, "gcc", True),
        (GCC, "12.2", True),
        (GCC, "12", True),
        (GCC, "clang", False),
    ],
)
def test_a_version_is_named_by_how_it_starts(version: str, asked: str, is_it: bool) -> None:
    assert matches(version, asked) is is_it


def test_versions_are_listed_by_tool_in_the_order_of_their_numbers() -> None:
    chains = [{"triton": "3.10.0"}, {"triton": "3.9.1", "cc": GCC}, {"triton": "3.10.0"}]

    found = versions(a_workload(toolchain=chain) for chain in chains)

    assert found == {"cc": (GCC,), "triton": ("3.9.1", "3.10.0")}


def test_the_newest_is_current_and_so_is_what_this_machine_has() -> None:
    known = {"triton": ["3.10.0", "3.6.0", "3.9.1"]}

    assert current(known, {}) == {"triton": {"3.10.0"}}
    assert current(known, {"triton": "3.6.0"}) == {"triton": {"3.10.0", "3.6.0"}}


def test_compilers_of_two_makes_do_not_outdate_each_other() -> None:
    known = {"cc": ["gcc 11.4", "gcc 12.2", "clang 14.0", "clang 9.0"]}

    assert current(known, {}) == {"cc": {"gcc 12.2", "clang 14.0"}}


def test_one_chosen_tool_is_enough() -> None:
    workload = a_workload(toolchain={"triton": "3.5.1", "python": "3.12.1"})

    assert built_with(workload, {"triton": ["3.5.1"], "python": []})
    assert not built_with(workload, {"triton": ["3.5.0"]})
