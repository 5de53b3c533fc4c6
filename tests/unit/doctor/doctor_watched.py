"""A host of modes that tells how torch was asked for a GPU while it was imported."""

from __future__ import annotations

import os
from dataclasses import dataclass

from whet.doctor.modes.host import MakeModeHost, ModeHost


class WatchedHost(ModeHost):
    asked: frozenset[str | None]

    def importing(self) -> tuple[frozenset[str | None], bool, str | None]:
        """What the variable was each time; whether the driver is awake; what the variable is."""
        import torch

        awake = bool(torch.cuda.is_initialized())
        return self.asked, awake, os.environ.get("PYTORCH_NVML_BASED_CUDA_CHECK")


@dataclass(frozen=True)
class MakeWatchedHost(MakeModeHost):
    def __call__(self) -> WatchedHost:
        import torch

        asked = set()
        available = torch.cuda.is_available

        def ask() -> bool:
            asked.add(os.environ.get("PYTORCH_NVML_BASED_CUDA_CHECK"))
            return False

        torch.cuda.is_available = ask
        super().__call__()
        torch.cuda.is_available = available
        host = WatchedHost(self.source, self.folder, self.timer)
        host.asked = frozenset(asked)
        return host
