"""What `--backend=loihi2` needs, looked for before anything starts, and the run itself in a supervised session.

Intel's Lava extension for Loihi, a board, a microcoded model of SoftLIF, and a head within the design rules. Each
missing piece is an error of its own that names what was looked for. Never is the CPU taken instead. Written from
public facts: no chip has run it (docs/loihi2.md). Lava is not imported here; its side is `heads/loihi2.py`.
"""

from __future__ import annotations

import importlib.metadata
import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from asp_neuro.chip.stock_shadow import Differs, TooLate
from asp_neuro.errors import AspError
from asp_neuro.heads.spec import STOCK
from asp_neuro.libraries import demand

if TYPE_CHECKING:
    from asp_neuro.model.exit import ExitRule
    from asp_neuro.model.look import Answer
    from asp_neuro.model.perceiver import Perceiver

# The modules of the extension that are used, by us or by Lava on our behalf (its run configuration and its compiler
# import the models of C and neuro cores together, or none of them).
EXTENSION = (
    "lava.utils.loihi2_profiler",
    "lava.magma.core.model.nc.model",
    "lava.magma.core.model.c.model",
    "lava.magma.compiler.subcompilers.nc.ncproc_compiler",
    "lava.proc.embedded_io",
    "nxcore",
)
MODELS, SOFT_LIF = "asp_neuro.loihi2_models", "SoftLIF"  # entry point: group, name
GENERATIONS = ("N3B2", "N3B3", "N3C1", "N3D1")  # of Loihi 2 in lava.utils.loihi.ChipGeneration
LOIHI2_PARTITIONS = ("oheogulch", "kp")  # how the partitions with Loihi 2 begin in public scripts
HOST_BINARY = "nxcore/bin/nx_driver_server"  # Lava's own default
DOWN = ("down", "drain", "drng", "fail", "maint", "unk")  # node states that take no job
ANSWER_SECONDS = 10.0  # that sinfo and ping may take
CHIP = ("asp_neuro.chip.loihi2", 1200.0)  # who leads a session, and its longest silence: it may wait for its board
CHIP_TICK_BITS, CHIP_HIT_BITS = 8, 16  # of a 24-bit message
PROFILE = "ASP_NEURO_PROFILE"  # a file for what the profilers measured
PULSE = "ASP_NEURO_PULSE"  # a file for latency and streams of the golden pulse

LOOK = """
import importlib.util, json, sys
given = json.loads(sys.argv[1])
sys.path[:] = given["path"]
def is_there(name):
    try:
        return importlib.util.find_spec(name) is not None
    except ImportError:
        return False
print(json.dumps([name for name in given["names"] if not is_there(name)]))
"""


class ExtensionMissing(AspError):
    """Intel's Lava extension for Loihi is not installed, or not all of it."""

    kind = "loihi2 extension"
    exit_code = 2


class NoBoard(AspError):
    """No Loihi 2 board was found, or none that is up."""

    kind = "loihi2 board"
    exit_code = 3


class NotExpressible(AspError):
    """The model cannot be expressed on the chip."""

    kind = "loihi2 model"
    exit_code = 4


class OnHost(AspError):
    """A process that belongs on the chip would have run on the host."""

    kind = "loihi2 fallback"
    exit_code = 5


TYPED = {error.__name__: error for error in (ExtensionMissing, NoBoard, NotExpressible, OnHost)}
WHILE_RUNNING = {error.__name__: error for error in (Differs, TooLate)}


def answers_on_chip(
    perceiver: Perceiver,
    scenes: Any,
    exit_rule: ExitRule,
    on_answer: Callable[[int, Answer], None] | None = None,
) -> list[Answer]:
    """The answers of a batch of clouds with the head on a Loihi 2 chip, or an error: never on anything else."""
    from asp_neuro.chip import session
    from asp_neuro.report import say

    board = preflight(perceiver)
    say(f"loihi2: {board.text}")
    try:
        with environment(board.variables):
            return session.simulate(perceiver, scenes, exit_rule, on_answer=on_answer, side=session.Side(*CHIP))
    except session.SessionError as error:
        raise typed(error) from None


def typed(error: AspError) -> AspError:
    """A session's failure as the error of ours that its Lava side raised, or as it is."""
    told = re.search(rf"in phase session: ({'|'.join(TYPED)}): (.*)", str(error), re.DOTALL)
    if told:
        return TYPED[told[1]](told[2])
    told = re.search(rf"^[^:]*: host [^:]*: ({'|'.join(WHILE_RUNNING)}): (.*)", str(error), re.DOTALL)
    return WHILE_RUNNING[told[1]](told[2]) if told else error


def preflight(perceiver: Perceiver) -> Board:
    """All checks that need no Lava; the board to use, or one error that tells every piece that is missing."""
    board, found = look_over(perceiver)
    if board is None or found:
        raise together(found)
    return board


def blockers(perceiver: Perceiver | None = None) -> list[AspError]:
    """What stands in the way of a run, in the order of the exit codes; without a model, what does for any."""
    return look_over(perceiver)[1]


def look_over(perceiver: Perceiver | None) -> tuple[Board | None, list[AspError]]:
    """The board that is to be had, and the blockers; Slurm is asked once, as a second list may be another one."""
    boards: list[Board] = []
    checks: list[Callable[[], object]] = [demand_extension, lambda: boards.append(choose_board(os.environ))]
    if perceiver is not None:
        if perceiver.head.form != STOCK:
            checks.append(demand_neuron_model)
        checks.append(lambda: demand_expressible(perceiver))
    found: list[AspError] = []
    for check in checks:
        try:
            check()
        except AspError as error:
            found.append(error)
    return (boards[0] if boards else None), found


def together(found: list[AspError]) -> AspError:
    """Several errors as one: kind and exit code of the first, the words of all."""
    if len(found) == 1:
        return found[0]
    told = [f"{number}. {error}" for number, error in enumerate(found, start=1)]
    return type(found[0])("\n".join([f"{len(found)} pieces are missing for Loihi 2:", *told]))


# The extension


def missing_modules() -> list[str]:
    """Looked for in another interpreter: to find a module, its parents are imported."""
    given = json.dumps({"path": sys.path, "names": EXTENSION})
    done = subprocess.run([sys.executable, "-c", LOOK, given], capture_output=True, text=True)
    if done.returncode:
        raise ExtensionMissing(f"cannot look for Intel's Lava extension: {done.stderr.strip().splitlines()[-1]}")
    missing: list[str] = json.loads(done.stdout.splitlines()[-1])
    return missing


def demand_extension() -> None:
    demand("lava.magma", "Loihi 2")
    missing = missing_modules()
    if missing:
        raise ExtensionMissing(
            f"Loihi 2 needs Intel's Lava extension for Loihi (members of the INRC get it from Intel); "
            f"missing: {', '.join(missing)}.\nInstall it into {sys.prefix}, or take the simulator: --backend=sim"
        )


# The board


@dataclass(frozen=True)
class Board:
    """Where to run: `variables` for the environment (None takes one out), and a sentence."""

    variables: dict[str, str | None]
    text: str


@dataclass(frozen=True)
class Node:
    """A row of `sinfo -N`."""

    name: str
    partition: str
    state: str

    @property
    def is_up(self) -> bool:
        """Free, or busy and to be waited for; a `*` behind the state says that the node does not respond."""
        return not self.state.endswith("*") and not any(word in self.state.lower() for word in DOWN)


def choose_board(environ: Mapping[str, str]) -> Board:
    """Slurm if PARTITION or BOARD ask for it, a board on the network if NXSDKHOST does; NOSLURM=1 where both do."""
    generation = environ.get("LOIHI_GEN") or "N3B3"
    if generation not in GENERATIONS:
        raise NoBoard(f"LOIHI_GEN is '{generation}', Loihi 2 comes as {', '.join(GENERATIONS)}; most boards are N3B3")
    slurm_asked = environ.get("PARTITION") or environ.get("BOARD")
    if environ.get("NXSDKHOST") and (environ.get("NOSLURM") == "1" or not slurm_asked):
        return _ethernet(environ, generation)
    return _slurm(environ, generation)


def _ethernet(environ: Mapping[str, str], generation: str) -> Board:
    address = environ["NXSDKHOST"]
    ping = shutil.which("ping")
    if ping is None:
        raise NoBoard(f"NXSDKHOST is {address}, but ping is not on PATH: whether the board is there cannot be asked")
    if _said([ping, "-c", "1", address]) is None:
        raise NoBoard(f"NXSDKHOST is {address}, but `ping -c 1 {address}` failed: switch the board on, or set another")
    variables = {
        "NXSDKHOST": address,
        "HOST_BINARY": environ.get("HOST_BINARY") or HOST_BINARY,
        "LOIHI_GEN": generation,
        "NOSLURM": "1",
        "SLURM": None,
        "BOARD": None,
        "PARTITION": None,
    }
    return Board(variables, f"board at {address} (NXSDKHOST), {generation}")


def _slurm(environ: Mapping[str, str], generation: str) -> Board:
    if shutil.which("sinfo") is None:
        raise NoBoard(f"no Loihi 2 board; {looked_for(environ)}.\n{ADVICE}")
    listing = _said(["sinfo", "-N"])
    if listing is None:
        raise NoBoard(f"sinfo is there, but `sinfo -N` failed: the Slurm controller does not answer.\n{ADVICE}")
    nodes = parse_nodes(listing)
    board, partition = environ.get("BOARD"), environ.get("PARTITION")
    chosen: dict[str, str | None]
    if board:
        node = _first_up(nodes, board.split(","), partition)
        chosen = {"BOARD": node.name, "PARTITION": partition or None}
    else:
        node = _in_partition(nodes, partition, environ)
        chosen = {"BOARD": None, "PARTITION": node.partition}
    variables = {**chosen, "LOIHI_GEN": generation, "SLURM": "1", "NOSLURM": None, "NXSDKHOST": None}
    named = ", ".join(f"{name} {value}" for name, value in chosen.items() if value)
    return Board(variables, f"Slurm, {named}, {generation}")


ADVICE = (
    "With Slurm, set PARTITION (oheogulch, kp, ...) or BOARD (a node of `sinfo -N`); for a board on the network, set "
    "NXSDKHOST to its address. Nothing was run; the simulator is --backend=sim"
)


def looked_for(environ: Mapping[str, str]) -> str:
    sinfo = shutil.which("sinfo") or "not found"
    variables = [f"{name} ({environ.get(name) or 'not set'})" for name in ("PARTITION", "BOARD", "NXSDKHOST")]
    return f"looked for: sinfo on PATH ({sinfo}), {', '.join(variables)}"


def parse_nodes(listing: str) -> list[Node]:
    """The rows of `sinfo -N`, found by the names in its header; a newline at the end is no row."""
    rows = [line.split() for line in listing.splitlines() if line.strip()]
    header = rows[0] if rows else []
    if not {"NODELIST", "PARTITION", "STATE"} <= set(header):
        raise NoBoard(f"`sinfo -N` said '{' '.join(header)}', expected the columns NODELIST, PARTITION and STATE")
    at = [header.index(name) for name in ("NODELIST", "PARTITION", "STATE")]
    nodes = [[row[place] for place in at] for row in rows[1:] if len(row) > max(at)]
    return [Node(name, partition.rstrip("*"), state) for name, partition, state in nodes]  # *: the default partition


def _first_up(nodes: list[Node], names: list[str], partition: str | None) -> Node:
    """BOARD may name several, in order of preference."""
    told = []
    for name in (name.strip() for name in names):
        found = [node for node in nodes if node.name == name and partition in (None, "", node.partition)]
        up = [node for node in found if node.is_up]
        if up:
            return up[0]
        where = f" in partition {partition}" if partition else ""
        told.append(f"board {name} is {found[0].state}" if found else f"board {name} is not listed{where}")
    raise NoBoard(f"BOARD: {'; '.join(told)}. `sinfo -N` lists: {_listed(nodes)}.\n{ADVICE}")


def _in_partition(nodes: list[Node], partition: str | None, environ: Mapping[str, str]) -> Node:
    """A board that is up in the partition asked for; none asked: in the first one that holds Loihi 2."""
    if partition:
        found = [node for node in nodes if node.partition == partition]
        wrong = f"PARTITION {partition}: {'no board of it is up' if found else 'Slurm has no such partition'}"
    else:
        found = [node for node in nodes if node.partition.startswith(LOIHI2_PARTITIONS)]
        wrong = f"no board is up in a partition named {' or '.join(LOIHI2_PARTITIONS)}; {looked_for(environ)}"
    for node in found:
        if node.is_up:
            return node
    raise NoBoard(f"{wrong}. `sinfo -N` lists: {_listed(nodes)}.\n{ADVICE}")


def _listed(nodes: list[Node]) -> str:
    most = 6
    named = [f"{node.name} ({node.partition}, {node.state})" for node in nodes[:most]]
    rest = [f"{len(nodes) - most} more"] if len(nodes) > most else []
    return ", ".join(named + rest) or "no node"


def _said(command: list[str]) -> str | None:
    """What a program printed; None if it failed or took too long."""
    try:
        return subprocess.run(command, capture_output=True, text=True, check=True, timeout=ANSWER_SECONDS).stdout
    except (subprocess.SubprocessError, OSError):
        return None


@contextmanager
def environment(variables: Mapping[str, str | None]) -> Iterator[None]:
    """Variables set (None: taken out) as long as this lasts; the processes started meanwhile inherit them."""
    kept = {name: os.environ.get(name) for name in variables}
    _set(variables)
    try:
        yield
    finally:
        _set(kept)


def _set(variables: Mapping[str, str | None]) -> None:
    for name, value in variables.items():
        if value is None:
            os.environ.pop(name, None)
        else:
            os.environ[name] = value


# The model


def neuron_models() -> list[importlib.metadata.EntryPoint]:
    """What installed packages offer as the chip's SoftLIF. Nothing is imported."""
    return list(importlib.metadata.entry_points(group=MODELS, name=SOFT_LIF))


def demand_neuron_model() -> importlib.metadata.EntryPoint:
    found = neuron_models()
    if not found:
        raise NotExpressible(
            f"SoftLIF has no model for Loihi 2: no installed package offers the entry point '{SOFT_LIF}' of the group "
            f"'{MODELS}'.\nThe chip needs microcode, whose language is not public; docs/loihi2.md says what an INRC "
            f'member has to supply. A bundle of the stock form ([head] form = "stock") needs none.'
        )
    if len(found) > 1:
        offers = ", ".join(point.value for point in found)
        raise NotExpressible(f"{len(found)} packages offer the entry point '{SOFT_LIF}' of '{MODELS}': {offers}")
    return found[0]


def demand_expressible(perceiver: Perceiver) -> None:
    """The design rules of `asp-neuro check --hw loihi2`, and that guard hits fit a tick's message."""
    from asp_neuro.runtime import hardware

    if perceiver.head.form != STOCK:
        demand_ticks(perceiver)
    fit = hardware.check(perceiver.head, perceiver.spec.mixer, hardware.chip("loihi2"))
    if not fit.fits:
        broken = "\n".join(f"  {violation}" for violation in fit.violations)
        raise NotExpressible(f"the head breaks design rules of Loihi 2 (asp-neuro check --hw loihi2):\n{broken}")


def demand_ticks(perceiver: Perceiver) -> None:
    """Guard hits and observations fit the message of a tick."""
    from asp_neuro.heads.verdict import NEURONS

    head, most_hit = perceiver.head, (1 << CHIP_HIT_BITS) - 1
    last_hit = (len(head.layers) - 1) * NEURONS + head.layers[-1].n_neurons
    if last_hit > most_hit:
        raise NotExpressible(f"layer {len(head.layers)}: guard hits count to {last_hit}, a tick holds {most_hit}")
    if perceiver.budget >= 1 << CHIP_TICK_BITS:
        raise NotExpressible(f"budget {perceiver.budget}, a tick counts to {(1 << CHIP_TICK_BITS) - 1} observations")
