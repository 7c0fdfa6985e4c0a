"""asp-neuro demo"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from asp_neuro import files
from asp_neuro.cli.verbs.base import Result, whole
from asp_neuro.report import say, table


def demo_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--out", type=Path, default=Path("demo-out"), metavar="DIR", help="default ./demo-out")
    parser.add_argument("--epochs", type=whole(1), metavar="N", help="fewer epochs, for a quick look")
    parser.add_argument("--limit", type=whole(1), default=60, metavar="N", help="clouds on the simulator (default 60)")


def demo(args: argparse.Namespace) -> Result:
    """The main job on built-in data, as the commands that a user would type."""
    import time

    from asp_neuro.libraries import demand, install, is_there

    demand("torch", "the demo, which trains a model,")
    files.make_folder(args.out)
    checkpoint, bundle = str(args.out / "model.pt"), str(args.out / "model.net")
    shorter = () if args.epochs is None else ("--epochs", str(args.epochs))
    story: tuple[tuple[str, ...], ...] = (
        ("train", "--out", checkpoint, *shorter, "--force"),
        ("export", checkpoint, "--out", bundle),
        ("run", bundle, "--backend=fast"),
        ("run", bundle, "--backend=sim", "--limit", str(args.limit)),
        ("verify", bundle, "--checkpoint", checkpoint, "--limit", "6"),
    )
    if not is_there("lava.magma"):
        say(f"the Lava simulator is left out, it is not installed; {install('lava')}")
        story = tuple(words for words in story if "--backend=sim" not in words)
    steps: list[dict[str, Any]] = []
    code = 0
    for words in story:
        say(f"\n$ asp-neuro {' '.join(words)}")
        began = time.perf_counter()
        found = call(*words)
        seconds = time.perf_counter() - began
        say(found.text)
        steps.append({"command": " ".join(words), "seconds": seconds, "report": found.report})
        code = max(code, found.exit_code)
    rows = [(step["command"], f"{step['seconds']:.1f}", _in_short(step["report"])) for step in steps]
    text = table(rows, ("asp-neuro", "seconds", "result"))
    return Result({"steps": steps, "seconds": sum(step["seconds"] for step in steps)}, text, exit_code=code)


def _in_short(report: dict[str, Any]) -> str:
    if "mismatches" in report:
        return f"{report['mismatches']} differences in {sum(report['compared'].values()):,} comparisons"
    if "mean_observations" in report:
        right, seen = 100.0 * report["accuracy"], report["mean_observations"]
        return f"{right:.1f} % right after {seen:.1f} of {report['budget']} chunks, on {report['n']} test clouds"
    if "certificate" in report:
        found = report["certificate"]
        certified = f"certified at margin {found['threshold']:.3f}" if found and found["certified"] else "not certified"
        return f"{100.0 * report['deploy_accuracy']:.1f} % on validation as integers, {certified}"
    return f"{100.0 * report['accuracy_at']['M']:.1f} % on validation, {report['parameters']:,} parameters"


def call(*words: str) -> Result:
    """One verb, as if typed."""
    from asp_neuro.cli.verbs import VERBS

    verb = next(verb for verb in VERBS if verb.name == words[0])
    parser = argparse.ArgumentParser(prog=f"asp-neuro {verb.name}", allow_abbrev=False)
    verb.add_arguments(parser)
    return verb.run(parser.parse_args(words[1:]))
