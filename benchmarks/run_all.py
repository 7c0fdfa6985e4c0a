"""All benchmarks, one after the other: results.json, results.png and the table in benchmarks/README.md.

    python benchmarks/run_all.py                                    what `make bench` runs, at most 15 minutes
    python benchmarks/run_all.py --quick                            a minute or two, numbers that mean little
    python benchmarks/run_all.py --only grouping startup --out DIR  some of them; DIR takes the two files
    python benchmarks/run_all.py --render                           picture and table again, from results.json

Every script runs in a process group of its own, on one thread, and is ended when its time is over; the others still
run. Without --out the results go to benchmarks/; those of some scripts only are printed and not kept.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path

from machine import LOADED, description, sentence
from presentation import Results, into_page, picture, warnings
from timing import HEADERS, ONE_THREAD, cells

from asp_neuro.chip.session import members
from asp_neuro.report import say, table

HERE = Path(__file__).parent
PAGE = HERE / "README.md"
# script: seconds that it may take; several times what an idle machine needs
BUDGETS = {
    "head_engines": 180,
    "episodes": 180,
    "parts": 60,
    "before": 120,
    "streaming": 150,
    "training_step": 180,
    "head_training": 120,
    "startup": 180,
    "grouping": 60,
    "guard": 90,
    "simulator": 150,
    "certify": 90,
    "shapes_forest": 60,
}
ALL_SECONDS = 870  # of everything: 15 minutes, less what presenting takes
LEAVE_SECONDS = 5.0


def measured(name: str, quick: bool, budget: float) -> dict[str, object]:
    """What a script says, or why it says nothing."""
    command = [sys.executable, str(HERE / f"{name}.py"), "--json", *(["--quick"] if quick else [])]
    began = time.monotonic()
    process = subprocess.Popen(
        command, stdout=subprocess.PIPE, text=True, start_new_session=True, env=os.environ | ONE_THREAD
    )
    try:
        printed, _ = process.communicate(timeout=max(budget, 0.0))
    except subprocess.TimeoutExpired:
        return {"missing": f"not done after {budget:.0f} s"}
    finally:
        if process.returncode != 0:
            end(process)
    if process.returncode != 0:
        return {"missing": f"ended with code {process.returncode}"}
    return {**json.loads(printed.splitlines()[-1]), "seconds": round(time.monotonic() - began, 1)}


def end(process: subprocess.Popen[str]) -> None:
    """End what is left of a script's group. SIGTERM first: Python's tracker of shared memory outlives it and cleans."""
    for number in (signal.SIGTERM, signal.SIGKILL):
        with suppress(ProcessLookupError):
            os.killpg(process.pid, number)
        patience = time.monotonic() + LEAVE_SECONDS
        while members(process.pid) and time.monotonic() < patience:
            time.sleep(0.05)
        if not members(process.pid):
            break
    process.wait()


def run(names: list[str], quick: bool) -> Results:
    machine = description()
    say(sentence(machine))
    if machine["load"] > LOADED:
        say("the machine is busy with other work: do not trust the times")
    began = time.monotonic()
    scripts = {}
    for name in names:
        say(f"== {name}")
        scripts[name] = measured(name, quick, min(BUDGETS[name], ALL_SECONDS - (time.monotonic() - began)))
        say(scripts[name].get("missing") or f"{scripts[name]['seconds']} s")
    return {"machine": machine, "quick": quick, "seconds": round(time.monotonic() - began, 1), "scripts": scripts}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="a few turns only: does it run?")
    parser.add_argument("--only", nargs="+", choices=BUDGETS, metavar="SCRIPT", help=", ".join(BUDGETS))
    parser.add_argument(
        "--out", type=Path, metavar="DIR", help="take results.json and results.png there; benchmarks/ stays"
    )
    parser.add_argument("--render", action="store_true", help="measure nothing, present results.json again")
    asked = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))  # unwinds: the running script ends, too
    out = asked.out or HERE
    stored = out / "results.json"
    results = json.loads(stored.read_text()) if asked.render else run(asked.only or list(BUDGETS), asked.quick)
    for part in results["scripts"].values():
        if "rows" in part:
            print(f"\n{part['title']}\n{table(map(cells, part['rows']), HEADERS)}")
    print("\n".join(["", *warnings(results), f"{results['seconds']:.0f} s in all"]))
    if asked.out or not asked.only:
        out.mkdir(parents=True, exist_ok=True)
        stored.write_text(json.dumps(results, indent=1, ensure_ascii=False) + "\n")
        picture(out / "results.png", results)
        if asked.out is None:
            into_page(PAGE, results)
    return int(any("missing" in part for part in results["scripts"].values()))


if __name__ == "__main__":
    sys.exit(main())
