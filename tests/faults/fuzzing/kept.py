"""What is kept beside stores, and what processes say to each other: packed kernels, cost models,
cached configs, the notes of ranks, and the answers of workers."""

from __future__ import annotations

import json
import pickle
import socket
import warnings
from contextlib import suppress

from fuzzing.stores import WORDS
from fuzzing.target import Target, folder, written
from whet.autotuner import cache as config_cache
from whet.core.config import Config
from whet.engine import ranks
from whet.engine.fallback.inheritance import KeptModel, ModelError, read_model
from whet.engine.ranks import BoardLostError
from whet.learn.costmodel import Columns, CostModel
from whet.learn.trees import PlainTrees
from whet.targets.triton.packed.binary_cache import BinaryError, FolderCache, PackedKernel
from whet.testing.samples import a_trial, a_workload
from whet.workers.answers import Garbled, read_report
from whet.workers.child import HEADER
from whet.workers.process import Channel

KEY = "ab" * 16


def _shelf(data: bytes) -> None:
    written(f"shelf/{KEY}/cubin", b"\x7fELF")
    written(f"shelf/{KEY}/metadata.json", data)
    FolderCache(folder() / "shelf").get(KEY)


def _shelf_seeds() -> list[bytes]:
    return [
        PackedKernel(KEY, {"name": "matmul", "shared": 0}, {"cubin": b"\x7fELF"}).record().encode()
    ]


def _model(data: bytes) -> None:
    model = read_model(data.decode(errors="replace")).model
    configs = [Config(BM=16, BN=32), Config(BM=64, BN="x"), Config()]
    for key in ({"M": 64}, {"M": "x", "K": None}, {}):
        model.predict(key, configs)


def _model_seeds() -> list[bytes]:
    columns = Columns.from_json(
        {
            "keys": ["M"],
            "parameters": [["BM", [16, 32, 64]], ["BN", [32, "x"]]],
            "extras": [],
            "sums": [[[-1, 0]], [[0, -1]], [[0, 0]], [[-1, 1]]],
        }
    )
    width = columns.width
    trees = PlainTrees.from_json(
        {
            "width": width, "roots": [0, 3], "features": [0, -1, -1, 1, -1, -1],
            "numbers": [1.5, 0.1, 0.2, 3.5, 0.3, 0.4], "rights": [2, 5],
        }
    )  # fmt: skip
    kept_model = KeptModel("matmul", {"w": 3}, CostModel(columns, trees, None))
    return [kept_model.to_text().encode()]


def _note(data: bytes) -> None:
    note = ranks._note(data.decode(errors="replace"))
    if note is not None:
        note.text()


def _note_seeds() -> list[bytes]:
    best = a_trial(a_workload(), {"BM": 1}, 20.0, id="t")
    agreed = ranks.Agreed(1, best, (Config(BM=2),), "because")
    return [ranks._Note(2, 1, agreed).text().encode(), ranks._Note(1, 0).text().encode()]


def _cached_config(data: bytes) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        config_cache._read(written("config.json", data))


_CACHED = {
    "v": 1,
    "kernel_type": "gemm",
    "problem_size": [64, 64],
    "device": "0",
    "config": {"BM": 1},
}


def _report(data: bytes) -> None:
    """Nine parts as JSON, pickled as a worker does; damaged pickles can bring Python itself down,
    and come from no worker of ours."""
    try:
        parts = json.loads(data)
    except (ValueError, RecursionError):
        return
    if isinstance(parts, list):
        packed = [pickle.dumps(part) if at in (1, 2) else part for at, part in enumerate(parts)]
        report = read_report(pickle.dumps(tuple(packed), protocol=5))
        str(report.summary), dict(report.stages)


def _report_seeds() -> list[bytes]:
    return [
        b'[true, {"a": 1}, null, "", "", "", 0.5, {"compile": 0.25}, false]',
        b'[false, "", "no", "ValueError", "no such tile", "trace", 1.5, {}, true]',
    ]


def _frames(data: bytes) -> None:
    """Whatever a worker writes before it is gone."""
    near, far = socket.socketpair()
    with near, far:
        far.setblocking(False)
        with suppress(BlockingIOError):
            far.send(data)
        far.close()
        channel = Channel(near.fileno())
        with suppress(EOFError):
            while channel.receive() is not None:
                pass


def _frame_seeds() -> list[bytes]:
    return [b"".join(HEADER.pack(len(body)) + body for body in (b"one", b"", b"two" * 50))]


TARGETS = (
    Target(
        "shelf", _shelf, _shelf_seeds, (BinaryError,), ("targets/triton/packed",), "json",
        ("metadata", "files", "cubin", "bytes", "sha256", "key", KEY), 15_000,
    ),
    Target(
        "cost-model", _model, _model_seeds, (ModelError,), ("learn/", "engine/fallback/inherit"),
        "json", ("columns", "trees", "roots", "rights", "numbers", "features", "sums"), 40_000,
    ),
    Target(
        "rank-note", _note, _note_seeds, (BoardLostError,), ("engine/ranks", "core/"), "json",
        (*WORDS, "generation", "rank", "agreed", "equals", "reason"), 20_000,
    ),
    Target(
        "cached-config", _cached_config, lambda: [json.dumps(_CACHED).encode()], (),
        ("autotuner/cache",), "json", ("config", "v", "problem_size"), 10_000,
    ),
    Target(
        "worker-report", _report, _report_seeds, (Garbled,), ("workers/report",), "json",
        ("compile", "ValueError"), 20_000,
    ),
    Target(
        "worker-frames", _frames, _frame_seeds, (), ("workers/",), per_million=20_000
    ),
)  # fmt: skip
