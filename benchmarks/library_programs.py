"""One forward and backward step of kernels that other people wrote, at sizes people train with."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

Tensors = dict[str, Any]


@dataclass(frozen=True)
class LibraryProgram:
    """`make` imports the library and returns its tensors and a function from these to an output;
    the step is that, a loss and its backward pass."""

    name: str
    repository: str
    make: Callable[[Any], tuple[Tensors, Callable[[Tensors], Any]]]


def _normal(torch: Any, *shape: int, **keywords: Any) -> Any:
    return torch.randn(*shape, device="cuda", dtype=keywords.pop("dtype", torch.bfloat16))


def _gla(torch: Any) -> tuple[Tensors, Callable[[Tensors], Any]]:
    from fla.ops.gla import chunk_gla

    shape = (4, 2048, 8, 128)
    made = {name: _normal(torch, *shape) for name in ("q", "k", "v")}
    made["g"] = torch.nn.functional.logsigmoid(_normal(torch, *shape))
    return made, lambda t: chunk_gla(t["q"], t["k"], t["v"], t["g"])[0]


def _kda(torch: Any) -> tuple[Tensors, Callable[[Tensors], Any]]:
    from fla.ops.kda import chunk_kda

    shape = (4, 2048, 8, 128)
    made = {name: _normal(torch, *shape) for name in ("q", "v")}
    made["k"] = torch.nn.functional.normalize(_normal(torch, *shape).float(), dim=-1).bfloat16()
    made["g"] = torch.nn.functional.logsigmoid(_normal(torch, *shape, dtype=torch.float32))
    made["beta"] = _normal(torch, *shape[:3]).sigmoid()
    return made, lambda t: chunk_kda(t["q"], t["k"], t["v"], t["g"], t["beta"])[0]


def _mamba2(torch: Any) -> tuple[Tensors, Callable[[Tensors], Any]]:
    from mamba_ssm.ops.triton import ssd_combined

    scan = ssd_combined.mamba_chunk_scan_combined
    made = {
        "x": _normal(torch, 4, 2048, 64, 64),
        "dt": torch.nn.functional.softplus(_normal(torch, 4, 2048, 64, dtype=torch.float32) - 4),
        "A": -torch.exp(_normal(torch, 64, dtype=torch.float32)),
        "B": _normal(torch, 4, 2048, 1, 128),
        "C": _normal(torch, 4, 2048, 1, 128),
        "D": _normal(torch, 64, dtype=torch.float32),
    }
    return made, lambda t: scan(t["x"], t["dt"], t["A"], t["B"], t["C"], 256, D=t["D"])


def _mamba_rms_norm(torch: Any) -> tuple[Tensors, Callable[[Tensors], Any]]:
    from mamba_ssm.ops.triton.layer_norm import rms_norm_fn

    made = {"x": _normal(torch, 8192, 4096), "w": _normal(torch, 4096)}
    return made, lambda t: rms_norm_fn(t["x"], t["w"], None)


def _flash_layer_norm(torch: Any) -> tuple[Tensors, Callable[[Tensors], Any]]:
    from flash_attn.ops.triton.layer_norm import layer_norm_fn

    made = {name: _normal(torch, 8192, 4096) for name in ("x", "residual")}
    made |= {name: _normal(torch, 4096) for name in ("w", "b")}
    return made, lambda t: layer_norm_fn(t["x"], t["w"], t["b"], residual=t["residual"])


def _attorch_mlp(torch: Any) -> tuple[Tensors, Callable[[Tensors], Any]]:
    import attorch

    parts = [attorch.LayerNorm(1024), attorch.Linear(1024, 4096, act_func="gelu")]
    parts += [attorch.Linear(4096, 1024), attorch.Softmax(-1)]
    model = torch.nn.Sequential(*parts).cuda().half()
    made = {"x": _normal(torch, 4096, 1024, dtype=torch.float16)}
    made |= dict(model.named_parameters())
    return made, lambda t: model(t["x"])


PROGRAMS = {
    program.name: program
    for program in (
        LibraryProgram("mamba2", "state-spaces/mamba", _mamba2),
        LibraryProgram("gla", "fla-org/flash-linear-attention", _gla),
        LibraryProgram("kda", "fla-org/flash-linear-attention", _kda),
        LibraryProgram("rms_norm", "state-spaces/mamba", _mamba_rms_norm),
        LibraryProgram("layer_norm", "Dao-AILab/flash-attention", _flash_layer_norm),
        LibraryProgram("mlp", "BobMcDear/attorch", _attorch_mlp),
    )
}


def made_step(program: LibraryProgram, torch: Any) -> tuple[Tensors, Callable[[], Any]]:
    """The same numbers every time."""
    torch.manual_seed(0)
    tensors, forward = program.make(torch)
    for tensor in tensors.values():
        tensor.detach_().requires_grad_(True)

    def step() -> Any:
        for tensor in tensors.values():
            tensor.grad = None
        out = forward(tensors)
        out = out[0] if isinstance(out, tuple) else out
        out.float().square().mean().backward()
        return out

    return tensors, step
