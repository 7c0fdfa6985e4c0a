"""What a verb is, and the arguments that several of them share."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from asp_neuro import files
from asp_neuro.errors import AspError, UsageError

BACKENDS = ("fast", "sim", "loihi2")
PICTURES = (".png", ".svg", ".pdf")


@dataclass(frozen=True)
class Result:
    """What a verb came to: `report` for machines, `text` for people, and the exit code."""

    report: dict[str, Any]
    text: str
    exit_code: int = 0


@dataclass(frozen=True)
class Verb:
    name: str
    summary: str  # one line
    example: str  # a command that works as it stands
    add_arguments: Callable[[argparse.ArgumentParser], None]
    run: Callable[[argparse.Namespace], Result]
    parts: tuple[Verb, ...] = ()  # verbs of its own: `asp-neuro study order`


def no_arguments(parser: argparse.ArgumentParser) -> None:
    """For a verb that has only the options of every verb."""


def whole(low: int) -> Callable[[str], int]:
    """An argument type: a whole number of at least `low`."""

    def parse(text: str) -> int:
        try:
            value = int(text)
        except ValueError:
            raise argparse.ArgumentTypeError(f"'{text}' is not a whole number") from None
        if value < low:
            raise argparse.ArgumentTypeError(f"{value} is below {low}")
        return value

    return parse


def picture_file(text: str) -> Path:
    """An argument type: where a picture can be written, found out before the work and not after it."""
    from asp_neuro.libraries import demand

    path = Path(text)
    if path.suffix.lower() not in PICTURES:
        raise argparse.ArgumentTypeError(f"'{text}' does not end in {' or '.join(PICTURES)}")
    path = out_file(text)
    demand("matplotlib", "a picture")
    return path


def out_file(text: str) -> Path:
    """An argument type: a file that can be written, found out before the work and not after it."""
    try:
        return files.demand_place(text)
    except AspError as error:
        raise argparse.ArgumentTypeError(str(error)) from None


def bundle_argument(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("file", nargs="?", metavar="FILE|NAME", help="a bundle, or the name of a shipped one")
    parser.add_argument("--bundle", metavar="FILE|NAME", help="the same as an option (default ./model.net)")


def bundle_name(args: argparse.Namespace) -> str | None:
    if args.file is not None and args.bundle is not None:
        raise UsageError(f"the bundle is given twice: '{args.file}' and --bundle '{args.bundle}'")
    return args.file if args.bundle is None else args.bundle


def data_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--data", metavar="NAME|PATH", help="where the data are (default: those of the recipe)")
    parser.add_argument("--up", choices=("x", "y", "z"), help="the up axis of a folder or a file (default y)")


def sample_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--split", choices=("train", "validation", "calibration", "test"), default="test", help="default test"
    )
    parser.add_argument("--limit", type=whole(1), metavar="N", help="only the first N clouds")


def exit_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--no-exit", action="store_true", help="read the whole budget")
    parser.add_argument("--threshold", type=float, metavar="X", help="exit at margin X, without a promise")
    parser.add_argument("--uncertified", action="store_true", help="use a stored threshold whose certificate is void")


def level_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--alpha", type=alphas, default=(0.05,), metavar="A[,A..]",
        help="largest risk (default 0.05); several share delta, and the first that is certified is stored",
    )  # fmt: skip
    parser.add_argument("--delta", type=float, default=0.05, metavar="D", help="chance to be wrong (default 0.05)")


def alphas(text: str) -> tuple[float, ...]:
    """An argument type: risks with commas between them, none twice."""
    try:
        found = tuple(float(word) for word in text.split(","))
    except ValueError:
        raise argparse.ArgumentTypeError(f"'{text}' is no number, and no numbers with commas between them") from None
    if len(set(found)) < len(found):
        raise argparse.ArgumentTypeError(f"'{text}' names a level twice")
    return found


def familiarity_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--patience", type=whole(1), metavar="K",
        help="an answer that has not crossed the threshold after K looks ends there, without a promise (default: the "
        "whole budget)",
    )  # fmt: skip
    parser.add_argument(
        "--unfamiliar", type=unfamiliar_share, default=0.01, metavar="S",
        help="largest share of clouds like the known ones that may be called unfamiliar (default 0.01; 0: none is)",
    )  # fmt: skip
    parser.add_argument(
        "--cover", type=word_list, default=(), metavar="A,B,..",
        help="conditions that the promise shall cover too: partial, strewn, noise, turned, thin, dropped, uneven, "
        "rotated, with an amount if wished (strewn:0.01)",
    )  # fmt: skip


def unfamiliar_share(text: str) -> float:
    """An argument type: a share from 0 on and below 1."""
    try:
        value = float(text)
    except ValueError:
        raise argparse.ArgumentTypeError(f"'{text}' is not a number") from None
    if not 0.0 <= value < 1.0:
        raise argparse.ArgumentTypeError(f"{text} must be at least 0 and below 1")
    return value


def word_list(text: str) -> tuple[str, ...]:
    """An argument type: words with commas between them."""
    words = tuple(word.strip() for word in text.split(","))
    if not all(words):
        raise argparse.ArgumentTypeError(f"'{text}' has an empty word")
    return words


def share(value: float | None) -> str | None:
    return None if value is None else f"{100.0 * value:.1f} %"
