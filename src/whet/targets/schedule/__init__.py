"""MLIR programs: scheduled by a transform-dialect script whose knobs and alternatives are tuned.

`script.py` reads the script, `compile.py` applies it and compiles the result in a pool worker, and
the shared object that comes out is loaded like a C kernel.

Why it is so: docs/decisions/schedules.md.
"""
