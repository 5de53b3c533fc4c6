"""Results to look at: one set of data for the page, the report, notebooks and the terminal.

`library.py` has every workload of a store and of tables, `columns.py` their trials as arrays;
`server.py` serves the page, which is in `static/`. Only the server wants more than the core.

Why it is so: docs/decisions/explorer.md.
"""

from pathlib import Path

STATIC = Path(__file__).parent / "static"
# What `--sample` shows: a store and tables; its README says where they come from.
SAMPLE = Path(__file__).parent / "sample"
