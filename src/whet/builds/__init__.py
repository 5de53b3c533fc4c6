"""Many builds at once: order, limits, stage times, and never the same one twice."""
