"""Contract tests for strategies, stores, timers, targets and formats; a fake clock and device.

To test your own part, subclass the kit in a test file, say how to create yours, and run pytest.
"""
