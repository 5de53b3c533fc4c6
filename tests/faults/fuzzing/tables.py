"""Recorded tables, ours and other people's, and the files of serving engines and Triton."""

from __future__ import annotations

import gzip
import json
import math
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from fuzzing.target import RUNS_CODE, Target, WrongAnswerError, written
from whet.core.config import Config
from whet.core.errors import UsageError
from whet.core.frozen import FrozenMap
from whet.core.space import Categorical, Ordered
from whet.core.status import Status
from whet.core.workload import Device, Limits
from whet.interop import Finding
from whet.interop.files import ReadOptions
from whet.interop.findings import keep
from whet.interop.registry import READERS
from whet.replay import Build, Table, TableOrigin, TableOutcome, TableWorkload
from whet.replay.files import table_json
from whet.replay.findings import table_findings
from whet.replay.reading import read_table
from whet.replay.table import Declared
from whet.store import MemoryStore

_WORDS = (
    "ok", "outraced", "build_error", "v", "format", "configs", "columns", "names", "values",
    "samples", "visits", "status", "statuses", "quality", "first_ns", "errors", "0", "1", "-1",
    "clean", "contaminated", "time", "times", "cache", "tune_params_keys", "problem_size",
    "InvalidConfig", "results", "configuration", "invalidity", "correct", "measurements", "value",
    "runtimes", "metadata", "timeunit", "seconds", "nanoseconds", "timestamp", "compile_time",
)  # fmt: skip


def _a_table(declared: Declared | None) -> Table:
    configs = tuple(Config(BM=bm, layout=layout) for bm in (32, 64) for layout in ("row", None))
    return Table(
        kernel="matmul",
        fingerprint="3f786850e387550f",
        device=Device("Test GPU", "nvidia", "sm_90", "550", Limits(shared_memory_bytes=232_448)),
        configs=configs,
        builds=(
            Build(Status.OK, 1.5, FrozenMap({"ttir": 0.25}), facts=FrozenMap({"registers": 40})),
            Build(Status.OK),
            Build(Status.OK, facts=FrozenMap({"tile": (8, 8)})),
            Build(Status.RESOURCES, 0.1, error="out of resource: shared memory"),
        ),
        workloads=(
            TableWorkload.of(
                {"M": 64, "dtype": "f16"},
                [
                    TableOutcome(Status.OK, ((1000, 1010, 990), (1500,)), first_ns=4000),
                    TableOutcome(Status.OUTRACED, ((900,),), quality="contaminated"),
                    TableOutcome(Status.OK, ((800, 805),), seconds=FrozenMap({"measure": 0.25})),
                    TableOutcome(Status.RESOURCES, error="out of resource: shared memory"),
                ],
            ),
            TableWorkload.of({"M": 128, "dtype": "f16"}, [TableOutcome(Status.RUN_ERROR)] * 4),
        ),
        toolchain=FrozenMap({"triton": "3.6.0"}),
        origin=TableOrigin(timer="cuda", l2="cold", whet="0.1.0", date="2026-01-31"),
        declared=declared,
    )


_DECLARED = Declared(
    (Ordered("BM", (16, 32, 64)), Categorical("layout", ("row", None))), ("BM > 16",)
)
_KERNEL_TUNER = {
    "device_name": "NVIDIA A100",
    "kernel_name": "convolution",
    "problem_size": [4096, 4096],
    "tune_params_keys": ["bx", "by"],
    "cache": {
        "16,1": {
            "bx": 16, "by": 1, "time": 1.25, "times": [1.2, 1.25, 1.3], "compile_time": 400.5,
            "verification_time": 0, "benchmark_time": 4.5, "framework_time": 1.5,
            "timestamp": "2026-01-31 10:00:00",
        },
        "32,1": {"bx": 32, "by": 1, "time": "CompilationFailedConfig", "times": []},
        "32,2": {"bx": 32, "by": 2, "time": 0.75, "times": [0.7, 0.75, 0.8]},
        "64,2": {"bx": 64, "by": 2, "time": 1e20},
    },
}  # fmt: skip
_T4 = {
    "schema_version": "1.0.0",
    "metadata": {"timeunit": "milliseconds"},
    "results": [
        {
            "configuration": {"bx": 16, "by": 1},
            "times": {"compilation_time": 300.0, "runtimes": [1.2, 1.25]},
            "invalidity": "correct",
            "measurements": [{"name": "time", "value": 1.2, "unit": "ms"}],
        },
        {"configuration": {"bx": 32, "by": 1}, "invalidity": "compile", "measurements": []},
        {
            "configuration": {"bx": 64, "by": 1},
            "invalidity": "correct",
            "measurements": [{"name": "time", "value": 0.7, "unit": "ms"}],
        },
    ],
}


def _check_table(table: Table) -> None:
    """Whoever asks a table for its best must get a config that was measured, and soundly."""
    space = table.space
    for workload in table.workloads:
        best = workload.optimum
        if best is None:
            continue
        status = table.status(workload, best.index)
        if status is None or not status.measured:
            raise WrongAnswerError(f"the best has the status {status}")
        _check_ns(best.ns)
        if table.configs[best.index] not in space:
            raise WrongAnswerError("the best is no config of the space")
    store = MemoryStore()
    keep(store, table_findings(table))
    for summary in store.workloads():
        if summary.best is not None:
            _check_ns(summary.best.median_ns)
    [table.key_text(workload) for workload in table.workloads]


def _check_ns(ns: float | None) -> None:
    if ns is None or not math.isfinite(ns) or not 0 < ns < 1e17:
        raise WrongAnswerError(f"the best takes {ns} ns")


def _reader(name: str) -> Callable[[bytes], object]:
    return lambda data: _check_table(read_table(written(name, data)))


def _dumped(*values: Any) -> list[bytes]:
    return [json.dumps(value).encode() for value in values]


def own_seeds() -> list[bytes]:
    return _dumped(table_json(_a_table(None)), table_json(_a_table(_DECLARED)))


def _check_findings(findings: tuple[Finding, ...]) -> None:
    store = MemoryStore()
    keep(store, findings)
    for finding in findings:
        best = store.best(finding.workload.id)
        if best is not None and best.median_ns is not None:
            _check_ns(best.median_ns)
        if finding.best is not None and all(one.config != finding.best for one in finding.tried):
            raise WrongAnswerError("the best was never tried")


def _foreign(format_: str, name: str) -> Callable[[bytes], object]:
    def parse(data: bytes) -> None:
        _check_findings(READERS[format_](written(name, data), ReadOptions()).findings)

    return parse


def _named(format_: str) -> Callable[[bytes], object]:
    """The first line is the file's name: engines say half of it there."""

    def parse(data: bytes) -> None:
        name, _, rest = data.partition(b"\n")
        safe = name.decode(errors="replace").replace("/", "_").replace("\0", "_")[:200]
        if safe in ("", ".", "..") or len(safe.encode()) > 250:
            return
        path = written(safe, rest)
        try:
            _check_findings(READERS[format_](path, ReadOptions()).findings)
        finally:
            Path.unlink(path)

    return parse


_TILE = {
    "BLOCK_SIZE_M": 16, "BLOCK_SIZE_N": 64, "BLOCK_SIZE_K": 128, "GROUP_SIZE_M": 1, "num_warps": 4,
    "num_stages": 3,
}  # fmt: skip
SERVING = {"triton_version": "3.5.1", "1": _TILE, "64": {**_TILE, "num_warps": 8}}
_NAMES: Mapping[str, tuple[str, ...]] = {
    "vllm-moe": (
        "E=8,N=4096,device_name=NVIDIA_H200.json",
        "E=8,N=4096,device_name=NVIDIA_H200,dtype=fp8_w8a8,block_shape=[128,128].json",
    ),
    "vllm-fp8": (
        "N=4096,K=7168,device_name=NVIDIA_H200,dtype=fp8_w8a8,block_shape=[128,128].json",
    ),
    "sglang-moe": (
        "E=8,N=4096,device_name=NVIDIA_H200.json",
        "E=8,N=4096,device_name=AMD,dtype=int8,per_channel_quant=True_down.json",
    ),
    "sglang-fp8": (
        "N=4096,K=7168,device_name=NVIDIA_H200,dtype=fp8_w8a8,block_shape=[128, 128].json",
    ),
}
_SERVED_WORDS = (*_TILE, "triton_version", "E=", "N=", "K=", ",dtype=", ",block_shape=[", "].json")
_AUTOTUNE = {
    "key": [512, 512, "torch.float16"],
    "configs_timings": [
        [
            {"kwargs": {"BM": 64, "BN": 32}, "num_warps": 4, "num_stages": 3, "num_ctas": 1,
             "maxnreg": None, "pre_hook": None, "ir_override": None},
            [0.5, 0.4, 0.6],
        ],
        [{"kwargs": {"BM": 32, "BN": 32}, "num_warps": 8, "num_stages": 2}, [0.4, 0.3, 0.5]],
    ],
}  # fmt: skip
_DECISIONS = b'''"""Choices of matmul."""
KERNEL = "matmul"
DEVICES = ["NVIDIA H200"]
PARTS = ["dtype"]
SIZES = ["M", "N"]
FIXED = {"K": 512}
CONFIGS = [{"BM": 64, "BN": 32}, {"BM": 32, "BN": 32}]
KINDS = [("f16",)]
_TABLE_0 = {(64, 64): 0, (128, 64): 1}
_RULES = [_TABLE_0]


def choose(M, N):
    return CONFIGS[_TABLE_0[M, N]]
'''
_CODE = (
    "__import__('os').system('true')", "lambda: 0", "[x for x in ()]", "{**a}", "f'{a}'", "exec",
    "eval('1')", "CONFIGS", "KINDS", "_TABLE_0", "_TABLE_1", "DEVICES", "PARTS", "SIZES", "FIXED",
    "= ", "(", ")", "[", "]", "{", "}", "-", "1j", "b'x'", "...", "1e999", "set()", "{1, 2}",
)  # fmt: skip

TARGETS = (
    Target(
        "table", _reader("m.whet.json"), own_seeds, (UsageError,), ("replay", "core/"), "json",
        _WORDS, 50_000,
    ),
    Target(
        "table-zipped", _reader("m.whet.json.gz"),
        lambda: [gzip.compress(seed, mtime=0) for seed in own_seeds()],
        (UsageError,), ("replay",), per_million=40_000,
    ),
    Target(
        "table-kernel-tuner", _reader("convolution-A100.json"), lambda: _dumped(_KERNEL_TUNER),
        (UsageError,), ("replay",), "json", _WORDS, 40_000,
    ),
    Target(
        "table-t4", _reader("gemm-A100.json"), lambda: _dumped(_T4), (UsageError,), ("replay",),
        "json", _WORDS, 40_000,
    ),
    *(
        Target(
            format_, _named(format_),
            lambda names=names: [  # type: ignore[misc]
                f"{name}\n{json.dumps(SERVING)}".encode() for name in names
            ],
            (UsageError,), ("interop",), "lines", _SERVED_WORDS, 20_000,
            tuple(event for event in RUNS_CODE if event != "os.remove"),
        )
        for format_, names in _NAMES.items()
    ),
    Target(
        "triton-autotune", _foreign("triton", "matmul.autotune.json"), lambda: _dumped(_AUTOTUNE),
        (UsageError,), ("interop",), "json",
        ("key", "configs_timings", "kwargs", "num_warps", "pre_hook"), 60_000,
    ),
    Target(
        "python-decisions", _foreign("python", "chosen.py"), lambda: [_DECISIONS], (UsageError,),
        ("interop",), "text", _CODE, 60_000, (*RUNS_CODE, "exec", "import"),
    ),
)  # fmt: skip
