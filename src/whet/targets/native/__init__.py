"""C kernels: built by the system's compiler in the pool, run in a process that may die."""
