"""Results, cost models and binaries in one file, read as if a stranger had written it."""
