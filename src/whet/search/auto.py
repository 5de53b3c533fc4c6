"""What to use when nobody says.

A random order, after the author's first config: all of a small space, a sample of a large one.
Where a space is raced whole, the order decides only how good the best so far is at any time, and
there a random one beats the author's, in which neighbours are alike.
"""

from __future__ import annotations

from whet.search.random import Random


class Auto(Random):
    name = "auto"
