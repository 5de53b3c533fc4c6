"""torch's compiler with an H200 that is not there: it really lowers for it, and really makes the
source of every choice. Nothing is launched: `benchmark_choices` and `get_inputs` are told.

Run as a program, since torch stays changed by it, with a list of scenarios: an environment, and the
`fastest` choice, which is `extern` or the place of a template. Writes a line of JSON for each.
"""

import json
import os
import sys
from typing import Any

import torch
import torch._dynamo.device_interface  # before a device is said to be there
import triton
from triton.backends.compiler import GPUTarget

import whet
from whet.core.timing import Method
from whet.core.workload import Device, Limits
from whet.measure.bench.executor import LocalBench
from whet.measure.bench.protocol import Verdict
from whet.targets.inductor.operation import OperationTarget, is_extern
from whet.testing.fake_triton import ToldTimer


class Properties:
    name, type, index = "NVIDIA H200", "cuda", 0
    major, minor, cc, warp_size = 9, 0, 90, 32
    total_memory, L2_cache_size = 140 << 30, 50 << 20
    multi_processor_count, max_threads_per_multi_processor = 132, 2048
    regs_per_multiprocessor, max_threads_per_block = 65536, 1024
    shared_memory_per_block, shared_memory_per_block_optin = 49152, 232448
    shared_memory_per_multiprocessor = 233472
    gcnArchName = ""  # noqa: N815 - torch's name


class Driver:
    whet_device = Device(
        "NVIDIA H200", "nvidia", "sm_90", "12.8", Limits(shared_memory_bytes=232448)
    )

    def get_current_target(self) -> Any:
        return GPUTarget("cuda", 90, 32)

    def get_current_device(self) -> int:
        return 0

    def get_current_stream(self, device: int = 0) -> int:
        return 0

    def get_active_torch_device(self) -> Any:
        return torch.device("cuda", 0)


def stand_in() -> None:
    properties = Properties()
    cuda: Any = torch.cuda
    torch.version.cuda = "12.8"
    for name, value in {
        "is_available": True,
        "_is_compiled": True,
        "is_initialized": True,
        "is_bf16_supported": True,
        "device_count": 1,
        "current_device": 0,
        "get_device_properties": properties,
        "get_device_capability": (9, 0),
        "get_device_name": properties.name,
        "_lazy_init": None,
        "synchronize": None,
        "set_device": None,
    }.items():
        setattr(cuda, name, lambda *_, value=value, **__: value)
    from torch._dynamo.device_interface import CudaInterface

    for name, value in {
        "is_available": True,
        "is_triton_capable": True,
        "raise_if_triton_unavailable": None,
        "get_compute_capability": 90,
        "current_device": 0,
        "synchronize": None,
        "get_device_properties": properties,
        "get_raw_stream": 0,
    }.items():
        setattr(CudaInterface, name, staticmethod(lambda *_, value=value, **__: value))
    worker: Any = CudaInterface.Worker
    worker.get_device_properties = staticmethod(lambda *_: properties)
    worker.current_device = staticmethod(lambda: 0)
    triton.runtime.driver.set_active(Driver())


def lowered(function: Any, *shapes: tuple[int, ...]) -> list[Any]:
    """The buffers of a graph, in which a choice among templates is not made yet."""
    from torch._inductor.debug import DebugContext
    from torch._inductor.graph import GraphLowering
    from torch._inductor.virtualized import V
    from torch._subclasses.fake_tensor import FakeTensorMode
    from torch.fx.experimental.proxy_tensor import make_fx

    with FakeTensorMode(allow_non_fake_inputs=True):
        inputs = [torch.empty(shape, device="cuda", dtype=torch.float16) for shape in shapes]
        graph = GraphLowering(make_fx(function)(*inputs), example_inputs=inputs)
        with DebugContext(), V.set_graph_handler(graph):
            graph.run(*inputs)
            multiple = [one for one in graph.buffers if hasattr(one, "choice_timings")]
            return [one.choice_timings() for one in multiple]


def main(scenarios: list[dict[str, str]]) -> None:
    stand_in()
    import torch._inductor.config as inductor
    from torch._inductor.select_algorithm import AlgorithmSelectorCache as Cache

    inductor.max_autotune, inductor.compile_threads = True, 1
    inductor.autotune_local_cache = False
    stock: list[list[str]] = []

    def benchmark_choices(
        cls: Any, choices: Any, autotune_args: Any, is_collective: bool = False
    ) -> Any:
        stock.append([one.name if is_extern(one) else "template" for one in choices])
        return {one: 3.0 + at for at, one in enumerate(choices)}

    prepared: list[bool] = []

    def make_precompile_fn(self: Any, choices: Any, name: str, inputs: str, **_: Any) -> Any:
        prepared.append(len(self.lookup(choices, name, inputs, None)) < len(choices))
        return dict

    Cache.benchmark_choices = classmethod(benchmark_choices)
    Cache.get_inputs = classmethod(lambda *_, **__: None)
    Cache.make_precompile_fn = make_precompile_fn
    fastest, timed = "", []

    class Told:
        facts, compares = {}, True

        def __init__(self, choice: Any, place: int) -> None:
            wins = fastest == ("extern" if is_extern(choice) else str(place))
            self.choice, self.config, self.place = choice, self, place
            self.ns = 10_000.0 if wins else 20_000.0 + 1_000 * place

        def first_call(self) -> None:
            timed.append(self.choice.name)

        def repeat(self, n: int) -> None: ...
        def close(self) -> None: ...

        def check(self) -> Verdict:
            return Verdict(self.place != 3, "it was told to be wrong")

    def load(self: Any, config: Any, artifact: Any) -> Told:
        return Told(self.operation.by_config[config], self.operation.configs.index(config))

    target: Any = OperationTarget
    target.load, target.method = load, Method("told")
    target.bench = lambda self, limits: LocalBench(self, ToldTimer(lambda one: one.ns))

    def product(a: Any, b: Any) -> Any:
        return torch.relu(torch.mm(a, b))

    for scenario in scenarios:
        fastest = scenario.pop("fastest")
        for found in (stock, prepared, timed):
            found.clear()
        shapes = ((512, 1024), (1024, 768))
        os.environ.update(scenario)
        with whet.install(inductor=True):
            timings = lowered(product, *shapes)[0]
            inductor.max_autotune_gemm_backends = "TRITON"
            templates = lowered(product, *shapes)[0]
            inductor.max_autotune_gemm_backends = "ATEN,TRITON,CPP"
            again = lowered(product, *shapes)[0]
            rows = [one for one in whet.installed() if one.kernel.startswith("inductor")]
        pick = min(timings, key=timings.get)
        found = {
            "choices": len(timings),
            "pick": pick.name.rstrip("0123456789"),
            "numbers": "" if is_extern(pick) else pick.description,
            "finite": sum(one < float("inf") for one in timings.values()),
            "timed": len(timed),
            "prepared": prepared,
            "stock": stock,
            "without a library": min(templates, key=templates.get).name.rstrip("0123456789"),
            "again": min(again, key=again.get).name.rstrip("0123456789"),
            "rows": [[one.kernel, one.how, one.keys] for one in rows],
        }
        print(json.dumps(found), flush=True)


if __name__ == "__main__":
    main(json.loads(sys.argv[1]))
