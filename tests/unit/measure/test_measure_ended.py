"""A call to a measuring process can be ended by another thread."""

from __future__ import annotations

import threading
import time
from pathlib import Path
from typing import Any

import pytest
from visits import failure_of

from whet.core.config import Config
from whet.core.status import Status
from whet.measure.bench.remote import RemoteBench
from whet.measure.timers import CpuTimer


class Endless:
    """Says in a file that it has begun."""

    def __init__(self, begun: Path) -> None:
        self._begun = begun

    def load(self, config: Config, artifact: Any) -> Any:
        self._begun.touch()
        time.sleep(600)


@pytest.mark.medium
def test_a_call_that_is_ended_from_another_thread_is_a_crash_of_its_config(tmp_path: Path) -> None:
    begun = tmp_path / "begun"
    with RemoteBench(lambda: Endless(begun), CpuTimer, mode="fork") as bench:

        def end() -> None:
            while not begun.exists():
                time.sleep(0.01)
            bench.end_call()

        other = threading.Thread(target=end, daemon=True)
        other.start()
        ended = failure_of(bench, Config(a=1), limit_s=60)
        other.join()
    assert "SIGABRT" in ended.message
    assert ended.status is Status.RUN_ERROR
