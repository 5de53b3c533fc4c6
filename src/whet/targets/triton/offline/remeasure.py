"""A call of a decorated kernel as a target, for whoever wants to measure and not to tune."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Generic, NoReturn, TypeVar

from whet.core.workload import Workload
from whet.targets.triton import device
from whet.targets.triton.call import Call
from whet.targets.triton.compiler.source import source_of
from whet.targets.triton.keys import agrees, claimed_key
from whet.targets.triton.offline.kernel import Kernel
from whet.targets.triton.offline.tuning import NothingToTuneError, _afresh
from whet.targets.triton.policy import apply_policy, settings_for
from whet.targets.triton.target import TritonTarget

T = TypeVar("T")


class _Enough(Exception, Generic[T]):
    """Ends the call once what was wanted of it is there: nothing is launched for its own sake."""

    def __init__(self, answer: T) -> None:
        super().__init__()
        self.answer = answer


def with_target(
    kernel: Kernel,
    grid: Any,
    args: tuple[Any, ...],
    keywords: Mapping[str, Any],
    use: Callable[[TritonTarget], T],
) -> T:
    """What `use` says of the target that this call would be tuned as, heuristics and pruning
    included. Raises `NothingToTuneError` where there is no choice to make."""

    def instead(call: Call, key: Mapping[str, Any], configs: Sequence[Any]) -> NoReturn:
        target = TritonTarget(call, configs, key, settings_for(kernel.tuner))
        try:
            answer = use(target)
        finally:
            call.restore()
        raise _Enough(answer)

    own: dict[str, Any] = kernel.tuner.__dict__
    with _afresh(kernel.tuner, lambda event: None):
        own["_tuned"] = instead
        try:
            kernel.launcher[grid](*args, **keywords)
        except _Enough as enough:
            answer: T = enough.answer
            return answer
        finally:
            del own["_tuned"]
    raise NothingToTuneError(f"nothing to tune for '{kernel.name}': only one config is left")


def keys_for_inputs(kernel: Kernel, known: Sequence[Workload]) -> list[dict[str, Any]]:
    """The stored keys of this device in the words of `inputs`, as far as these are the same.

    A dtype that `inputs` calls otherwise is left to its default.
    """
    here = device.describe(device.current_index())
    inputs = kernel.tuner.whet_inputs
    assert inputs is not None
    parameters = inspect.signature(inputs).parameters
    apply_policy(kernel.tuner)
    claimed = claimed_key(source_of(kernel.tuner), kernel.tuner.whet_buckets)
    needed = {name for name, p in parameters.items() if p.default is p.empty}
    found: list[dict[str, Any]] = []
    for workload in known:
        key = {name: workload.key[name] for name in parameters if name in workload.key}
        same = workload.kernel == kernel.name and workload.device.name == here.name
        if same and agrees(workload.key, claimed) and needed <= key.keys() and key not in found:
            found.append(key)
    return found
