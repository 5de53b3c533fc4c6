"""The same mode once more, in a second process that finds the caches filled.

What is asked of it must not disturb the process that times the mode: how long compiling takes when
the caches are warm, whether anything is compiled or tuned again, and the profile of a step.
"""

from __future__ import annotations

import json
import os
import pickle
import select
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from copy import deepcopy
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from whet.core.config import Value
from whet.doctor.modes.compiler import CompilerWatch, by_layer, issued_ns, profiled, recordings
from whet.doctor.modes.loaded import EARLY_ENDS, LoadedMode, set_caches
from whet.doctor.modes.variants import compiled, variant
from whet.doctor.subject import CHILD, ExaminedModel, Inputs, SecondRun, device_of, step

LIMIT_S = 600.0
TOO_LONG = f"did not end within {LIMIT_S:.0f} s"
_TOO_LONG: dict[str, Value] = {"second_process": TOO_LONG}
_MORE_STEPS = 8

# Under CUDA graphs the third call is the first replay.
_CALLS = 3

Compile = Callable[[Any], Callable[..., Any]]


def run_again(again: SecondRun) -> dict[str, Value]:
    """What the second process found out; why it did not, where it failed."""
    with tempfile.TemporaryDirectory(prefix="whet-doctor-") as folder:
        answer = Path(folder, "answer")
        try:
            code, said = run_module("whet.doctor.modes.second", again, folder, str(answer))
        except subprocess.TimeoutExpired:
            return _TOO_LONG
        return _told(answer, code, said)


def run_module(
    module: str, asked: object, folder: str, *arguments: str, **environment: str
) -> tuple[int, str]:
    """Its exit code and the last line of what it said. The module gets a file with the id of this
    process and with what is asked of it; `subprocess.TimeoutExpired` where it takes too long."""
    file = Path(folder, "asked")
    file.write_bytes(pickle.dumps((os.getpid(), asked)))
    # Modules are found where this process finds them.
    found = {CHILD: "1", "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    done = subprocess.run(
        [sys.executable, "-m", module, str(file), *arguments],
        capture_output=True,
        text=True,
        timeout=LIMIT_S,
        env={**os.environ, **found, **environment},
    )
    return done.returncode, _last_line(done.stderr)


def _last_line(text: str) -> str:
    return next(reversed(text.strip().splitlines()), "")


def _told(answer: Path, code: int, said: str) -> dict[str, Value]:
    with suppress(OSError, ValueError):
        told: dict[str, Value] = json.loads(answer.read_text())
        return told
    return {"second_process": f"failed: {said or code}"}


class SecondCopy:
    """A copy of this process, made before anything was computed in it, that waits to be asked: it
    need not import what this one has. It can be asked once. Its files lie in `folder`, which
    whoever made that removes: it may never be asked."""

    def __init__(self, folder: str) -> None:
        Path(folder).mkdir(parents=True, exist_ok=True)
        self._folder = tempfile.mkdtemp(prefix="second-", dir=folder)
        reading, self._writing = os.pipe()
        parent = os.getpid()
        self._pid = os.fork()
        if self._pid == 0:
            os.close(self._writing)
            _wait_and_tell(parent, reading, Path(self._folder))
        os.close(reading)

    def run(self, again: SecondRun) -> dict[str, Value]:
        """As `run_again`; where the copy is used up, by that."""
        if not self._pid:
            return run_again(again)
        folder, pid, self._pid = Path(self._folder), self._pid, 0
        try:
            (folder / "asked").write_bytes(pickle.dumps(again))
            os.close(self._writing)
            code = _ended_with(pid)
            if code is None:
                return _TOO_LONG
            said = (folder / "said").read_text(errors="replace")
            return _told(folder / "answer", code, _last_line(said))
        finally:
            shutil.rmtree(folder, ignore_errors=True)


def _wait_and_tell(parent: int, reading: int, folder: Path) -> None:
    """Never returns. The other end of the pipe is closed when it is to begin, or has died."""
    code = 1
    try:
        end_with(parent)
        os.read(reading, 1)
        said = os.open(folder / "said", os.O_WRONLY | os.O_CREAT, 0o600)
        os.dup2(said, 1)
        os.dup2(said, 2)
        os.environ[CHILD] = "1"
        _tell(pickle.loads((folder / "asked").read_bytes()), folder / "answer")
        code = 0
    except BaseException as problem:
        os.write(2, f"{type(problem).__name__}: {problem}".encode())
    finally:
        os._exit(code)


def _ended_with(pid: int) -> int | None:
    """None where it had to be killed."""
    descriptor = os.pidfd_open(pid)
    try:
        poll = select.poll()
        poll.register(descriptor, select.POLLIN)
        ended = bool(poll.poll(LIMIT_S * 1000))
    finally:
        os.close(descriptor)
    if not ended:
        os.kill(pid, signal.SIGKILL)
    _, status = os.waitpid(pid, 0)
    return os.waitstatus_to_exitcode(status) if ended else None


def _tell(again: SecondRun, answer: Path) -> None:
    set_caches(again.caches)
    import torch

    torch.manual_seed(0)
    subject = again.source.load()
    if again.failing:
        found = smallest_failure(subject, again.mode, lambda model: compiled(model, again.mode))
        answer.write_text(json.dumps(found))
        return
    watch = CompilerWatch()
    mode = LoadedMode(subject, again.mode)
    mode.compile()
    began = time.perf_counter()
    mode.repeat(1)
    said: dict[str, Value] = {"warm_first_call_s": time.perf_counter() - began}
    with suppress(Exception):
        said.update(watch.cache_facts())
    if not again.only_warm:
        mode.repeat(3)
        said.update(_steps(mode))
    answer.write_text(json.dumps(said))


def _steps(mode: LoadedMode) -> dict[str, Value]:
    """A part that fails costs that part."""
    said: dict[str, Value] = {}
    with suppress(Exception):
        before = recordings(mode.device)
        mode.repeat(_MORE_STEPS)
        after = recordings(mode.device)
        if before is not None and after is not None:
            said["graphs_recorded"] = before
            said["recorded_again"] = after - before
    with suppress(Exception):
        if mode.device is not None:
            said["host_ns"] = issued_ns(lambda: mode.issue(1), mode.wait)
    try:
        said.update(profiled(mode.repeat, mode.device is not None))
    except Exception as error:
        said["not_profiled"] = f"{type(error).__name__}: {error}"
    if mode.eager:
        with suppress(Exception):
            said.update(by_layer(mode.repeat, mode.device is not None))
    with suppress(Exception):
        said.update(mode.numerics())
    return said


def end_with(parent: int) -> None:
    """Dies with the process that times the mode, which may be killed."""
    with suppress(Exception):
        import ctypes

        pr_set_pdeathsig = 1
        ctypes.CDLL(None).prctl(pr_set_pdeathsig, signal.SIGKILL, 0, 0, 0)
        if os.getppid() != parent:
            sys.exit(1)


def smallest_failure(subject: ExaminedModel, mode: str, compile: Compile) -> dict[str, Value]:
    """`compile` applies the mode. Empty where that does not fail here. `layer` is empty where no
    layer fails alone, and `early_end` is missing where it takes all of the compiler to fail;
    `everywhere` says that the mode fails on `x + 1` as well."""
    import torch

    problem = _problem(subject, compile)
    if problem is None:
        return {}
    x = torch.ones(4, device="cpu" if device_of(subject) is None else "cuda")
    trivial = replace(subject, model=lambda x: x + 1, calls=(Inputs((x,)),))
    if _problem(trivial, compile) is not None:
        return {"everywhere": True}
    name, part = _smallest(subject, compile, type(problem))
    said: dict[str, Value] = {"layer": name, **vars(part.place)}
    for backend in EARLY_ENDS:
        if _problem(part, partial(torch.compile, backend=backend)) is not None:
            said["early_end"] = backend
            break
    said["repro"] = _repro(subject, name, part, mode, type(problem))
    if name and _helps_without(subject, name, compile):
        said["without"] = True
    return said


def _problem(subject: ExaminedModel, compile: Compile) -> Exception | None:
    import torch

    torch._dynamo.reset()
    model, call = deepcopy(subject.model), subject.calls[0]
    try:
        with subject.gradients():
            run = compile(model)
            for _ in range(_CALLS):
                step(run, deepcopy(call), subject.training, model)
    except Exception as problem:
        return problem
    return None


def _smallest(
    subject: ExaminedModel, compile: Compile, kind: type[Exception]
) -> tuple[str, ExaminedModel]:
    """Down from layer to layer, as long as one fails alone in the same way. Layers that are alike,
    and are called alike, are tried once."""
    calls = _calls_of_layers(subject)
    seen: set[str] = set()
    name, part = "", subject

    def failing() -> Iterator[tuple[str, ExaminedModel]]:
        for below in _next_below(name, calls):
            layer = subject.model.get_submodule(below)  # type: ignore[attr-defined]
            inner = replace(subject, model=layer, calls=(calls[below],))
            alike = f"{layer} {_arguments(calls[below])}"
            if alike not in seen:
                seen.add(alike)
                if type(_problem(inner, compile)) is kind:
                    yield below, inner

    while (found := next(failing(), None)) is not None:
        name, part = found
    return name, part


def _calls_of_layers(subject: ExaminedModel) -> dict[str, Inputs]:
    """What each layer is called with first, in the order of the calls."""
    import torch
    from torch.utils._pytree import tree_map_only

    calls: dict[str, Inputs] = {}
    model = deepcopy(subject.model)
    if not isinstance(model, torch.nn.Module):
        return {}

    def keep(name: str) -> Callable[..., None]:
        def hook(layer: Any, args: Any, kwargs: Any) -> None:
            copies = tree_map_only(torch.Tensor, lambda one: one.detach().clone(), (args, kwargs))
            calls.setdefault(name, Inputs(*copies))

        return hook

    for name, layer in model.named_modules():
        if name:
            layer.register_forward_pre_hook(keep(name), with_kwargs=True)
    call = deepcopy(subject.calls[0])
    with subject.gradients():
        model(*call.args, **call.kwargs)
    return calls


def _next_below(name: str, calls: dict[str, Inputs]) -> list[str]:
    """Those called directly by it: lists of layers are not called themselves."""
    inside = [one for one in calls if not name or one.startswith(f"{name}.")]
    return [one for one in inside if not any(one.startswith(f"{other}.") for other in inside)]


def _helps_without(subject: ExaminedModel, name: str, compile: Compile) -> bool:
    import torch

    model = deepcopy(subject.model)
    layer = model.get_submodule(name)  # type: ignore[attr-defined]
    layer.forward = torch.compiler.disable(layer.forward)
    return _problem(replace(subject, model=model), compile) is None


def _repro(
    subject: ExaminedModel, name: str, part: ExaminedModel, mode: str, kind: type[Exception]
) -> str:
    """An expression of `model` that fails in the same way; empty where it does not: the values of
    the inputs are not in it."""
    import torch

    layer = f"model.get_submodule({name!r})" if name else "model"
    text = f"torch.compile({layer}, {variant(mode).call})({_arguments(part.calls[0])})"
    if subject.training:
        text += ".sum().backward()"
    torch._dynamo.reset()
    try:
        with subject.gradients():
            for _ in range(_CALLS):
                eval(text, {"torch": torch, "model": deepcopy(subject.model)})
    except Exception as problem:
        return text if type(problem) is kind else ""
    return ""


def _arguments(call: Inputs) -> str:
    named = [f"{name}={_argument(value)}" for name, value in call.kwargs.items()]
    return ", ".join([*map(_argument, call.args), *named])


def _argument(value: Any) -> str:
    import torch

    if not isinstance(value, torch.Tensor):
        return repr(value)
    made = "randn" if value.is_floating_point() or value.is_complex() else "zeros"
    words = [str(list(value.shape))]
    if value.dtype != torch.float32:
        words.append(f"dtype={value.dtype}")
    if value.device.type != "cpu":
        words.append(f"device='{value.device.type}'")
    return f"torch.{made}({', '.join(words)})"


if __name__ == "__main__":
    _parent, _again = pickle.loads(Path(sys.argv[1]).read_bytes())
    end_with(_parent)
    _tell(_again, Path(sys.argv[2]))
