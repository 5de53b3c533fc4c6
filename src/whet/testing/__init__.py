"""Contract kits for strategies, stores, timers and targets; a fake clock and a fake device.

Shipped, so that a strategy, store, timer or target written elsewhere can be held to the same
obligations as ours: subclass the kit in a test file, fill in how to make yours, run pytest.
"""
