"""What ends a tuning, a process or a device too early, and what the next run makes of it."""
