"""The configs a model chooses among: all of a space, or a sample that grows where it is good."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np
import numpy.typing as npt

from whet.core.config import Config
from whet.core.space import Space
from whet.learn.features import Codebook, Codes

Rows = npt.NDArray[np.intp]

# A space of at most so many configs is looked at as a whole.
LISTED = 20_000
# Of a larger one so many are drawn.
DRAWN = 8_000
# No pool grows beyond this, whatever is added to it.
MOST = 60_000


class Candidates:
    """Configs by row number. A row is free until it is asked for or told of."""

    def __init__(self, space: Space, rng: np.random.Generator) -> None:
        self._space = space
        self.whole = space.is_small(LISTED)
        self.book = Codebook(space)
        drawn = list(space) if self.whole else space.sample(rng, DRAWN)
        self.codes: Codes = self.book.codes(drawn)
        self._configs: list[Config] = drawn
        self._rows = {row.tobytes(): at for at, row in enumerate(self.codes)}
        self.free = np.ones(len(drawn), dtype=bool)

    def __len__(self) -> int:
        return len(self._configs)

    def config(self, row: int) -> Config:
        return self._configs[row]

    def configs(self) -> Sequence[Config]:
        return self._configs

    def take(self, row: int) -> None:
        self.free[row] = False

    def row(self, config: Config) -> int | None:
        """Where a config stands; None for one that is not of this space."""
        codes = self.book.code(config)
        return None if codes is None else self.admit(codes)

    def admit(self, codes: Sequence[int]) -> int | None:
        """The row of these codes, which a valid config outside the pool now gets; else None."""
        key = np.array(codes, dtype=np.int32)
        known = self._rows.get(key.tobytes())
        if known is not None or self.whole:
            return known
        config = self.book.config(key.tolist())
        if len(self) >= MOST or config not in self._space:
            return None
        self._append([config], key[None, :])
        return len(self) - 1

    def neighbours(self, row: int) -> Rows:
        """The free ones that differ from it in one parameter, in any way or by one move where
        the space is too large to list."""
        if self.whole:
            differing = (self.codes != self.codes[row]).sum(axis=1)
            found = np.flatnonzero((differing == 1) & self.free)
        else:
            around = self._space.neighbours(self._configs[row])
            rows = [at for config in around if (at := self.row(config)) is not None]
            found = np.array([at for at in rows if self.free[at]], dtype=np.intp)
        return found

    def refill(self, rng: np.random.Generator) -> bool:
        """More of a space that is too large to list; False where nothing new was found."""
        before = len(self)
        if not self.whole and before < MOST:
            for config in self._space.sample(rng, DRAWN // 4):
                self.row(config)
        return len(self) > before

    def _append(self, configs: Iterable[Config], codes: Codes) -> None:
        for config, row in zip(configs, codes, strict=True):
            self._rows[row.tobytes()] = len(self._configs)
            self._configs.append(config)
        self.codes = np.vstack([self.codes, codes])
        self.free = np.append(self.free, np.ones(len(codes), dtype=bool))
