"""A value that is worked out once, also where a process is forked meanwhile."""

from __future__ import annotations

import os
import threading

import pytest

from whet.core.lazy import cached_property
from whet.testing.store_kit_base import in_child


class Slow:
    def __init__(self) -> None:
        self.began, self.go_on = threading.Event(), threading.Event()
        self.times = 0

    @cached_property
    def value(self) -> int:
        self.times += 1
        self.began.set()
        assert self.go_on.wait(60)
        return self.times


def ready() -> Slow:
    slow = Slow()
    slow.go_on.set()
    return slow


def test_it_is_worked_out_once_and_can_be_forgotten() -> None:
    slow = ready()
    assert (slow.value, slow.value, slow.times) == (1, 1, 1)
    del slow.value
    assert slow.value == 2
    assert isinstance(vars(Slow)["value"], cached_property)
    assert Slow.value is vars(Slow)["value"]


@pytest.mark.medium
@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_a_child_does_not_wait_for_a_thread_that_it_does_not_have() -> None:
    slow = Slow()
    thread = threading.Thread(target=lambda: slow.value)
    thread.start()
    assert slow.began.wait(60)
    assert in_child(lambda: ready().value == 1)
    slow.go_on.set()
    thread.join()
    assert slow.value == 1
