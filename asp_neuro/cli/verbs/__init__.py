"""What the command line can do: a file per verb, a row of `VERBS` each.

A verb's function takes the parsed arguments and returns a `Result`: what `--json` prints, what a person reads, and
the exit code. It raises `AspError` for what the user can mend. Messages and progress go to stderr (`report.say`,
`report.progress`). Heavy libraries are imported inside the verb's function, never at the top of its file.
"""

from __future__ import annotations

from asp_neuro.cli.verbs.audit import audit, audit_arguments
from asp_neuro.cli.verbs.base import Result, Verb, bundle_argument, no_arguments
from asp_neuro.cli.verbs.certify import certify, certify_arguments
from asp_neuro.cli.verbs.check import check, check_arguments
from asp_neuro.cli.verbs.demo import demo, demo_arguments
from asp_neuro.cli.verbs.doctor import doctor, doctor_arguments
from asp_neuro.cli.verbs.energy import energy, energy_arguments
from asp_neuro.cli.verbs.export import export, export_arguments
from asp_neuro.cli.verbs.report import report, report_arguments
from asp_neuro.cli.verbs.run import run, run_arguments
from asp_neuro.cli.verbs.show import models, show
from asp_neuro.cli.verbs.study import (
    TABLES,
    beam,
    beam_arguments,
    fovea,
    fovea_arguments,
    halves,
    halves_arguments,
    order,
    order_arguments,
    robustness,
    robustness_arguments,
    study,
)
from asp_neuro.cli.verbs.train import train, train_arguments
from asp_neuro.cli.verbs.verify import verify, verify_arguments

__all__ = ["STUDIES", "VERBS", "Result", "Verb", "no_arguments"]

STUDIES: tuple[Verb, ...] = (
    Verb("order", "what the order of looking is worth", "asp-neuro study order compact", order_arguments, order),
    Verb(
        "robustness", "what corrupted clouds cost, for learned and fixed order", "asp-neuro study robustness compact",
        robustness_arguments, robustness,
    ),
    Verb(
        "beam", "whether a larger crop finds beams, on built-in rooms (H.3)", "asp-neuro study beam --seeds 0",
        beam_arguments, beam,
    ),
    Verb(
        "fovea", "images: the analog foveated transformer, its dense control, the spiking model (F.3 to F.5)",
        "asp-neuro study fovea clutter --quick --limit 200", fovea_arguments, fovea,
    ),
    *TABLES,
    Verb(
        "halves", "the promise made again on random halves of a split", "asp-neuro study halves compact --limit 400",
        halves_arguments, halves,
    ),
)  # fmt: skip

VERBS: tuple[Verb, ...] = (
    Verb("train", "train a model from a recipe", "asp-neuro train --recipe compact", train_arguments, train),
    Verb("export", "write a trained model as a bundle", "asp-neuro export model.pt", export_arguments, export),
    Verb("certify", "find and store the certified exit", "asp-neuro certify model.net", certify_arguments, certify),
    Verb("run", "answer for a data set or for files", "asp-neuro run --backend=sim --limit 5", run_arguments, run),
    Verb("verify", "compare every engine, bit for bit", "asp-neuro verify --limit 4", verify_arguments, verify),
    Verb("check", "design rules and fit on the chip", "asp-neuro check --hw loihi2", check_arguments, check),
    Verb("energy", "estimate what an answer costs", "asp-neuro energy compact", energy_arguments, energy),
    Verb("audit", "measure what the theory claims", "asp-neuro audit compact", audit_arguments, audit),
    Verb("report", "one page to look at, offline", "asp-neuro report compact", report_arguments, report),
    Verb("show", "print what is inside a bundle", "asp-neuro show model.net", bundle_argument, show),
    Verb("models", "list the bundles that are shipped", "asp-neuro models", no_arguments, models),
    Verb("study", "compare ways to look, on models of your own", STUDIES[0].example, no_arguments, study, STUDIES),
    Verb("demo", "train, export, certify, run and verify on built-in data", "asp-neuro demo", demo_arguments, demo),
    Verb("doctor", "say what is installed and what is missing", "asp-neuro doctor --json", doctor_arguments, doctor),
)
