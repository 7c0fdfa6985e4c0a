"""asp-neuro doctor"""

from __future__ import annotations

import argparse

from asp_neuro.cli.verbs.base import Result
from asp_neuro.report import table


def doctor_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--quick", action="store_true", help="leave out the self-test of the Lava simulator")


def doctor(args: argparse.Namespace) -> Result:
    """What is installed, what is missing, and the next step for each; exit code 1 when a needed thing is not there."""
    from asp_neuro.cli.doctor import examine

    items = examine(args.quick)
    text = table([(item.status, item.name, item.hint) for item in items], headers=("status", "item", "what it says"))
    healthy = all(item.status == "ok" for item in items if item.needed)
    return Result({"items": items}, text, exit_code=0 if healthy else 1)
