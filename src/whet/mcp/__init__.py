"""A server of the Model Context Protocol, for agents: what a store knows, as answers that fit into
a context window, and tuning within what the person who started it has allowed.

`answers.py` reads, `allowance.py` is what may be spent and how, `server.py` offers both as tools.
An agent writes nothing itself: no tool takes a path, a program, a check or a result to be stored.

Why it is so: docs/decisions/agents.md.
"""
