// Each row's mean, variance and normalized numbers. "rows" computes all three for ti rows while these
// are in a cache; "apart" computes each for the whole array. Threads share the blocks of bi rows.
module attributes {transform.with_named_sequence, whet.constraints = [
  "bi % ti == 0",
  "{m} % bi == 0",
  "{n} % lanes == 0 or lanes == 16"
]} {
  transform.named_sequence @__transform_main(%root: !transform.any_op {transform.consumed}) {
    %bi = transform.tune.knob<"bi"> options = [16, 1, 4, 8, 32, 64] -> !transform.param<i64>
    %ti = transform.tune.knob<"ti"> options = [1, 2, 4] -> !transform.param<i64>
    %lanes = transform.tune.knob<"lanes"> options = [64, 16, 32, 128] -> !transform.param<i64>

    transform.tune.alternatives<"fuse"> attributes {whet.names = ["rows", "apart"]} {
      %last = transform.structured.match attributes {whet.name = "normalize"} in %root
        : (!transform.any_op) -> !transform.any_op
      %block, %blocks = transform.structured.fuse %last tile_sizes [%bi] {use_forall}
        : (!transform.any_op, !transform.param<i64>) -> (!transform.any_op, !transform.any_op)
      %some, %each = transform.structured.fuse %block tile_sizes [%ti]
        : (!transform.any_op, !transform.param<i64>) -> (!transform.any_op, !transform.any_op)
      transform.yield
    }, {
      %sum = transform.structured.match attributes {whet.name = "sum"} in %root
        : (!transform.any_op) -> !transform.any_op
      %sum_block, %sum_blocks = transform.structured.tile_using_forall %sum tile_sizes [%bi]
        : (!transform.any_op, !transform.param<i64>) -> (!transform.any_op, !transform.any_op)
      %sum_some, %sum_each = transform.structured.tile_using_for %sum_block tile_sizes [%ti]
        : (!transform.any_op, !transform.param<i64>) -> (!transform.any_op, !transform.any_op)
      %squares = transform.structured.match attributes {whet.name = "squares"} in %root
        : (!transform.any_op) -> !transform.any_op
      %squares_block, %squares_blocks = transform.structured.tile_using_forall %squares tile_sizes [%bi]
        : (!transform.any_op, !transform.param<i64>) -> (!transform.any_op, !transform.any_op)
      %squares_some, %squares_each = transform.structured.tile_using_for %squares_block tile_sizes [%ti]
        : (!transform.any_op, !transform.param<i64>) -> (!transform.any_op, !transform.any_op)
      %normalize = transform.structured.match attributes {whet.name = "normalize"} in %root
        : (!transform.any_op) -> !transform.any_op
      %normalize_block, %normalize_blocks = transform.structured.tile_using_forall %normalize tile_sizes [%bi]
        : (!transform.any_op, !transform.param<i64>) -> (!transform.any_op, !transform.any_op)
      %normalize_some, %normalize_each = transform.structured.tile_using_for %normalize_block tile_sizes [%ti]
        : (!transform.any_op, !transform.param<i64>) -> (!transform.any_op, !transform.any_op)
      transform.yield
    }
    // An operation that was fused twice is the same one.
    %fused = transform.structured.match ops{["func.func"]} in %root
      : (!transform.any_op) -> !transform.any_op
    transform.apply_patterns to %fused {
      transform.apply_patterns.canonicalization
    } {apply_cse} : !transform.any_op

    // A row is walked some lanes at a time; what it adds up to stays in as many sums.
    %sum_rows = transform.structured.match attributes {whet.name = "sum"} in %root
      : (!transform.any_op) -> !transform.any_op
    %sum_zero, %sum_part, %sum_all, %sum_loop = transform.structured.tile_reduction_using_for
      %sum_rows by tile_sizes = [0, 64] {whet.set = {tile_sizes = [0, "lanes"]}}
      : (!transform.any_op) -> (!transform.any_op, !transform.any_op, !transform.any_op, !transform.any_op)
    %squares_rows = transform.structured.match attributes {whet.name = "squares"} in %root
      : (!transform.any_op) -> !transform.any_op
    %squares_zero, %squares_part, %squares_all, %squares_loop = transform.structured.tile_reduction_using_for
      %squares_rows by tile_sizes = [0, 64] {whet.set = {tile_sizes = [0, "lanes"]}}
      : (!transform.any_op) -> (!transform.any_op, !transform.any_op, !transform.any_op, !transform.any_op)
    %normalize_rows = transform.structured.match attributes {whet.name = "normalize"} in %root
      : (!transform.any_op) -> !transform.any_op
    %normalize_lanes, %normalize_loop = transform.structured.tile_using_for %normalize_rows tile_sizes [0, %lanes]
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

    // Keep accumulators in registers while a reduction is walked.
    %func = transform.structured.match ops{["func.func"]} in %root
      : (!transform.any_op) -> !transform.any_op
    transform.apply_patterns to %func {
      transform.apply_patterns.vector.cast_away_vector_leading_one_dim
      transform.apply_patterns.canonicalization
    } : !transform.any_op
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
