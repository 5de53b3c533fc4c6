"""Names that MLIR has dropped or replaced, which articles and older scripts still use."""

from __future__ import annotations

import re

_SEQUENCE = (
    "transform.named_sequence @__transform_main(%root: !transform.any_op {transform.consumed}) "
    "{ … transform.yield } in a module with attributes {transform.with_named_sequence}"
)
_ELEMENTWISE = (
    "linalg.elementwise kind=#linalg.elementwise_kind<…>, or a linalg.generic "
    "(for relu, one with arith.maximumf)"
)
_MODERN = {
    "transform.sequence": _SEQUENCE,
    "transform.with_pdl_patterns": _SEQUENCE,
    "transform.structured.tile": "transform.structured.tile_using_for",
    "transform.structured.tile_to_scf_for": "transform.structured.tile_using_for",
    "transform.structured.tile_to_forall_op": "transform.structured.tile_using_forall",
    "transform.structured.tile_to_foreach_thread_op": "transform.structured.tile_using_forall",
    "transform.structured.masked_vectorize": "transform.structured.vectorize … vector_sizes […]",
    "transform.structured.fuse_into_containing": "transform.structured.fuse_into_containing_op",
    "transform.loop.get_parent_for": 'transform.get_parent_op %x {op_name = "scf.for"}',
    "transform.vector.lower_vectors": "transform.apply_patterns { … .vector.lower_… }",
    "!pdl.operation": "!transform.any_op",
    "linalg.init_tensor": "tensor.empty() : tensor<…>",
    "linalg.elemwise_unary": _ELEMENTWISE,
    "linalg.elemwise_binary": _ELEMENTWISE,
    "tensor.pack": "linalg.pack",
    "tensor.unpack": "linalg.unpack",
    "bufferization.to_memref": "bufferization.to_buffer",
    "scf.foreach_thread": "scf.forall",
}
_OLD = re.compile(
    r"(?<![\w.])(?:"
    + "|".join(sorted(map(re.escape, _MODERN), key=len, reverse=True))
    + r")(?![\w.])"
)


def old_names(text: str, label: str) -> str:
    """`s.mlir:2:3: transform.sequence is outdated; write …`, for each that is there."""
    said: dict[str, str] = {}
    for number, line in enumerate(text.splitlines(), start=1):
        for found in _OLD.finditer(line.split("//")[0]):
            name, column = found.group(), found.start() + 1
            said.setdefault(
                name,
                f"{label}:{number}:{column}: {name} is outdated; write {_MODERN[name]}",
            )
    return "; ".join(said.values())
