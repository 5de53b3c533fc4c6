"""Other people's formats: what serving engines, Triton and Python read, and what they wrote.

One file a format: `vllm.py` and `sglang.py` (what they share is in `serving.py`),
`triton_cache.py`, and `python_source.py`, whose rule `decision.py` makes. What is written comes
from a store through `selecting.py`. What is read is a `Finding` (`findings.py`), which a store
keeps apart from whet's own timings. `registry.py` lists the readers, and finds formats of other
packages. `tables/` is what serving engines look up, ship and read.

Why it is so: docs/decisions/formats.md.
"""

from whet.interop.files import FormatError, OutFile, ReadOptions
from whet.interop.findings import Finding, Tried, keep
from whet.interop.registry import (
    READERS,
    FileReading,
    Format,
    Read,
    Write,
    package_reader,
    package_writer,
)
from whet.interop.selecting import MeasuredWorkload, Selection, select

__all__ = [
    "READERS",
    "FileReading",
    "Finding",
    "Format",
    "FormatError",
    "MeasuredWorkload",
    "OutFile",
    "Read",
    "ReadOptions",
    "Selection",
    "Tried",
    "Write",
    "keep",
    "package_reader",
    "package_writer",
    "select",
]
