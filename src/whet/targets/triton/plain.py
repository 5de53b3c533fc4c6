"""Direct launches for kernels that nobody tunes: `whet.install(jit=True)`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from triton.runtime.jit import JITFunction

from whet.targets.triton.direct import NotDirect, Route, direct_call
from whet.targets.triton.live import InstalledKernel, instances

# A kernel that is called in more ways than these has the others launched by Triton.
MOST_KINDS = 16

# Under this name a kernel has its direct launches.
PLACE = "_whet_launches"

_before: Any = None


class PlainLaunches:
    """Those of one kernel. `programs` have been launched by Triton, once since this began: whoever
    is launched again comes often."""

    def __init__(self, kernel: Any) -> None:
        self.kernel = kernel
        self.launches: tuple[Callable[..., Any], ...] = ()
        self.texts: tuple[str, ...] = ()
        self.why_not = ""
        self.left = MOST_KINDS
        self.programs: set[int] = set()

    def launch(self, grid: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        for place, one in enumerate(self.launches):
            found = one(grid, args, kwargs)
            if found is not None:
                if place > 3:
                    self.launches = (one, *(other for other in self.launches if other is not one))
                return found
        found = self.kernel.run(*args, grid=grid, warmup=False, **kwargs)
        if self.left:
            self._write(found, grid, args, kwargs)
        return found

    def _write(self, found: Any, grid: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        if id(found) not in self.programs:
            self.programs.add(id(found))
            return
        self.left -= 1
        try:
            made = direct_call(Route(self.kernel), found, grid, args, kwargs)
        except NotDirect as refusal:
            self.why_not = str(refusal)
        except Exception as error:  # the kernel has been launched, and can be again in Triton's way
            self.why_not = f"{type(error).__name__}: {error}"
        else:
            self.launches += (made.launch,)
            self.texts += (made.text,)


def launches_of(kernel: Any) -> PlainLaunches:
    found: PlainLaunches | None = vars(kernel).get(PLACE)
    if found is None:
        found = vars(kernel)[PLACE] = PlainLaunches(kernel)
    return found


def take_plain() -> None:
    """Every `kernel[grid](…)` of this process is tried directly from its second call on."""
    global _before
    if _before is not None:
        return
    kind: Any = JITFunction
    _before = (vars(kind).get("__getitem__"),)
    inherited = kind.__getitem__

    def getitem(self: Any, grid: Any) -> Any:
        if type(self) is not JITFunction:
            return inherited(self, grid)
        launches = launches_of(self)
        return lambda *args, **kwargs: launches.launch(grid, args, kwargs)

    kind.__getitem__ = getitem


def give_plain_back() -> None:
    global _before
    if _before is None:
        return
    kind: Any = JITFunction
    (own,), _before = _before, None
    if own is None:
        del kind.__getitem__
    else:
        kind.__getitem__ = own


def all_plain() -> list[tuple[tuple[str, int, str], InstalledKernel]]:
    """Every plain kernel that was launched, with what to sort it by."""
    return [_described(kernel) for kernel in instances({JITFunction}, PLACE)]


def _described(kernel: Any) -> tuple[tuple[str, int, str], InstalledKernel]:
    launches = vars(kernel)[PLACE]
    code = kernel.fn.__code__
    why = launches.why_not or "no kind of call has come twice"
    one = InstalledKernel(
        kernel=kernel.fn.__name__,
        place=f"{code.co_filename}:{code.co_firstlineno}",
        kind="triton.runtime.jit.JITFunction",
        how="plain",
        reason="",
        keys=0,
        seconds=0.0,
        called=True,
        launch="direct" if launches.texts else f"by Triton: {why}",
        guards=launches.texts,
    )
    return (code.co_filename, code.co_firstlineno, one.kernel), one
