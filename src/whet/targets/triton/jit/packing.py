"""What `whet pack --jit` takes: recorded specializations, those derived from them, and the binaries
of both."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

from whet.core.errors import UsageError
from whet.store.bundles.writing import FolderBinaries
from whet.targets.recorded import RecordedFiles
from whet.targets.triton.jit.building import build
from whet.targets.triton.jit.packed_records import JitBinaries, packed_lines
from whet.targets.triton.jit.preloading import uncovered_lines
from whet.targets.triton.jit.reachable import reachable
from whet.targets.triton.jit.records import Records


@dataclass(frozen=True)
class Packing:
    """`lines` and `binaries` are for `write_bundle`; `notes` say what was left out."""

    binaries: JitBinaries
    lines: list[str]
    notes: list[str]


def packing(
    records: Records,
    files: RecordedFiles,
    *,
    kernels: Collection[str] = (),
    most: int | None = None,
    pointers: bool = False,
    others: FolderBinaries | None = None,
    jobs: int | None = None,
) -> Packing:
    """What was compiled only to be measured is left out, as are kernels that no name selects. With
    `most`, as many that were never met are derived for each kernel. What has no binary yet is
    compiled, where the kernel's file is one of `files`."""
    recorded = records.all()
    known = [one for one in recorded if not one.met.tuning]
    if kernels:
        known = [one for one in known if one.kernel in kernels or one.name in kernels]
    if not known:
        raise UsageError(
            f"nothing is recorded in {records.folder}; run the program with WHET_JIT=record"
        )
    notes = []
    if most is not None:
        more = reachable(known, most=most, pointers=pointers)
        known += more.found
        if more.left:
            notes.append(f"{more.left:,} more are reachable and were left out; see --most")
    missing = [one for one in known if one.met.derived and not one.binary]
    built, unlaunchable = build(missing, records, files, jobs=jobs) if missing else ([], "")
    made = {one.id: one for one in built}
    notes += [unlaunchable] if unlaunchable else []
    asked = {one.id for one in recorded}
    records.add(one for one in made.values() if one.binary and one.id in asked)
    found = [made.get(one.id, one) for one in known]
    notes += uncovered_lines((one.kernel, one.why) for one in found if one.why)
    packed = tuple(one for one in found if one.binary or not one.met.derived)
    return Packing(JitBinaries(records, packed, others), packed_lines(packed), notes)
