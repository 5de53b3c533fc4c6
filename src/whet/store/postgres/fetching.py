"""What a server knows of one workload, as a store that another one can merge."""

from __future__ import annotations

from whet.core.run import Run
from whet.core.trial import Trial
from whet.core.workload import Workload
from whet.store.memory import MemoryStore
from whet.store.postgres.store import PostgresStore
from whet.store.protocol import WorkloadSummary


class FetchedTrials(MemoryStore):
    """One workload and its trials, without runs: merged runs would be strangers to each other,
    while those of a shared store are one history, oldest first, and are saved as they are."""

    def __init__(
        self, workload: Workload, every: list[Trial], latest: list[Trial], history: list[Run]
    ) -> None:
        super().__init__(read_only=True)
        self._workload, self._every, self._latest = workload, every, latest
        self.history = history

    @property
    def ids(self) -> set[str]:
        return {trial.id for trial in self._every}

    def workloads(self, kernel: str | None = None) -> list[WorkloadSummary]:
        return [WorkloadSummary(self._workload, len(self._every), len(self._latest), 0, 0.0, None)]

    def trials(self, workload_id: str, *, all: bool = False) -> list[Trial]:
        return self._every if all else self._latest


def fetched_from(server: PostgresStore, workload_id: str) -> FetchedTrials | None:
    """As the server shows it to this process; None where it shows nothing."""
    workload = server.workload(workload_id)
    if workload is None:
        return None
    every, latest, runs = server.everything(workload_id)
    return FetchedTrials(workload, every, latest, runs[::-1])
