"""The mean of several trainings' weights, to start from: `python train/soup.py A.pt B.pt C.pt --out FILE`.

All must be of one recipe, with other seeds, and start from one stage. A recipe with `train.start = "FILE"` and a few
epochs on the integer grid makes a model of it.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from asp_neuro.errors import AspError
from asp_neuro.learn import checkpoint, soup
from asp_neuro.report import say


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("checkpoints", nargs="+", metavar="CHECKPOINT", help="files or shipped names")
    parser.add_argument("--out", type=Path, default=Path("soup.pt"), metavar="FILE")
    args = parser.parse_args()
    checkpoint.save(args.out, soup.averaged(args.checkpoints))
    print(f'{args.out}: the mean of {len(args.checkpoints)} trainings; start from it with train.start = "{args.out}"')
    return 0


if __name__ == "__main__":
    try:
        sys.exit(main())
    except AspError as error:
        say(f"soup: error: {error}")
        sys.exit(error.exit_code)
