"""Hosts, a server and a network that breaks at any statement: what the protocol promises holds,
and the checker that says so finds the faults that were there once."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from unittest import mock

import pytest
from faults_processes import count
from faults_protocol import Endless, play

from postgres_server import PostgresServer
from whet.core.errors import StoreError
from whet.store.postgres import local_first
from whet.store.postgres.outbox import Outbox
from whet.store.postgres.store import PostgresStore
from whet.targets import fingerprint

pytestmark = [pytest.mark.slow, pytest.mark.timeout(3600)]


def test_nothing_is_lost_doubled_or_told_differently(postgres_server: PostgresServer) -> None:
    counts = play(postgres_server, count(ci=12, full=400))
    assert counts["steps"] > 100


@contextmanager
def read_in_two_moments() -> Iterator[None]:
    def everything(self: Any, workload_id: str) -> Any:
        every, latest = self.trials(workload_id, all=True), self.trials(workload_id)
        return every, latest, self.runs(workload_id)

    real = local_first._fetched_from

    def until_they_agree(server: PostgresStore, workload_id: str) -> Any:
        fetched = real(server, workload_id)
        for _ in range(1000):
            if fetched is None:
                return None
            if set(fetched.part.standing) <= {trial.id for trial in fetched.part.trials}:
                return fetched
        raise Endless("reads what it has fetched again and again")

    with (
        mock.patch.object(PostgresStore, "everything", everything),
        mock.patch.object(local_first, "_fetched_from", until_they_agree),
    ):
        yield


@contextmanager
def passing_faults_are_refusals() -> Iterator[None]:
    class Never(StoreError):
        lasting = False

    with (
        mock.patch.object(local_first, "NotNowError", Never),
        mock.patch.object(Outbox, "retry_refused", return_value=None),
    ):
        yield


@contextmanager
def removed_before_it_was_taken() -> Iterator[None]:
    """As if the outbox forgot what it hands out."""
    real = Outbox.oldest

    def oldest(self: Outbox, most: int) -> Any:
        found = real(self, most)
        self.remove(entry.n for entry in found)
        return found

    with mock.patch.object(Outbox, "oldest", oldest):
        yield


@contextmanager
def any_code_will_do() -> Iterator[None]:
    with mock.patch.object(fingerprint, "refuse_other", return_value=None):
        yield


@pytest.mark.parametrize(
    "fault",
    [
        read_in_two_moments,
        passing_faults_are_refusals,
        removed_before_it_was_taken,
        any_code_will_do,
    ],
)
def test_the_checker_finds(fault: Any, postgres_server: PostgresServer) -> None:
    with fault(), pytest.raises((AssertionError, StoreError, BaseExceptionGroup)):
        play(postgres_server, 150)
