"""Steps that end most scripts. `@` stands for what tells two copies of a block apart."""

from __future__ import annotations

_OP = "!transform.any_op"

HOIST = f"""
%func@ = transform.structured.match ops{{["func.func"]}} in %root : ({_OP}) -> {_OP}
transform.apply_patterns to %func@ {{
  transform.apply_patterns.vector.cast_away_vector_leading_one_dim
  transform.apply_patterns.canonicalization
}} : {_OP}
%hoisted@ = transform.structured.hoist_redundant_vector_transfers %func@ : ({_OP}) -> {_OP}
%loops@ = transform.structured.match ops{{["scf.for"]}} in %root : ({_OP}) -> {_OP}
transform.apply_licm to %loops@ : {_OP}
transform.loop.hoist_loop_invariant_subsets %loops@ : {_OP}
%cleaned@ = transform.structured.match ops{{["func.func"]}} in %root : ({_OP}) -> {_OP}
transform.apply_patterns to %cleaned@ {{
  transform.apply_patterns.canonicalization
}} : {_OP}
"""

_LOWERINGS = (
    'lower_contraction lowering_strategy = "outerproduct"',
    "lower_outerproduct",
    "transfer_to_scf full_unroll = true",
    "lower_transfer max_transfer_rank = 1",
    "lower_shape_cast",
    'lower_transpose lowering_strategy = "shuffle_1d"',
)


def _patterns(name: str) -> str:
    return (
        "transform.apply_patterns to %all@ {\n"
        f"  transform.apply_patterns.vector.{name}\n"
        f"}} : {_OP}\n"
    )


LOWER = (
    f'%all@ = transform.structured.match ops{{["func.func"]}} in %root : ({_OP}) -> {_OP}\n'
    + "".join(map(_patterns, _LOWERINGS))
)


def _op(name: str) -> str:
    return f'!transform.op<"{name}">'


LOWER_PACKS = f"""
%packs@ = transform.structured.match ops{{["linalg.pack"]}} in %root : ({_OP})
  -> {_op("linalg.pack")}
%pads@, %splits@, %turns@ = transform.structured.lower_pack %packs@ : ({_op("linalg.pack")})
  -> ({_op("tensor.pad")}, {_op("tensor.expand_shape")}, {_op("linalg.transpose")})
%unpacks@ = transform.structured.match ops{{["linalg.unpack"]}} in %root : ({_OP})
  -> {_op("linalg.unpack")}
%e@, %t@, %c@, %s@, %o@ = transform.structured.lower_unpack %unpacks@ : ({_op("linalg.unpack")})
  -> ({_op("tensor.empty")}, {_op("linalg.transpose")}, {_op("tensor.collapse_shape")},
      {_op("tensor.extract_slice")}, {_op("linalg.copy")})
"""
