"""Contract kits for strategies, stores, timers, targets and formats; a fake clock and device.

Shipped, so that a part that is written elsewhere can be held to the same
obligations as ours: subclass the kit in a test file, fill in how to make yours, run pytest.
"""
