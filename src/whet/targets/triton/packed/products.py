"""GPUs by the names people use, and the architecture that each of them is.

NVIDIA: the list of compute capabilities at developer.nvidia.com/cuda-gpus. AMD: the LLVM targets in
ROCm's table of GPU specifications and in LLVM's AMDGPU guide.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterator

_NAMES = {
    "sm_60": "p100",
    "sm_61": "p40 p4 gtx1080 gtx1080ti",
    "sm_70": "v100 titanv",
    "sm_75": "t4 rtx2060 rtx2070 rtx2080 rtx2080ti rtx8000 titanrtx gtx1650 gtx1660",
    "sm_80": "a100 a800 a30",
    "sm_86": "a10 a10g a2 a16 a40 rtx3050 rtx3060 rtx3060ti rtx3070 rtx3070ti rtx3080 rtx3080ti"
    " rtx3090 rtx3090ti a2000 a4000 a4500 a5000 a5500 a6000",
    "sm_87": "orin",
    "sm_89": "l4 l20 l40 l40s rtx4050 rtx4060 rtx4060ti rtx4070 rtx4070super rtx4070ti"
    " rtx4070tisuper rtx4080 rtx4080super rtx4090 rtx4090d rtx2000ada rtx4000ada rtx4500ada"
    " rtx5000ada rtx6000ada",
    "sm_90": "h100 h200 h800 h20 gh200",
    "sm_100": "b200 gb200",
    "sm_103": "b300 gb300",
    "sm_110": "thor",
    "sm_120": "rtx5050 rtx5060 rtx5060ti rtx5070 rtx5070ti rtx5080 rtx5090 rtxpro4000 rtxpro4500"
    " rtxpro5000 rtxpro6000",
    "sm_121": "gb10",
    "gfx906": "mi50 mi60",
    "gfx908": "mi100",
    "gfx90a": "mi210 mi250 mi250x",
    "gfx942": "mi300 mi300a mi300x mi308x mi325x",
    "gfx950": "mi350 mi350x mi355x",
    "gfx1030": "rx6800 rx6800xt rx6900xt rx6950xt w6800",
    "gfx1100": "rx7900gre rx7900xt rx7900xtx w7800 w7900",
    "gfx1101": "rx7700xt rx7800xt w7700",
    "gfx1102": "rx7600 rx7600xt",
    "gfx1150": "890m",
    "gfx1151": "8060s",
    "gfx1200": "rx9060 rx9060xt",
    "gfx1201": "rx9070 rx9070xt rx9070gre r9700",
}

_SEVERAL = {
    "ampere": "a100 a10",
    "blackwell": "b200 b300 rtx5090",
    "rtx6000": "rtx6000ada rtxpro6000 a6000",
    "rtx5000": "rtx5000ada rtxpro5000 a5000",
    "rtx4000": "rtx4000ada rtxpro4000 a4000",
    "rdna3": "rx7900xtx rx7800xt rx7600",
    "rdna4": "rx9070xt rx9060xt",
    "mi200": "mi210 mi250 mi250x",
}

_FAMILIES = {
    "volta": "v100",
    "turing": "t4",
    "ada": "rtx4090",
    "adalovelace": "rtx4090",
    "hopper": "h100",
    "cdna1": "mi100",
    "cdna2": "mi250",
    "cdna3": "mi300x",
    "cdna4": "mi355x",
}

EXAMPLES = "a100, h100, b200, l40s, rtx4090, mi300x"

# What makers and shops put around a name, and what only says how a GPU is built in.
_MAKERS = re.compile(r"^(?:nvidia|amd|geforce|tesla|quadro|instinct|radeon|jetson|agx|rtx|gtx|rx)+")
_BUILD = re.compile(
    r"\d+gi?b|sxm\d*|pcie|nvl\d*|oam|hbm\d\w*|gpu|generation|edition|server|workstation|graphics"
)


def _by_key() -> Iterator[tuple[str, tuple[str, str]]]:
    for architecture, names in _NAMES.items():
        for name in names.split():
            yield _key(name), (name, architecture)


def _key(text: str) -> str:
    """`NVIDIA H100 80GB HBM3`, `nvidia-h100` and `H100` are all `h100`."""
    words = re.findall(r"[a-z0-9]+", text.lower())
    kept = [word for word in words if _BUILD.fullmatch(word) is None]
    if "pro" in "".join(kept):  # the RTX PRO cards say that they are Blackwells
        kept = [word for word in kept if word != "blackwell"]
    return _MAKERS.sub("", "".join(kept))


_PRODUCTS = dict(_by_key())
_MEANT_BY = {_key(name): names for name, names in _SEVERAL.items()}


def product(text: str) -> tuple[str, str] | None:
    """The plain name of the GPU that is meant, and its architecture: `("h100", "sm_90")`."""
    key = _key(text)
    if key in _FAMILIES:
        return key, _PRODUCTS[_key(_FAMILIES[key])][1]
    return _PRODUCTS.get(key)


def meant_by(text: str) -> list[str]:
    """The GPUs that a name may stand for where it stands for several, each with its architecture;
    for a name that is none, the nearest of the same family."""
    key = _key(text)
    several = _MEANT_BY.get(key)
    if several is not None:
        return [_labelled(_key(name)) for name in several.split()]
    known = [*_PRODUCTS, *_FAMILIES, *(_key(name) for name in _NAMES)]
    # The letters, or the first digits where there are none, say which family a GPU is of.
    family = [name for name in known if _family(name) == _family(key) or key.isalpha()]
    close = difflib.get_close_matches(key, family, n=5, cutoff=0.6)
    close.sort(key=lambda name: not name.startswith(key))
    return [_labelled(close[0])] if close else []


def _family(key: str) -> str:
    letters = re.match("[a-z]*", key)
    return letters[0] if letters and letters[0] else key[:2]


def _labelled(key: str) -> str:
    if key in _PRODUCTS or key in _FAMILIES:
        name, architecture = _PRODUCTS.get(key) or (key, _PRODUCTS[_key(_FAMILIES[key])][1])
        return f"{name} ({architecture})"
    return next(name for name in _NAMES if _key(name) == key)
