"""Contract tests for strategies, stores, timers and targets, with a fake clock and a fake device.

To test your own strategy, store, timer or target, subclass the kit in a test file, say how to
create yours, and run pytest.
"""
