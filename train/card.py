"""Cards of shipped models: `python train/card.py compact modelnet10 modelnet40`.

Writes asp_neuro/models/NAME.md for each name, then the table of all cards into docs/models.md and their first numbers
into README.md (without a name: only these). It reads the test split (once at the certified exit, once at full budget):
log that in train/ATTEMPTS.md.
"""

from __future__ import annotations

import argparse
from pathlib import Path

from asp_neuro.report import say
from asp_neuro.studies.card import MODELS, between_marks, card, numbers_of_cards, table_of_cards

ROOT = Path(__file__).parents[1]


def put(page: Path, text: str) -> None:
    page.write_text(between_marks(page.read_text(encoding="utf-8"), text), encoding="utf-8")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", help="of shipped models")
    parser.add_argument("--data", metavar="NAME|PATH")
    args = parser.parse_args()
    for name in args.names:
        say(f"reading the test split of '{name}': log it in train/ATTEMPTS.md")
        (MODELS / f"{name}.md").write_text(card(name, args.data) + "\n", encoding="utf-8")
    put(ROOT / "docs/models.md", table_of_cards())
    put(ROOT / "README.md", numbers_of_cards())


if __name__ == "__main__":
    main()
