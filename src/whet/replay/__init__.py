"""Recorded tables: what an exhaustive measurement found, for tuning without a device.

`table.py` is what a table is, `files.py` how it is kept, `recording.py` makes one from stores, and
`reading.py` reads other people's. `simulation.py` tunes on a table and `lab.py` does so many times;
`scores.py`, `pareto.py` and `frontier.py` say what came of it. `asking.py` is a search that a
program outside carries out.

Why it is so: docs/decisions/laboratory.md.
"""

from whet.replay.files import TableError, shipped, write_table
from whet.replay.reading import read_kernel_tuner, read_t4, read_table
from whet.replay.recording import table_from_stores
from whet.replay.simulation import Course, replay_space, simulate
from whet.replay.table import Build, Optimum, Table, TableOrigin, TableOutcome, TableWorkload

__all__ = [
    "Build",
    "Course",
    "Optimum",
    "Table",
    "TableError",
    "TableOrigin",
    "TableOutcome",
    "TableWorkload",
    "read_kernel_tuner",
    "read_t4",
    "read_table",
    "replay_space",
    "shipped",
    "simulate",
    "table_from_stores",
    "write_table",
]
