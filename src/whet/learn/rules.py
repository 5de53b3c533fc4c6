"""What holds for most GPU kernels, before anything is known of this one.

A weak opinion, as log time: it says where to begin and gives way to what is measured.
"""

from __future__ import annotations

import re

import numpy as np
import numpy.typing as npt

from whet.core.space import Parameter
from whet.learn.features import Codebook, Codes

Floats = npt.NDArray[np.float64]

# Sizes that are no power of two leave threads idle and split cache lines: so much slower for each
# doubling of the odd part (96 is 3 × 32). Numbers below a warp's width may be anything.
UNROUND, WARP = 0.1, 32
# So much slower by the square of the doublings away from the usual threads of a block.
FROM_USUAL, USUAL_THREADS = 0.05, 128

_THREADS = re.compile(r"(block|group)_?(size|dim)_?[xyz]|(num_?)?threads(_?[xyz])?", re.IGNORECASE)
_WARPS = re.compile(r"(num_?)?warps", re.IGNORECASE)


class Rules:
    """The opinion on configs of a space; `silent` where the rules say nothing of its parameters."""

    def __init__(self, book: Codebook) -> None:
        logs = {at: _logs(one) for at, one in enumerate(book.parameters)}
        self._logs = {at: table for at, table in logs.items() if table is not None}
        self._odd = {at: odd for at in self._logs if (odd := _odd_parts(book.parameters[at])).any()}
        names = {at: book.parameters[at].name for at in self._logs}
        warps = [at for at, name in names.items() if _WARPS.fullmatch(name)]
        blocks = [at for at, name in names.items() if _THREADS.fullmatch(name)]
        # Where warps are counted, a block's sizes are those of its data.
        self._threads = warps or blocks
        self._usual = np.log2(USUAL_THREADS / (WARP if warps else 1))

    @property
    def silent(self) -> bool:
        return not self._threads and not self._odd

    def of(self, codes: Codes) -> Floats:
        """Log time above what is usual for a good config; 0 for one without fault."""
        slower = np.zeros(len(codes))
        for at, odd in self._odd.items():
            slower += UNROUND * odd[codes[:, at]]
        if self._threads:
            threads = sum(self._logs[at][codes[:, at]] for at in self._threads)
            slower += FROM_USUAL * (threads - self._usual) ** 2
        return slower


def _logs(parameter: Parameter) -> Floats | None:
    """log2 of each value, 0 for none; None where not all are positive numbers."""
    values = parameter.values
    if not all(isinstance(one, int | float) and not isinstance(one, bool) for one in values):
        return None
    numbers = np.array(values, dtype=np.float64)
    return np.append(np.log2(numbers), 0.0) if numbers.min() > 0 else None


def _odd_parts(parameter: Parameter) -> Floats:
    """log2 of the odd part of each value; zeros where none is a warp wide or some are no whole
    numbers."""
    numbers = [float(str(value)) for value in parameter.values]
    if max(numbers) < WARP or any(number != int(number) for number in numbers):
        return np.zeros(len(numbers) + 1)
    whole = [int(number) for number in numbers]
    return np.array([*(np.log2(number // (number & -number)) for number in whole), 0.0])
