"""`python -m asp_neuro`: the same as the console script `asp-neuro`."""

import sys

from asp_neuro.cli.main import main

if __name__ == "__main__":
    sys.exit(main())
