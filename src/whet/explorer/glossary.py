"""`GLOSSARY`: what the words of the explorer mean: for its page, its report and the docs."""

from __future__ import annotations

GLOSSARY = {
    "workload": "A kernel with one key on one device.",
    "key": "What a kernel is tuned for separately: its sizes and data types.",
    "version": "One state of a kernel's source, named by the first digits of its fingerprint.",
    "config": "One value for every parameter.",
    "trial": "One attempt to build and measure a config. Trials are numbered as they were tried; "
    "of a config that was tried again, the latest counts.",
    "outcome": "What became of a trial: measured, stopped early, or why it failed.",
    "measured": "It ran, its result was right where that is checked, and it was timed to the end.",
    "stopped early": "Its first samples showed that it is slower than others, so it got no more.",
    "never tried": "A config of a recorded table without a result at this key.",
    "time": "The median of a config's samples.",
    "95 % interval": "The true median is within it 19 times of 20, as far as the samples tell.",
    "place": "1 for the fastest config that was measured to the end.",
    "the pick": "The config that 'whet best' says: it was not beaten side by side.",
    "the fastest seen": "The config with the lowest median; on another occasion it may not be.",
    "best of this search": "The fastest config of the latest run.",
    "tied": "Too close to call: neither the duel nor the 95 % intervals tell the two apart.",
    "speed-up": "How many times as fast the pick is as the author's first config.",
    "over the median": "How many times as fast the pick is as a config in the middle.",
    "of roofline": "The share of what the device could do at most: compute or move as much data.",
    "tuned": "Measured for this very key, device and version.",
    "provisional": "The budget ended before the pick was compared side by side.",
    "inherited": "Nothing was measured for this key: it uses the pick of the nearest one.",
    "cost": "Seconds by the clock for a run; for trials and tables, the work of all processes.",
    "the cursor": "The cell of the heat map that the arrow keys move from.",
    "the opened config": "The one that was clicked last, and that the view Trial shows.",
    "best over the others": "Of all configs with these two values the fastest; the median over the "
    "others is the one in the middle.",
    "with others": "The share of the differences that a parameter explains together with others.",
    "serves": "At how many sizes a config is close to each one's fastest.",
    "B / A": "The time on B over the time on A: above 1, B is slower.",
    "sample": "One timed call, or the mean of several in a row.",
    "look": "The first samples of configs that were just built.",
    "round": "More samples for those that may still win.",
    "duel": "The last few, measured in turns, which decides the pick.",
}
