"""One run, step by step, to be read in this order.

run.py      what the store knows, the steps below, and how the run ends
explore.py  asks the strategy; what is built gets its first samples; tells the strategy
build.py    which builds come first, how long they may take, what came of them
samples.py  visits to the device: first samples, more samples, rounds; `guard.py` is around each
finals.py   a race: more samples for what may win; and a duel of the last few, side by side
record.py   every outcome is a trial in the store the moment it is known

Where merged stores disagree on the fastest, `Contest` in finals.py sees to it that their picks are
measured.
"""
