"""Direct launches on a real device: what they compute, beside Triton alone, and who sees them."""

# Kernels cannot be annotated as Python functions are, and write their constants in capitals.
# mypy: allow-untyped-defs, allow-incomplete-defs, allow-untyped-decorators
# ruff: noqa: N803

from __future__ import annotations

import importlib.util
import random
import threading
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

import whet

torch: Any = pytest.importorskip("torch")
triton: Any = pytest.importorskip("triton")
tl: Any = pytest.importorskip("triton.language")

pytestmark = [pytest.mark.gpu, pytest.mark.timeout(300)]

LENGTH = 1024
FACTOR: Any = tl.constexpr(2.0)


@triton.jit
def mixed(x_ptr, y_ptr, n, m, scale, flag, KIND: tl.constexpr, BLOCK: tl.constexpr = 256):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    inside = at < n
    value = at.to(tl.float32)
    if x_ptr is not None:
        value = tl.load(x_ptr + at, mask=inside, other=0).to(tl.float32) * scale * FACTOR
    if KIND and m is not None:
        value += m
    tl.store(y_ptr + at, value, mask=inside & (flag != 0))


@pytest.fixture(autouse=True)
def caches(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("WHET_STORE", str(tmp_path / "store.db"))
    monkeypatch.setenv("WHET_DIRECT", "yes")


@pytest.fixture
def directly(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """The kernels that were launched so, in order."""
    from whet.targets.triton import direct

    launched: list[Any] = []
    write = direct.direct_call

    def counted(*args: Any) -> Any:
        made = write(*args)

        def launch(*call: Any) -> Any:
            kernel = made.launch(*call)
            if kernel is not None:
                launched.append(kernel)
            return kernel

        return direct.DirectCall(launch, made.text)

    monkeypatch.setattr(direct, "direct_call", counted)
    return launched


def tuned(kernel: Any, **keywords: Any) -> Any:
    one = triton.Config({}, num_warps=2)
    return whet.autotune(configs=[one], **{"key": [], **keywords})(kernel)


def numbers(dtype: Any = None, shift: int = 0, device: str = "cuda") -> Any:
    whole = torch.arange(LENGTH + 32, device=device, dtype=torch.float32) / 7
    return whole.to(dtype or torch.float32)[shift : shift + LENGTH]


class Subject:
    """`mixed`, tuned, whose every call is made once more by Triton alone."""

    def __init__(self, directly: list[Any]) -> None:
        self.directly = directly
        self.kernel = triton.JITFunction(mixed.fn)
        self.tuner = tuned(self.kernel)
        self.args = [numbers(), numbers(), 512, 3, 0.5, True]
        self.kwargs: dict[str, Any] = {"KIND": 1}
        self.grid: Any = lambda meta: (triton.cdiv(LENGTH, meta["BLOCK"]),)
        for _ in range(4):
            self.tuner[self.grid](*self.args, **self.kwargs)
        assert self.directly, self.tuner.whet_not_direct

    def direct(self, *places: Any, **others: Any) -> bool:
        """Whether the call with these in place of the usual arguments was; its result is right."""
        args, kwargs = list(self.args), {**self.kwargs, **others}
        for place, value in places:
            args[place] = value
        out = args[1]
        out.zero_()
        before = len(self.directly)
        self.tuner[self.grid](*args, **kwargs)
        ours = out.clone()
        made = len(self.directly) > before
        out.zero_()
        self.kernel.run(*args, grid=self.grid, warmup=False, num_warps=2, **kwargs)
        assert torch.equal(ours, out)
        return made


class Wrapped(torch.Tensor):  # type: ignore[misc]
    pass


SAME: dict[str, Callable[[], Any]] = {
    "another tensor": lambda: (0, numbers().mul_(3)),
    "another multiple of 16": lambda: (2, 256),
    "zero": lambda: (2, 0),
    "another odd number": lambda: (3, 7),
    "another float": lambda: (4, 0.25),
    "another bool": lambda: (5, False),
}
OTHER: dict[str, Callable[[], Any]] = {
    "dtype": lambda: (0, numbers(torch.float16)),
    "dtype of one size": lambda: (0, numbers(torch.int32)),
    "alignment": lambda: (0, numbers(shift=1)),
    "alignment of the result": lambda: (1, numbers(shift=3)),
    "a parameter": lambda: (0, torch.nn.Parameter(numbers())),
    "a subclass": lambda: (0, numbers().as_subclass(Wrapped)),
    "no tensor": lambda: (0, None),
    "divisibility": lambda: (2, 511),
    "indivisibility": lambda: (3, 32),
    "one": lambda: (3, 1),
    "no number": lambda: (3, None),
    "beyond 31 bits": lambda: (2, 2**31),
    "a bool for an integer": lambda: (3, True),
    "an integer for a float": lambda: (4, 2),
    "pinned memory": lambda: (0, numbers(device="cpu").pin_memory()),
}


def test_values_of_the_same_kind_and_of_others(directly: list[Any]) -> None:
    subject = Subject(directly)
    wrong = [name for name, made in SAME.items() if not subject.direct(made())]
    for name, made in OTHER.items():
        wrong += [name] * subject.direct(made())
        wrong += [f"after {name}"] * (not subject.direct())
    wrong += [f"{one}" for one in (2, True) if subject.direct(KIND=one)]
    wrong += ["block"] * subject.direct(BLOCK=128)
    assert not wrong


def test_memory_of_the_host_is_refused_as_ever(directly: list[Any]) -> None:
    subject = Subject(directly)
    with pytest.raises(ValueError, match="cpu tensor"):
        subject.tuner[subject.grid](numbers(device="cpu"), *subject.args[1:], KIND=1)
    torch.cuda.synchronize()
    assert subject.direct()


def test_an_empty_grid_launches_nothing(directly: list[Any]) -> None:
    subject = Subject(directly)
    subject.grid = (0,)
    assert subject.direct()
    assert not subject.args[1].any()


def test_hooks_and_knobs_set_later(directly: list[Any], monkeypatch: pytest.MonkeyPatch) -> None:
    subject, seen = Subject(directly), []
    runtime = triton.knobs.runtime
    runtime.launch_enter_hook.add(lambda metadata: seen.append(metadata.get()["name"]))
    try:
        assert not subject.direct()
    finally:
        runtime.launch_enter_hook.calls.clear()
    assert seen == ["mixed", "mixed"]
    assert subject.direct()
    with monkeypatch.context() as patch:
        patch.setattr(runtime, "debug", True)
        assert not subject.direct()
    assert subject.direct()


def test_a_global_that_changed_is_refused(
    directly: list[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    subject = Subject(directly)
    monkeypatch.setitem(globals(), "FACTOR", tl.constexpr(3.0))
    with pytest.raises(RuntimeError, match="FACTOR has changed"):
        subject.tuner[subject.grid](*subject.args, **subject.kwargs)


def test_the_present_stream_is_used(directly: list[Any]) -> None:
    subject = Subject(directly)
    x, out = subject.args[0], subject.args[1]
    stream = torch.cuda.Stream()
    expected = 4 * numbers() * 0.5 * 2 + 3
    for _ in range(20):
        torch.cuda.synchronize()
        with torch.cuda.stream(stream):
            torch.cuda._sleep(2_000_000)
            torch.mul(numbers(), 4, out=x)
            subject.tuner[subject.grid](x, out, LENGTH, 3, 0.5, True, KIND=1)
            found = out.clone()
            x.zero_()
        stream.synchronize()
        torch.testing.assert_close(found, expected)
    assert len(directly) > 20


def test_a_captured_launch_is_replayed(directly: list[Any]) -> None:
    subject = Subject(directly)
    x, out = subject.args[:2]
    graph = torch.cuda.CUDAGraph()
    before = len(directly)
    with torch.cuda.graph(graph):
        subject.tuner[subject.grid](*subject.args, **subject.kwargs)
        subject.tuner[subject.grid](out, x, *subject.args[2:], **subject.kwargs)
    assert len(directly) == before + 2
    x.copy_(numbers())
    graph.replay()
    once = numbers() * 0.5 * 2 + 3
    torch.testing.assert_close(out[:512], once[:512])
    torch.testing.assert_close(x[:512], once[:512] * 0.5 * 2 + 3)


def test_torch_s_profiler_sees_them(directly: list[Any]) -> None:
    subject = Subject(directly)
    kinds = [torch.profiler.ProfilerActivity.CUDA, torch.profiler.ProfilerActivity.CPU]
    with torch.profiler.profile(activities=kinds) as profile:
        for _ in range(5):
            subject.tuner[subject.grid](*subject.args, **subject.kwargs)
        torch.cuda.synchronize()
    seen = [one for one in profile.events() if one.name == "mixed"]
    assert len(seen) == 5
    assert len(directly) >= 5


def test_under_torch_compile(directly: list[Any]) -> None:
    subject = Subject(directly)

    @torch.compile(fullgraph=True)
    def doubled(x):
        out = torch.empty_like(x)
        subject.tuner[(4,)](x, out, LENGTH, 3, 0.5, True, KIND=1, BLOCK=256)
        return 2 * out

    for _ in range(3):
        torch.testing.assert_close(doubled(numbers()), 2 * (numbers() * 0.5 * 2 + 3))
    assert subject.direct()


def test_threads_with_a_stream_each(directly: list[Any]) -> None:
    subject = Subject(directly)
    wrong: list[Any] = []

    def work(seed: int) -> None:
        rng = random.Random(seed)
        with torch.cuda.stream(torch.cuda.Stream()):
            x, out = numbers() * seed, numbers()
            for _ in range(200):
                m, n = rng.choice([(3, 512), (7, 1024), (32, 511)])
                out.zero_()
                subject.tuner[subject.grid](x, out, n, m, 0.5, True, KIND=1)
                expected = torch.where(torch.arange(LENGTH, device="cuda") < n, x + m, 0.0)
                if not torch.allclose(out, expected):
                    wrong.append((seed, m, n))

    threads = [threading.Thread(target=work, args=(seed,)) for seed in range(1, 7)]
    for one in threads:
        one.start()
    for one in threads:
        one.join()
    assert not wrong
    assert len(directly) > 500


def test_plain_kernels_on_request(directly: list[Any]) -> None:
    x, out = numbers(), numbers()
    whet.install(jit=True)
    try:
        for m in (3, 7, 3, 7, 1, 32, 3):
            out.zero_()
            mixed[(4,)](x, out, LENGTH, m, 0.5, True, KIND=1)
            torch.testing.assert_close(out, x + m)
        (one,) = [one for one in whet.installed() if one.kernel == "mixed" and one.how == "plain"]
        assert one.launch == "direct"
        with pytest.raises(ValueError, match="cpu tensor"):
            mixed[(4,)](numbers(device="cpu"), out, LENGTH, 3, 0.5, True, KIND=1)
    finally:
        whet.uninstall()


# Kernels that a program wrote, called at random.

KERNEL = """\
import triton
import triton.language as tl

@triton.jit{how}
def kernel{number}({parameters}):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    inside = at < n
    total = tl.zeros([BLOCK], tl.float32)
{lines}
    tl.store(out + at, total, mask=inside)
"""


@dataclass(frozen=True)
class Written:
    text: str
    number: int
    tensors: tuple[str, ...]
    whole: tuple[str, ...]
    floats: tuple[str, ...]
    flags: tuple[str, ...]

    def arguments(self, rng: random.Random) -> dict[str, Any]:
        """Mostly of one kind."""
        usual = [(torch.float32, 0)] * 8
        kinds = [*usual, (torch.float16, 0), (torch.float32, 1), (torch.int32, 0)]
        found: dict[str, Any] = {"out": numbers()}
        for name in self.tensors:
            found[name] = numbers(*rng.choice(kinds)) * rng.randrange(1, 5)
        if self.tensors and not rng.randrange(8):
            found[self.tensors[-1]] = None
        found["n"] = rng.choice([512, 1024, 1024, 768, 511])
        found |= {name: rng.choice([3, 5, 7, 9, 11, 16, 1]) for name in self.whole}
        found |= {name: rng.choice([0.5, 1.5, -2.0]) for name in self.floats}
        found |= {name: rng.choice([True, True, True, False, 2]) for name in self.flags}
        return found


def written(number: int) -> Written:
    rng = random.Random(number)
    tensors = tuple(f"t{i}" for i in range(rng.randrange(1, 9)))
    whole = tuple(f"i{i}" for i in range(rng.randrange(0, 8)))
    floats = tuple(f"f{i}" for i in range(rng.randrange(0, 3)))
    flags = tuple(f"FLAG{i}" for i in range(rng.randrange(1, 4)))
    own = ["out", *tensors, "n", *whole, *floats]
    rng.shuffle(own)
    lines = []
    for i, name in enumerate(tensors):
        lines += [
            f"    if {name} is not None:",
            f"        total += {i + 1} * tl.load({name} + at, mask=inside, other=0)",
        ]
    lines += [f"    total += {name} * {i + 1}" for i, name in enumerate(whole)]
    lines += [f"    total *= {name}" for name in floats]
    lines += [f"    if {name}:\n        total += 1 + {name}" for name in flags]
    how = rng.choice(["", "", f"(do_not_specialize={list(whole[:2])})"])
    parameters = ", ".join([*own, *(f"{one}: tl.constexpr" for one in (*flags, "BLOCK"))])
    text = KERNEL.format(how=how, number=number, parameters=parameters, lines="\n".join(lines))
    return Written(text, number, tensors, whole, floats, flags)


@pytest.fixture
def modules(tmp_path: Path) -> Callable[[Written], Any]:
    def load(one: Written) -> Any:
        path = tmp_path / f"written_{one.number}.py"
        path.write_text(one.text)
        spec = importlib.util.spec_from_file_location(path.stem, path)
        assert spec is not None
        assert spec.loader is not None
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
        return getattr(module, f"kernel{one.number}")

    return load


@pytest.mark.parametrize("number", range(20))
def test_random_calls_are_triton_s(
    number: int, directly: list[Any], modules: Callable[[Written], Any]
) -> None:
    one = written(number)
    kernel = modules(one)
    alone = triton.JITFunction(
        kernel.fn, do_not_specialize=kernel.do_not_specialize, noinline=kernel.noinline
    )
    tuner = tuned(kernel, key=["n"])
    rng = random.Random(number)
    kinds = [one.arguments(rng) for _ in range(8)]
    for call in range(100):
        named = dict(rng.choice(kinds))
        for name in one.floats:
            named[name] = rng.random()
        out = named["out"] = torch.zeros(LENGTH, device="cuda")
        block = rng.choice([128, 128, 128, 256])
        grid: Any = (lambda meta: (LENGTH // meta["BLOCK"],)) if call % 2 else (LENGTH // block,)
        args = []
        if call % 4 < 2:  # by place, as far as it goes
            args = [named.pop(name) for name in kernel.arg_names[: -1 - len(one.flags)]]
        tuner[grid](*args, BLOCK=block, **named)
        ours = out.clone()
        out.zero_()
        alone[grid](*args, BLOCK=block, num_warps=2, **named)
        assert torch.equal(ours, out), (call, named)
    assert len(directly) > 20, tuner.whet_not_direct
