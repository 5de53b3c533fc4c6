"""Timers, the race and the duel, the correctness gate, the bench. What a timer of another package
needs is here; all else is imported from where it is."""

from whet.measure.timer import Hopeless, Reading, Runnable, Timer, Warm

__all__ = ["Hopeless", "Reading", "Runnable", "Timer", "Warm"]
