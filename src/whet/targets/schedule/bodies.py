"""The linalg of the payloads. `tensor<mn>` stands for m by n numbers, `$n` for that size as a
number; `%result` is what the function writes. `whet.name` is what a schedule matches by."""

from __future__ import annotations

_PRODUCT = """
    %zero = arith.constant 0.0 : f32
    %empty = tensor.empty() : tensor<mn>
    %init = linalg.fill ins(%zero : f32) outs(%empty : tensor<mn>) -> tensor<mn>
    %RESULT = linalg.matmul ins(%a, %b : tensor<mk>, tensor<kn>)
      outs(%init : tensor<mn>) -> tensor<mn>
"""
_BIAS_RELU = """
    %other = tensor.empty() : tensor<mn>
    %result = linalg.generic
        {indexing_maps = [#same, #row, #same], iterator_types = ["parallel", "parallel"]}
        ins(%product, %bias : tensor<mn>, tensor<n>) outs(%other : tensor<mn>) {
    ^bb0(%x: f32, %y: f32, %unused: f32):
      %sum = arith.addf %x, %y : f32
      %positive = arith.maximumf %sum, %zero : f32
      linalg.yield %positive : f32
    } -> tensor<mn>
"""
_BATCH = """
    %zero = arith.constant 0.0 : f32
    %empty = tensor.empty() : tensor<bmn>
    %init = linalg.fill ins(%zero : f32) outs(%empty : tensor<bmn>) -> tensor<bmn>
    %result = linalg.batch_matmul ins(%x, %y : tensor<bmk>, tensor<bkn>)
      outs(%init : tensor<bmn>) -> tensor<bmn>
"""
_SOFTMAX = """
    %zero = arith.constant 0.0 : f32
    %one = arith.constant 1.0 : f32
    %lowest = arith.constant 0xFF800000 : f32
    %column = tensor.empty() : tensor<m>
    %whole = tensor.empty() : tensor<mn>
    %no_max = linalg.fill ins(%lowest : f32) outs(%column : tensor<m>) -> tensor<m>
    %no_sum = linalg.fill ins(%zero : f32) outs(%column : tensor<m>) -> tensor<m>
    %max = linalg.generic {whet.name = "max",
        indexing_maps = [#same, #column], iterator_types = ["parallel", "reduction"]}
        ins(%x : tensor<mn>) outs(%no_max : tensor<m>) {
    ^bb0(%v: f32, %so_far: f32):
      %more = arith.maxnumf %v, %so_far : f32
      linalg.yield %more : f32
    } -> tensor<m>
    %exp = linalg.generic {whet.name = "exp",
        indexing_maps = [#same, #column, #same], iterator_types = ["parallel", "parallel"]}
        ins(%x, %max : tensor<mn>, tensor<m>) outs(%whole : tensor<mn>) {
    ^bb0(%v: f32, %top: f32, %unused: f32):
      %below = arith.subf %v, %top : f32
      %power = math.exp %below : f32
      linalg.yield %power : f32
    } -> tensor<mn>
    %sum = linalg.generic {whet.name = "sum",
        indexing_maps = [#same, #column], iterator_types = ["parallel", "reduction"]}
        ins(%exp : tensor<mn>) outs(%no_sum : tensor<m>) {
    ^bb0(%v: f32, %so_far: f32):
      %more = arith.addf %v, %so_far : f32
      linalg.yield %more : f32
    } -> tensor<m>
    %result = linalg.generic {whet.name = "divide",
        indexing_maps = [#same, #column, #same], iterator_types = ["parallel", "parallel"]}
        ins(%exp, %sum : tensor<mn>, tensor<m>) outs(%whole : tensor<mn>) {
    ^bb0(%v: f32, %total: f32, %unused: f32):
      %share = arith.divf %one, %total : f32
      %scaled = arith.mulf %v, %share : f32
      linalg.yield %scaled : f32
    } -> tensor<mn>
"""
_LAYERNORM = """
    %zero = arith.constant 0.0 : f32
    %one = arith.constant 1.0 : f32
    %count = arith.constant $n : f32
    %small = arith.constant 1.0e-5 : f32
    %column = tensor.empty() : tensor<m>
    %whole = tensor.empty() : tensor<mn>
    %no_sum = linalg.fill ins(%zero : f32) outs(%column : tensor<m>) -> tensor<m>
    %sum = linalg.generic {whet.name = "sum",
        indexing_maps = [#same, #column], iterator_types = ["parallel", "reduction"]}
        ins(%x : tensor<mn>) outs(%no_sum : tensor<m>) {
    ^bb0(%v: f32, %so_far: f32):
      %more = arith.addf %v, %so_far : f32
      linalg.yield %more : f32
    } -> tensor<m>
    %squares = linalg.generic {whet.name = "squares",
        indexing_maps = [#same, #column, #column], iterator_types = ["parallel", "reduction"]}
        ins(%x, %sum : tensor<mn>, tensor<m>) outs(%no_sum : tensor<m>) {
    ^bb0(%v: f32, %total: f32, %so_far: f32):
      %mean = arith.divf %total, %count : f32
      %centred = arith.subf %v, %mean : f32
      %square = arith.mulf %centred, %centred : f32
      %more = arith.addf %square, %so_far : f32
      linalg.yield %more : f32
    } -> tensor<m>
    %result = linalg.generic {whet.name = "normalize",
        indexing_maps = [#same, #column, #column, #row, #row, #same],
        iterator_types = ["parallel", "parallel"]}
        ins(%x, %sum, %squares, %gamma, %beta
          : tensor<mn>, tensor<m>, tensor<m>, tensor<n>, tensor<n>) outs(%whole : tensor<mn>) {
    ^bb0(%v: f32, %total: f32, %square: f32, %g: f32, %b: f32, %unused: f32):
      %mean = arith.divf %total, %count : f32
      %variance = arith.divf %square, %count : f32
      %safe = arith.addf %variance, %small : f32
      %root = math.sqrt %safe : f32
      %inverse = arith.divf %one, %root : f32
      %centred = arith.subf %v, %mean : f32
      %unit = arith.mulf %centred, %inverse : f32
      %scaled = arith.mulf %unit, %g : f32
      %shifted = arith.addf %scaled, %b : f32
      linalg.yield %shifted : f32
    } -> tensor<mn>
"""


def _each(name: str, maps: str, inputs: str, types: str, body: str, result: str) -> str:
    return f"""
    %{name}_to = tensor.empty() : tensor<mn>
    %{result} = linalg.generic {{whet.name = "{name}",
        indexing_maps = [{maps}, #same], iterator_types = ["parallel", "parallel"]}}
        ins({inputs} : {types}) outs(%{name}_to : tensor<mn>) {{
    {body}
      linalg.yield %w : f32
    }} -> tensor<mn>
"""


_TWO = "^bb0(%u: f32, %v: f32, %unused: f32):\n      %w = arith.{} %u, %v : f32"
_CHAIN = (
    "    %zero = arith.constant 0.0 : f32\n"
    + _each(
        "scale", "#same, #row", "%x, %scale", "tensor<mn>, tensor<n>", _TWO.format("mulf"), "scaled"
    )
    + _each(
        "shift",
        "#same, #row",
        "%scaled, %shift",
        "tensor<mn>, tensor<n>",
        _TWO.format("addf"),
        "shifted",
    )
    + _each(
        "relu",
        "#same",
        "%shifted",
        "tensor<mn>",
        "^bb0(%u: f32, %unused: f32):\n      %w = arith.maximumf %u, %zero : f32",
        "positive",
    )
    + _each(
        "add",
        "#same, #same",
        "%positive, %residual",
        "tensor<mn>, tensor<mn>",
        _TWO.format("addf"),
        "result",
    )
)

# The arrays by name with their axes, and the body.
BODIES: dict[str, tuple[dict[str, str], str]] = {
    "matmul": ({"a": "mk", "b": "kn", "c": "mn"}, _PRODUCT.replace("RESULT", "result")),
    "matmul_bias_relu": (
        {"a": "mk", "b": "kn", "bias": "n", "c": "mn"},
        _PRODUCT.replace("RESULT", "product") + _BIAS_RELU,
    ),
    "batch_matmul": ({"x": "bmk", "y": "bkn", "z": "bmn"}, _BATCH),
    "softmax": ({"x": "mn", "y": "mn"}, _SOFTMAX),
    "layernorm": ({"x": "mn", "gamma": "n", "beta": "n", "y": "mn"}, _LAYERNORM),
    "elementwise_chain": (
        {"x": "mn", "scale": "n", "shift": "n", "residual": "mn", "y": "mn"},
        _CHAIN,
    ),
}
