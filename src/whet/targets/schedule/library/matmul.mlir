// Tiles the product, row after row of tiles or column after column, for all of k at once or for one
// block of k after the other, so that what is read again stays in a cache. Within a tile, k is split
// so that one step of the product fits registers.
module attributes {transform.with_named_sequence} {
  transform.named_sequence @__transform_main(%root: !transform.any_op {transform.consumed}) {
    %product = transform.structured.match ops{["linalg.matmul"]} in %root
      : (!transform.any_op) -> !transform.any_op

    %ti = transform.tune.knob<"ti"> options = [8, 4, 16, 32] -> !transform.param<i64>
    %tj = transform.tune.knob<"tj"> options = [32, 16, 64] -> !transform.param<i64>
    %tk = transform.tune.knob<"tk"> options = [4, 1, 8] -> !transform.param<i64>
    %bk = transform.tune.knob<"bk"> options = [256, 128, 512] -> !transform.param<i64>

    %block = transform.tune.alternatives<"k"> attributes {whet.names = ["whole", "blocks"]}
      -> !transform.any_op {
      transform.yield %product : !transform.any_op
    }, {
      %part, %outer = transform.structured.tile_using_for %product tile_sizes [0, 0, %bk]
        : (!transform.any_op, !transform.param<i64>) -> (!transform.any_op, !transform.any_op)
      transform.yield %part : !transform.any_op
    }
    %inner = transform.tune.alternatives<"order"> attributes {whet.names = ["rows", "columns"]}
      -> !transform.any_op {
      %tile, %i, %j = transform.structured.tile_using_for %block tile_sizes [%ti, %tj]
        : (!transform.any_op, !transform.param<i64>, !transform.param<i64>)
        -> (!transform.any_op, !transform.any_op, !transform.any_op)
      transform.yield %tile : !transform.any_op
    }, {
      %tile, %i, %j = transform.structured.tile_using_for %block tile_sizes [%ti, %tj]
        interchange = [1, 0]
        : (!transform.any_op, !transform.param<i64>, !transform.param<i64>)
        -> (!transform.any_op, !transform.any_op, !transform.any_op)
      transform.yield %tile : !transform.any_op
    }

    %step, %k = transform.structured.tile_using_for %inner tile_sizes [0, 0, %tk]
      : (!transform.any_op, !transform.param<i64>) -> (!transform.any_op, !transform.any_op)

    %scheduled = transform.structured.match ops{["func.func"]} in %root
      : (!transform.any_op) -> !transform.any_op
    transform.tune.alternatives<"vectorize"> attributes {whet.names = ["yes", "no"]} {
      %vectorized = transform.structured.vectorize_children_and_apply_patterns %scheduled
        : (!transform.any_op) -> !transform.any_op
      transform.yield
    }, {
      transform.yield
    }

    // Keep the accumulator in registers while k is walked.
    %func = transform.structured.match ops{["func.func"]} in %root
      : (!transform.any_op) -> !transform.any_op
    %hoisted = transform.structured.hoist_redundant_vector_transfers %func
      : (!transform.any_op) -> !transform.any_op
    %loops = transform.structured.match ops{["scf.for"]} in %root
      : (!transform.any_op) -> !transform.any_op
    transform.apply_licm to %loops : !transform.any_op
    transform.loop.hoist_loop_invariant_subsets %loops : !transform.any_op
    %cleaned = transform.structured.match ops{["func.func"]} in %root
      : (!transform.any_op) -> !transform.any_op
    transform.apply_patterns to %cleaned {
      transform.apply_patterns.canonicalization
    } : !transform.any_op

    transform.bufferization.eliminate_empty_tensors %cleaned : !transform.any_op
    %module = transform.bufferization.one_shot_bufferize %root
      {bufferize_function_boundaries = true} : (!transform.any_op) -> !transform.any_op

    %buffered = transform.structured.match ops{["func.func"]} in %module
      : (!transform.any_op) -> !transform.any_op
    transform.apply_patterns to %buffered {
      transform.apply_patterns.vector.lower_contraction lowering_strategy = "outerproduct"
    } : !transform.any_op
    transform.apply_patterns to %buffered {
      transform.apply_patterns.vector.lower_outerproduct
    } : !transform.any_op
    transform.apply_patterns to %buffered {
      transform.apply_patterns.vector.transfer_to_scf full_unroll = true
    } : !transform.any_op
    transform.apply_patterns to %buffered {
      transform.apply_patterns.vector.lower_transfer max_transfer_rank = 1
    } : !transform.any_op
    transform.apply_patterns to %buffered {
      transform.apply_patterns.vector.lower_shape_cast
    } : !transform.any_op
    transform.apply_patterns to %buffered {
      transform.apply_patterns.vector.lower_transpose lowering_strategy = "shuffle_1d"
    } : !transform.any_op
    transform.yield
  }
}
