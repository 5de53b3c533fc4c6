"""`python -m whet` is the command `whet`."""

import sys

from whet.cli import main

if __name__ == "__main__":
    sys.exit(main())
