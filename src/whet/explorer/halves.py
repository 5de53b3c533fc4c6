"""The later half of a large workload, read by another process meanwhile.

    python -m whet.explorer.halves STORE WORKLOAD_ID AFTER

writes the columns of the trials after a mark to stdout, as `column_file` has them.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile

import numpy as np

from whet.explorer import column_file
from whet.explorer.columns import TrialColumns
from whet.store import open_store
from whet.store.scanning import TrialScan, scan

# Below that many trials, starting a process takes longer than it saves.
FEWEST_ROWS = 200_000
BATCH = 20_000


class SecondHalf:
    """Begun at once. `start` is the last mark of the first half."""

    def __init__(self, location: str, workload_id: str, start: int) -> None:
        self.start = start
        self._out = tempfile.TemporaryFile()  # noqa: SIM115 - closed by whoever reads it
        command = [sys.executable, "-m", "whet.explorer.halves", location, workload_id, str(start)]
        self._process = subprocess.Popen(
            command, stdout=self._out, stderr=subprocess.DEVNULL, stdin=subprocess.DEVNULL
        )

    @classmethod
    def of(cls, location: str, workload_id: str, scan: TrialScan, trials: int) -> SecondHalf | None:
        """None where it would not help, or no process is to be had."""
        if trials < FEWEST_ROWS or len(os.sched_getaffinity(0)) < 2:
            return None
        middle = scan.mark_at(trials // 2)
        try:
            return None if middle is None else cls(location, workload_id, middle)
        except OSError:
            return None

    def finished(self, wait_s: float) -> bool:
        try:
            self._process.wait(wait_s)
        except subprocess.TimeoutExpired:
            return False
        return True

    def columns(self) -> TrialColumns | None:
        """Once it has finished; None where it failed, so that somebody else has to read them."""
        with self._out:
            if self._process.returncode != 0:
                return None
            try:
                data = np.memmap(self._out, dtype=np.uint8, mode="r")
                return column_file.read(data)[0]
            except column_file.UNREADABLE:
                return None

    def end(self) -> None:
        if self._process.poll() is None:
            self._process.kill()
            self._process.wait()
        self._out.close()


def main(location: str, workload_id: str, after: str) -> None:
    with open_store(location, read_only=True) as store:
        columns = TrialColumns({run.id: run.started for run in store.runs(workload_id)})
        columns.last_mark = int(after)
        reading = scan(store, workload_id)
        while len(rows := reading.rows(columns.last_mark, BATCH)):
            columns.extend(rows)
    column_file.write(columns, "", sys.stdout.buffer)


if __name__ == "__main__":
    main(*sys.argv[1:])
