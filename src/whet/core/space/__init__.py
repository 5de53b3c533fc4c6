"""Which configs there are.

`space.py` is what everybody uses. Behind it: `parameter.py` has each parameter's own geometry;
`constraint.py` and `expression.py` read constraints; `interval.py` and `reduction.py` find what is
left of a constraint once some parameters are bound; `component.py`, `diagram.py` and `counting.py`
count and draw valid configs without listing them; `listing.py` is for spaces given as a list.
"""

from whet.core.space.parameter import Categorical, Ordered, Parameter, Permutation
from whet.core.space.space import Space, UncountedError

__all__ = ["Categorical", "Ordered", "Parameter", "Permutation", "Space", "UncountedError"]
