"""Loads modes in the process that times them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from whet.core.config import Config
from whet.doctor.modes.loaded import LoadedMode, SecondLook, set_caches
from whet.doctor.modes.second import SecondCopy, run_again
from whet.doctor.modes.sources import Again, SubjectSource
from whet.doctor.modes.variants import variant


@dataclass(frozen=True)
class MakeModeLoader:
    """Called in the new process: caches first, since torch looks for them when it compiles.
    `copied`: it has imported torch and used nothing of it yet."""

    source: SubjectSource
    caches: str
    copied: bool = False

    def __call__(self) -> ModeLoader:
        set_caches(self.caches)
        second = SecondCopy(self.caches).run if self.copied else run_again
        import torch

        torch.manual_seed(0)  # every mode gets the same weights, however they are drawn
        return ModeLoader(self.source, self.caches, second)


class ModeLoader:
    def __init__(self, source: SubjectSource, caches: str, second: SecondLook) -> None:
        self._subject = source.load()
        self._source = source
        self._caches = caches
        self._second = second

    def load(self, config: Config, artifact: Any) -> LoadedMode:
        mode = str(config["mode"])
        if not variant(mode).looked_at_again:
            return LoadedMode(self._subject, mode)
        again = Again(self._source, self._caches, mode)
        return LoadedMode(self._subject, mode, again, self._second)
