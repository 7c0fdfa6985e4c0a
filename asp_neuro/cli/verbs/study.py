"""asp-neuro study"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from pathlib import Path

from asp_neuro.cli.verbs.base import Result, Verb, bundle_argument, bundle_name, data_arguments, sample_arguments, whole
from asp_neuro.errors import UsageError


def seed_list(text: str) -> tuple[int, ...]:
    """An argument type: whole numbers with commas between them, none twice."""
    seeds = tuple(whole(0)(word.strip()) for word in text.split(","))
    if len(set(seeds)) < len(seeds):
        raise argparse.ArgumentTypeError(f"'{text}' names a seed twice")
    return seeds


def study(args: argparse.Namespace) -> Result:
    """Without a part there is nothing to do."""
    from asp_neuro.cli.verbs import STUDIES

    raise UsageError(f"what to study: {' or '.join(part.name for part in STUDIES)}? (see: asp-neuro study --help)")


def read_arguments(parser: argparse.ArgumentParser) -> None:
    """What every study reads."""
    parser.add_argument(
        "models", nargs="*", metavar="MODEL", help="a shipped name, or bundles or checkpoints of one recipe"
    )
    data_arguments(parser)
    sample_arguments(parser)


def order_arguments(parser: argparse.ArgumentParser) -> None:
    read_arguments(parser)
    parser.add_argument("--recipe", metavar="NAME|FILE", help="without MODEL: what to train (default compact)")
    parser.add_argument("--seeds", type=seed_list, metavar="N,N,..", help="without MODEL: default 0,1,2")
    parser.add_argument("--epochs", type=whole(1), metavar="N", help="another number of epochs than the recipe's")
    parser.add_argument("--ablations", action="store_true", help="also train policies that see less (J.3, J.11, J.13)")
    parser.add_argument("--float", action="store_true", help="checkpoints: the head in floating point, not as exported")
    parser.add_argument("--average", action="store_true", help="answers from the mean of the logits so far")
    parser.add_argument(
        "--out", type=Path, default=Path("study-order"), metavar="DIR", help="models and results; default ./study-order"
    )


def order(args: argparse.Namespace) -> Result:
    """Learned, random, farthest-point and oracle order on the same weights."""
    wanted = {"recipe": args.recipe, "seeds": args.seeds, "epochs": args.epochs, "ablations": args.ablations or None}
    given = {name: value for name, value in wanted.items() if value is not None}
    if args.models and given:
        raise UsageError(f"--{next(iter(given))} is for training; with models given there is none")
    from asp_neuro.studies import order as study

    if _dense(args.models):
        from asp_neuro.studies import part_order

        if args.float or args.average:
            raise UsageError("--float and --average are for models that answer with a class")
        report = part_order.run(
            args.models, data=args.data, up=args.up, split=args.split, limit=args.limit, out=args.out
        )
        return Result(report, part_order.text(report))
    try:
        report = study.run(
            args.models, data=args.data, up=args.up, split=args.split, limit=args.limit, out=args.out,
            floating=args.float, average=args.average, **given,
        )  # fmt: skip
    except (KeyboardInterrupt, SystemExit) as stop:
        stop.args = (*stop.args, "the same command goes on where it was")
        raise
    return Result(report, study.text(report))


def _dense(models: list[str]) -> bool:
    """Whether a bundle of parts is to be studied."""
    from asp_neuro.model.points import is_dense
    from asp_neuro.runtime import deployment
    from asp_neuro.studies.subjects import is_bundle

    return bool(models) and is_bundle(models[0]) and is_dense(deployment.open_bundle(models[0]).bundle.model)


def robustness_arguments(parser: argparse.ArgumentParser) -> None:
    read_arguments(parser)
    parser.add_argument("--draws", type=whole(1), default=3, metavar="N", help="of every corruption (default 3)")
    parser.add_argument("--seed", type=whole(0), default=0, metavar="N", help="of the corruptions (default 0)")
    parser.add_argument(
        "--out", type=Path, default=Path("study-robustness"), metavar="DIR", help="default ./study-robustness"
    )


def robustness(args: argparse.Namespace) -> Result:
    """Learned against fixed order on clouds with fewer points, turned, jittered."""
    from asp_neuro.studies import robustness as study

    if _dense(args.models):
        from asp_neuro.studies import part_robustness

        report = part_robustness.run(
            args.models, draws=args.draws, seed=args.seed, data=args.data, up=args.up, split=args.split,
            limit=args.limit, out=args.out,
        )  # fmt: skip
        return Result(report, part_robustness.text(report))
    report = study.run(
        args.models or ["compact"], draws=args.draws, seed=args.seed, data=args.data, up=args.up, split=args.split,
        limit=args.limit, out=args.out,
    )  # fmt: skip
    return Result(report, study.text(report))


def halves_arguments(parser: argparse.ArgumentParser) -> None:
    bundle_argument(parser)
    data_arguments(parser)
    sample_arguments(parser)
    parser.add_argument("--repeats", type=whole(1), default=200, metavar="N", help="random halves (default 200)")
    parser.add_argument("--seed", type=whole(0), default=0, metavar="N", help="of the halves (default 0)")
    parser.add_argument("--out", type=Path, default=Path("study"), metavar="DIR", help="default ./study")


def halves(args: argparse.Namespace) -> Result:
    """A bundle's certificate made again on random halves of a split, and counted on the others."""
    from asp_neuro.studies import halves as study

    if (name := bundle_name(args)) is not None and _dense([name]):
        from asp_neuro.studies import part_halves

        report = part_halves.run(
            name, data=args.data, up=args.up, split=args.split, limit=args.limit, repeats=args.repeats,
            seed=args.seed, out=args.out,
        )  # fmt: skip
        return Result(report, part_halves.text(report))
    report = study.run(
        name, data=args.data, up=args.up, split=args.split, limit=args.limit, repeats=args.repeats,
        seed=args.seed, out=args.out,
    )  # fmt: skip
    return Result(report, study.text(report))


def beam_arguments(parser: argparse.ArgumentParser) -> None:
    data_arguments(parser)
    sample_arguments(parser)
    parser.add_argument("--recipe", metavar="NAME|FILE", help="what to train (default rooms)")
    parser.add_argument("--seeds", type=seed_list, metavar="N,N,..", help="default 0,1,2")
    parser.add_argument("--epochs", type=whole(1), metavar="N", help="another number of epochs than the recipe's")
    parser.add_argument(
        "--out", type=Path, default=Path("study-beam"), metavar="DIR", help="models and results; default ./study-beam"
    )


def beam(args: argparse.Namespace) -> Result:
    """Beams and columns in crops of 1 m and 2 m, with and without reweighting."""
    if args.up is not None:
        raise UsageError("--up: rooms are read with y up; leave it out")
    from asp_neuro.studies import beam as study

    given = {key: value for key in ("recipe", "seeds", "epochs", "chunks") if (value := getattr(args, key)) is not None}
    try:
        report = study.run(data=args.data, split=args.split, limit=args.limit, out=args.out, **given)
    except (KeyboardInterrupt, SystemExit) as stop:
        stop.args = (*stop.args, "the same command goes on where it was")
        raise
    return Result(report, study.text(report))


def fovea_arguments(parser: argparse.ArgumentParser) -> None:
    read_arguments(parser)
    parser.add_argument("--seeds", type=seed_list, metavar="N,N,..", help="trainings of each model (default 0,1,2)")
    parser.add_argument("--steps", type=whole(1), metavar="N", help="batches of 64 images a training (default 4000)")
    parser.add_argument(
        "--quick", action="store_true", help="one seed, 40 steps: to see that it runs, not what comes out"
    )
    parser.add_argument(
        "--out", type=Path, default=Path("study-fovea"), metavar="DIR", help="models and results; default ./study-fovea"
    )


def fovea(args: argparse.Namespace) -> Result:
    """The paper's analog foveated transformer and its dense control, beside a spiking model of images."""
    from asp_neuro.studies import fovea as study

    usual = study.QUICK if args.quick else study.Asked()
    asked = study.Asked(args.seeds or usual.seeds, args.steps or usual.steps)
    try:
        report = study.run(
            study.check_models(args.models), asked, data=args.data, split=args.split, limit=args.limit, out=args.out
        )
    except (KeyboardInterrupt, SystemExit) as stop:
        stop.args = (*stop.args, "the same command goes on with the trainings that are missing")
        raise
    return Result(report, study.text(report))


def table_arguments(parser: argparse.ArgumentParser) -> None:
    """What the tables of given models read."""
    read_arguments(parser)
    _table_output(parser)


def seeds_arguments(parser: argparse.ArgumentParser) -> None:
    read_arguments(parser)
    _table_trainings(parser)
    _table_output(parser)


def trained_arguments(parser: argparse.ArgumentParser) -> None:
    """What the tables that train their models ask for."""
    data_arguments(parser)
    sample_arguments(parser)
    _table_trainings(parser)
    _table_output(parser)


def budget_arguments(parser: argparse.ArgumentParser) -> None:
    trained_arguments(parser)
    parser.add_argument("--chunks", type=chunk_list, metavar="M,M,..", help="numbers of chunks; default 4,8,16,32")


def chunk_list(text: str) -> tuple[int, ...]:
    """An argument type: whole numbers from 2 with commas between them, rising."""
    chunks = tuple(whole(2)(word.strip()) for word in text.split(","))
    if sorted(set(chunks)) != list(chunks):
        raise argparse.ArgumentTypeError(f"'{text}' does not rise from number to number")
    return chunks


def _table_trainings(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--recipe", metavar="NAME|FILE", help="what to train (default compact)")
    parser.add_argument("--seeds", type=seed_list, metavar="N,N,..", help="default 0,1,2")
    parser.add_argument("--epochs", type=whole(1), metavar="N", help="another number of epochs than the recipe's")


def _table_output(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--threshold", type=float, metavar="X", help="exit at margin X (default: that of the certificate, or 0.30)"
    )
    parser.add_argument("--out", type=Path, metavar="DIR", help="models and results (default ./study)")


def table_of(name: str) -> Callable[[argparse.Namespace], Result]:
    """The function of `asp-neuro study NAME`."""

    def run(args: argparse.Namespace) -> Result:
        """One table of the paper, on models of ours."""
        from asp_neuro.studies.tables import run as tables
        from asp_neuro.studies.tables.reading import Where

        where, out = Where(args.data, args.up, args.split, args.limit, args.threshold), args.out or tables.OUT
        models = getattr(args, "models", [])
        if name == "exits" and _dense(models):
            from asp_neuro.studies import part_exits

            if args.threshold is not None:
                raise UsageError("--threshold is for models that answer with a class; here all thresholds are told")
            report = part_exits.run(models, data=args.data, up=args.up, split=args.split, limit=args.limit, out=out)
            return Result(report, part_exits.text(report))
        given = {
            key: value
            for key in ("recipe", "seeds", "epochs", "chunks")
            if (value := getattr(args, key, None)) is not None
        }
        if models and given:
            raise UsageError(f"--{next(iter(given))} is for training; with models given there is none")
        if models or (name in tables.READERS and name != "seeds"):
            report = tables.read_models(name, models or ["compact"], where, out)
        else:
            try:
                report = tables.train_models(name, tables.Asked(**given), where, out)
            except (KeyboardInterrupt, SystemExit) as stop:
                stop.args = (*stop.args, "the same command goes on where it was")
                raise
        return Result(report, tables.text(report))

    return run


def _table(name: str, summary: str, example: str, arguments: Callable[[argparse.ArgumentParser], None]) -> Verb:
    return Verb(name, summary, f"asp-neuro study {name}{example}", arguments, table_of(name))


TABLES: tuple[Verb, ...] = (
    _table("exits", "when a model stops, and how right it is then (J.6)", " compact", table_arguments),
    _table("calibration", "probabilities at the exit against the whole budget (J.7)", " compact", table_arguments),
    _table("classes", "observations and accuracy class by class (J.9)", " compact", table_arguments),
    _table("seeds", "whether other trainings look at the same places (J.2)", " --seeds 0,1", seeds_arguments),
    _table("budget", "trainings with M = 4, 8, 16, 32 chunks (J.11)", " --seeds 0", budget_arguments),
    _table("descriptors", "policies without one of the descriptors (J.11)", " --seeds 0", trained_arguments),
    _table("fixed", "learned against fixed order at equal capacity (J.4)", " --seeds 0", trained_arguments),
)
