"""A whole program tuned at once: `whet.warmup`."""
