"""A whole program tuned at once: `whet.warmup`.

Why it is so: docs/decisions/warming-up.md.
"""
