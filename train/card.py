"""Cards of shipped models: `python train/card.py compact modelnet10 modelnet40`.

Writes asp_neuro/models/NAME.md for each name, and the table of all cards into README.md (without a name: only that).
It reads the test split (once at the certified exit, once at full budget): log that in train/ATTEMPTS.md.
"""

from __future__ import annotations

import argparse
from pathlib import Path

from asp_neuro.report import say
from asp_neuro.studies.card import MODELS, card, with_table

README = Path(__file__).parents[1] / "README.md"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*", help="of shipped models")
    parser.add_argument("--data", metavar="NAME|PATH")
    args = parser.parse_args()
    for name in args.names:
        say(f"reading the test split of '{name}': log it in train/ATTEMPTS.md")
        (MODELS / f"{name}.md").write_text(card(name, args.data) + "\n", encoding="utf-8")
    README.write_text(with_table(README.read_text(encoding="utf-8")), encoding="utf-8")


if __name__ == "__main__":
    main()
