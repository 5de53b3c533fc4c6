"""What `torch.compile` sees of a choice: a constant.

Dynamo follows `traced_place`, which turns the arguments into plain constants, and calls the look-up
behind it while it traces, as it does with any function marked `assume_constant_result`. What comes
back is the place of an implementation, which is then traced like code of the user's own. Sizes that
the key has are pinned down: another size is another key, and compiles anew.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch

from whet.core.tested import check_tested
from whet.targets.choice.keys import Described
from whet.targets.choice.target import Traced, numbered

check_tested("torch", torch.__version__)


def traced_place(chooser: Traced, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> int:
    description = chooser.keys.described(args, kwargs)
    grad, gpu = False, -1
    for value in [*args, *kwargs.values()]:
        if isinstance(value, torch.Tensor):
            grad = grad or value.requires_grad
            if gpu < 0 and value.is_cuda:
                gpu = value.device.index or 0
        elif isinstance(value, torch.nn.Module):
            grad = grad or any([one.requires_grad for one in value.parameters()])  # noqa: C419
    place: int = _look_up(chooser.number, description, grad and torch.is_grad_enabled(), gpu)
    return place


@torch._dynamo.assume_constant_result  # type: ignore[untyped-decorator]
def _look_up(number: str, description: Described, grad: bool, gpu: int) -> int:
    place: int = numbered[number].compiled_place(description, grad, None if gpu < 0 else gpu)
    return place
