"""Pack a report of a run on Loihi 2: what the machine has, what the host engines say, what the chip answered.

python deploy/report.py BUNDLE [--limit N] [--data NAME|PATH] [--out FOLDER]

Writes into the folder, and packs as FOLDER.tar.gz:
  doctor.json   check.json   verify.json      the verbs of the same names, on this machine
  chip.json     the chip's answers against the fast engine's, cloud by cloud; or the error that kept it from running
  pulse.json    stock form: the golden pulse: latency, way to reset, expected and read streams
  profile.json  what the extension's profilers measured, where there are any
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import os
import subprocess
import sys
import tarfile
import time
from pathlib import Path
from typing import Any

from asp_neuro.chip.machines import chip_answers
from asp_neuro.chip.preflight import PROFILE, PULSE
from asp_neuro.errors import AspError
from asp_neuro.runtime import deployment
from asp_neuro.runtime.machine import fast_answers
from asp_neuro.runtime.verification import Findings, compare_answers


def main() -> int:
    args = arguments()
    args.out.mkdir(parents=True, exist_ok=True)
    for variable, name in ((PROFILE, "profile.json"), (PULSE, "pulse.json")):
        path = args.out.absolute() / name
        path.unlink(missing_ok=True)  # of an earlier report
        os.environ[variable] = str(path)
    verbs = {
        "doctor": ["doctor"],
        "check": ["check", args.bundle, "--hw", "loihi2"],
        "verify": ["verify", args.bundle, "--limit", str(args.limit), *data(args)],
    }
    for name, words in verbs.items():
        save(args.out / f"{name}.json", verb(words))
    found = chip(args)
    save(args.out / "chip.json", found)
    packed = Path(f"{args.out}.tar.gz")
    with tarfile.open(packed, "w:gz") as archive:
        archive.add(args.out, arcname=args.out.name)
    say(f"packed: {packed}; look through it before you send it, it names folders and boards of this machine")
    return int(found["exit_code"])


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("bundle", metavar="BUNDLE", help="a bundle, or the name of a shipped one")
    parser.add_argument("--limit", type=int, default=20, metavar="N", help="clouds to answer (default 20)")
    parser.add_argument("--split", default="test", help="of the data (default test)")
    parser.add_argument("--data", metavar="NAME|PATH", help="where the data of the bundle are")
    parser.add_argument("--out", type=Path, default=Path("loihi2-report"), metavar="FOLDER")
    return parser.parse_args()


def data(args: argparse.Namespace) -> list[str]:
    return [] if args.data is None else ["--data", args.data]


def verb(words: list[str]) -> dict[str, Any]:
    """What a verb printed as JSON, and its exit code."""
    say(f"asp-neuro {' '.join(words)}")
    done = subprocess.run([sys.executable, "-m", "asp_neuro", *words, "--json"], stdout=subprocess.PIPE, text=True)
    return {**json.loads(done.stdout), "exit_code": done.returncode}


def chip(args: argparse.Namespace) -> dict[str, Any]:
    """The same clouds on the fast engine and on the chip, compared bit for bit."""
    say("the chip against the fast engine")
    try:
        deployed = deployment.open_bundle(args.bundle)
        clouds = deployment.clouds_of(deployed, args.data, args.split, None, args.limit)
        scenes = deployed.perceiver.scenes(clouds.points, clouds.names)
        rule, _ = deployment.exit_rule(deployed, uncertified=True)
        began = time.monotonic()
        on_chip = chip_answers(deployed.perceiver, scenes, rule, 1, lambda index, answer: None)
        seconds = time.monotonic() - began
    except AspError as error:
        say(f"the chip did not run: {error}")
        return {"error": {"kind": error.kind, "message": str(error)}, "exit_code": error.exit_code}
    findings = Findings()
    expected = fast_answers(deployed.perceiver, scenes, rule)
    compare_answers(findings, "loihi2", list(clouds.names), expected, on_chip)
    report = dataclasses.asdict(findings)
    n_observations = sum(found.observations for found in on_chip)
    report |= {"sha256": deployed.sha256, "seconds": seconds, "observations": n_observations}
    return {**report, "exit_code": 1 if findings.mismatches else 0}


def save(path: Path, report: dict[str, Any]) -> None:
    path.write_text(json.dumps(report, indent=2, default=str) + "\n", encoding="utf-8")


def say(message: str) -> None:
    print(message, file=sys.stderr, flush=True)


if __name__ == "__main__":
    sys.exit(main())
