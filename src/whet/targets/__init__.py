"""What can be tuned, one file or folder each. Nothing is imported here: a pool worker that compiles
C must not have to load NumPy first. Every target passes the kit in `whet.testing.target_kit`."""
