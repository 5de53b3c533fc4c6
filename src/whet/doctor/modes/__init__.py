"""The trial of modes: each mode in a process of its own, with caches of its own."""
