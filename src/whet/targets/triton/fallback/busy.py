"""Said where a kernel is being tuned by somebody else."""

from __future__ import annotations

from typing import Any


class BusyElsewhere(Exception):
    """Another process has been tuning the same for too long; `config` is to be used meanwhile."""

    def __init__(self, config: Any) -> None:
        super().__init__(config)
        self.config = config
