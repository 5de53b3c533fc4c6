"""What earlier runs left, and what of it holds for this one."""
