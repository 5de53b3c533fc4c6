"""Two kernels as Inductor writes them, on an H200 that is not there: they are really built for it,
in a pool of threads, and launched for the first time; times are told.

Run as a program, like `inductor_stand_in.py`, with a list of scenarios: an environment, and whether
the kernel is called otherwise than before.
"""

import json
import os
import pickle
import sys
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any

import torch
from inductor_stand_in import stand_in

import whet
from whet.core.timing import Method
from whet.measure.bench.executor import LocalBench
from whet.targets.inductor.kernel import KernelTarget, LoadedKernel
from whet.testing.fake_triton import ToldTimer

SOURCE = """
import triton
import triton.language as tl
from torch._inductor.runtime import triton_helpers, triton_heuristics
from torch._inductor.runtime.hints import DeviceProperties

triton_helpers.set_driver_to_gpu()

@triton_heuristics.pointwise(
    size_hints={"x": 4194304},
    filename=__file__,
    triton_meta={
        "signature": {
            "in_ptr0": "*fp32", "out_ptr0": "*fp32", "xnumel": "i32", "XBLOCK": "constexpr"
        },
        "device": DeviceProperties(
            type="cuda", index=0, multi_processor_count=132, cc=90, major=9,
            regs_per_multiprocessor=65536, max_threads_per_multi_processor=2048,
            max_threads_per_block=1024, warp_size=32,
        ),
        "constants": {},
        "configs": [{(0,): [["tt.divisibility", 16]], (1,): [["tt.divisibility", 16]]}],
    },
    inductor_meta={
        "kernel_name": "NAME",
        "mutated_arg_names": [],
        "coordinate_descent_tuning": DESCENDS,
        "max_autotune_pointwise": SEVERAL,
        "autotune_pointwise": SEVERAL,
        "backend_hash": "0",
        "autotune_local_cache": False,
        "grid_type": "Grid1D",
        "num_load": 1,
        "num_reduction": 0,
    },
    min_elem_per_thread=0,
)
@triton.jit
def NAME(in_ptr0, out_ptr0, xnumel, XBLOCK: tl.constexpr):
    xoffset = tl.program_id(0) * XBLOCK
    xindex = xoffset + tl.arange(0, XBLOCK)[:]
    tmp0 = tl.load(in_ptr0 + xindex, xindex < xnumel)
    tl.store(out_ptr0 + xindex, tmp0 * FACTOR, xindex < xnumel)
"""


class Launcher:
    """`ns` is least at 512 elements by two warps."""

    n_regs, n_spills, shared, cache_hash, store_cubin = 16, 0, 0, "0", False

    def __init__(self, config: Any) -> None:
        self.config = config
        block = config.kwargs["XBLOCK"]
        off = abs(block.bit_length() - 10) + abs(config.num_warps.bit_length() - 2)
        self.ns = 10_000.0 * (1 + 0.2 * off)

    def __call__(self, *args: Any, stream: int, **kwargs: Any) -> None: ...


class Pool:
    """What is submitted could be sent to another process, and is built in this one."""

    def __init__(self) -> None:
        self.threads, self.sent = ThreadPoolExecutor(1), 0

    def submit(self, job: Any) -> Any:
        self.sent += 1
        return self.threads.submit(pickle.loads(pickle.dumps(job)))


def main(scenarios: list[dict[str, Any]]) -> None:
    stand_in()
    from torch._inductor import codecache
    from torch._inductor.async_compile import AsyncCompile
    from torch._inductor.runtime import triton_helpers, triton_heuristics

    triton_helpers.set_driver_to_gpu = lambda: None
    interface: Any = torch._dynamo.device_interface.CudaInterface
    interface.exchange_device = interface.maybe_exchange_device = staticmethod(lambda _: 0)
    torch.cuda.current_stream = lambda *_: type("Stream", (), {"cuda_stream": 0})
    torch.cuda.is_current_stream_capturing = lambda: False
    autotuner: Any = triton_heuristics.CachingAutotuner
    built: list[str] = []
    precompile_config = autotuner._precompile_config

    def built_now(self: Any, config: Any) -> Any:
        built.append(str(config))
        return precompile_config(self, config)

    autotuner._precompile_config = built_now
    for result in (
        triton_heuristics.TritonCompileResult,
        triton_heuristics.StaticTritonCompileResult,
    ):
        result.make_launcher = lambda self: Launcher(self.config)
    by_inductor: list[float] = []

    def bench(self: Any, launcher: Any, *args: Any, **kwargs: Any) -> float:
        by_inductor.append(launcher.ns)
        return launcher.ns / 1e6

    autotuner.bench = bench
    timed: list[str] = []

    def told(loaded: Any) -> float:
        timed.append(str(loaded.launcher.config))
        return float(loaded.launcher.ns)

    def load(self: Any, config: Any, artifact: Any) -> Any:
        launcher = self.kernel.launcher(config)
        loaded: Any = LoadedKernel(launcher, self._call, self)
        loaded.launcher = launcher
        loaded.config = loaded  # what the timer is told
        return loaded

    target: Any = KernelTarget
    target.load = load
    target.method = Method("told")
    target.bench = lambda self, limits: LocalBench(self, ToldTimer(told))
    AsyncCompile.use_process_pool = classmethod(lambda _: True)
    process_pool = AsyncCompile.process_pool
    for scenario in scenarios:
        pool = Pool()
        AsyncCompile.process_pool = staticmethod(lambda pool=pool: pool)
        source = SOURCE.replace("NAME", scenario.pop("name"))
        for name in ("DESCENDS", "SEVERAL", "FACTOR"):
            source = source.replace(name, str(scenario.pop(name)))
        name = next(
            line[4:].partition("(")[0] for line in source.splitlines() if line[:4] == "def "
        )
        os.environ.update(scenario)
        for found in (built, timed, by_inductor):
            found.clear()
        with whet.install(inductor="all"):
            load = partial(codecache._load_triton_kernel_from_source, name, source)
            kernel = load()
            kernel.precompile(reload_kernel=load)
            ahead = pool.sent
            tensors = torch.zeros(4), torch.zeros(4)
            kernel.run(*tensors, 4, stream=0)
            again = len(timed)
            kernel.run(*tensors, 4, stream=0)
            rows = [one for one in whet.installed() if one.kernel.startswith("inductor")]
        (launcher,) = kernel.launchers
        found = {
            "pick": [launcher.config.kwargs["XBLOCK"], launcher.config.num_warps],
            "ahead": ahead,
            "sent": pool.sent,
            "timed": len(set(timed)),
            "again": len(timed) - again,
            "built": len(built),
            "by_inductor": len(by_inductor),
            "rows": [[one.kernel, one.how, one.keys] for one in rows],
        }
        print(json.dumps(found), flush=True)
    AsyncCompile.process_pool = process_pool


if __name__ == "__main__":
    main(json.loads(sys.argv[1]))
