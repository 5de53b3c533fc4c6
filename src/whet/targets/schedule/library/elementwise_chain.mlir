// Four operations on each number. "rows" applies all of them to ti rows while these are in a cache;
// "apart" applies each to the whole array. Threads share the blocks of bi rows.
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
      %last = transform.structured.match attributes {whet.name = "add"} in %root
        : (!transform.any_op) -> !transform.any_op
      %block, %blocks = transform.structured.fuse %last tile_sizes [%bi] {use_forall}
        : (!transform.any_op, !transform.param<i64>) -> (!transform.any_op, !transform.any_op)
      %some, %each = transform.structured.fuse %block tile_sizes [%ti]
        : (!transform.any_op, !transform.param<i64>) -> (!transform.any_op, !transform.any_op)
      transform.yield
    }, {
      %scale = transform.structured.match attributes {whet.name = "scale"} in %root
        : (!transform.any_op) -> !transform.any_op
      %scale_block, %scale_blocks = transform.structured.tile_using_forall %scale tile_sizes [%bi]
        : (!transform.any_op, !transform.param<i64>) -> (!transform.any_op, !transform.any_op)
      %scale_some, %scale_each = transform.structured.tile_using_for %scale_block tile_sizes [%ti]
        : (!transform.any_op, !transform.param<i64>) -> (!transform.any_op, !transform.any_op)
      %shift = transform.structured.match attributes {whet.name = "shift"} in %root
        : (!transform.any_op) -> !transform.any_op
      %shift_block, %shift_blocks = transform.structured.tile_using_forall %shift tile_sizes [%bi]
        : (!transform.any_op, !transform.param<i64>) -> (!transform.any_op, !transform.any_op)
      %shift_some, %shift_each = transform.structured.tile_using_for %shift_block tile_sizes [%ti]
        : (!transform.any_op, !transform.param<i64>) -> (!transform.any_op, !transform.any_op)
      %relu = transform.structured.match attributes {whet.name = "relu"} in %root
        : (!transform.any_op) -> !transform.any_op
      %relu_block, %relu_blocks = transform.structured.tile_using_forall %relu tile_sizes [%bi]
        : (!transform.any_op, !transform.param<i64>) -> (!transform.any_op, !transform.any_op)
      %relu_some, %relu_each = transform.structured.tile_using_for %relu_block tile_sizes [%ti]
        : (!transform.any_op, !transform.param<i64>) -> (!transform.any_op, !transform.any_op)
      %add = transform.structured.match attributes {whet.name = "add"} in %root
        : (!transform.any_op) -> !transform.any_op
      %add_block, %add_blocks = transform.structured.tile_using_forall %add tile_sizes [%bi]
        : (!transform.any_op, !transform.param<i64>) -> (!transform.any_op, !transform.any_op)
      %add_some, %add_each = transform.structured.tile_using_for %add_block tile_sizes [%ti]
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
    %scale_rows = transform.structured.match attributes {whet.name = "scale"} in %root
      : (!transform.any_op) -> !transform.any_op
    %scale_lanes, %scale_loop = transform.structured.tile_using_for %scale_rows tile_sizes [0, %lanes]
      : (!transform.any_op, !transform.param<i64>) -> (!transform.any_op, !transform.any_op)
    %shift_rows = transform.structured.match attributes {whet.name = "shift"} in %root
      : (!transform.any_op) -> !transform.any_op
    %shift_lanes, %shift_loop = transform.structured.tile_using_for %shift_rows tile_sizes [0, %lanes]
      : (!transform.any_op, !transform.param<i64>) -> (!transform.any_op, !transform.any_op)
    %relu_rows = transform.structured.match attributes {whet.name = "relu"} in %root
      : (!transform.any_op) -> !transform.any_op
    %relu_lanes, %relu_loop = transform.structured.tile_using_for %relu_rows tile_sizes [0, %lanes]
      : (!transform.any_op, !transform.param<i64>) -> (!transform.any_op, !transform.any_op)
    %add_rows = transform.structured.match attributes {whet.name = "add"} in %root
      : (!transform.any_op) -> !transform.any_op
    %add_lanes, %add_loop = transform.structured.tile_using_for %add_rows tile_sizes [0, %lanes]
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
