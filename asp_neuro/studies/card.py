"""Model cards: what a shipped model is, what it reaches, and what it cannot do, from its files and its runs."""

from __future__ import annotations

import datetime
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from asp_neuro.data.samples import Settings
from asp_neuro.heads.spec import STOCK, HeadSpec
from asp_neuro.learn import checkpoint
from asp_neuro.learn.evaluation import whole_accuracy
from asp_neuro.learn.image_examples import ImageExamples
from asp_neuro.learn.image_model import ImageModel
from asp_neuro.learn.training import load_model
from asp_neuro.model.look import Answer
from asp_neuro.model.points import is_dense
from asp_neuro.runtime import deployment, hardware
from asp_neuro.runtime.energy import Estimate
from asp_neuro.scenes.image import Gaze
from asp_neuro.studies import part_card

MODELS = Path(__file__).parents[1] / "models"
BEGIN, END = "<!-- models:begin -->", "<!-- models:end -->"
LIMITS = (
    "No Loihi 2 chip has run it: fit and energy are estimates.",
    "Upright clouds only (`--up` names the axis): it has never seen an object lie down (`asp-neuro study robustness`).",
    "One object a cloud, without background; an object of another class gets one of these names all the same.",
    "The certificate is about clouds like those of the calibration split, and says nothing about others.",
)
IMAGE_LIMITS = (
    "No Loihi 2 chip has run it: fit and energy are estimates.",
    "Bright digits on black, upright, about 20 pixels high, one in an image; anything else gets one of these names all "
    "the same.",
    "The certificate is about images like those of the calibration split, and says nothing about others; photographs "
    "and empty images are called unfamiliar, digits drawn otherwise may not be.",
    "The digits of train, validation, calibration and test are different ones; where they lie and what clutters them "
    "is drawn by the same rule.",
)
PHOTO_LIMITS = (
    IMAGE_LIMITS[0],
    "Ten kinds of things of Imagenette, one in the middle square of a photograph; anything else gets one of these "
    "names all the same.",
    "The certificate is about photographs like those of the calibration split, and says nothing about others.",
    "The descriptors, and the maps that glimpses are cut from, are sums over all pixels: few fixations save "
    "the encoder's work, not the camera's.",
)
ALIGNED = "Not trained on objects turned about the up axis either: ModelNet stores them aligned."
ON_AXES = "Free of azimuth, not of tilt: most clouds turned in any direction get a wrong answer, some certified."
MODELNET = (
    "The official test split differs from the train split, from which calibration was carved (class mix: total "
    "variation about 0.2): the risk on it is shown above and is no test of the promise.",
)


def stages(name: str) -> list[dict[str, Any]]:
    """The trainings that led to a checkpoint, first one first."""
    stored = checkpoint.read(checkpoint.find(name))
    before = stored["recipe"]["train"].get("start", "")
    return [*(stages(before) if before else []), {**stored["report"], "epochs": stored["recipe"]["train"]["epochs"]}]


def percent(share: float | None, digits: int = 1) -> str:
    return "-" if share is None else f"{100.0 * share:.{digits}f} %"


def training(name: str) -> dict[str, str]:
    trained = stages(name)
    last = trained[-1]
    minutes = ", ".join(f"`{t['recipe']}` {t['epochs']} epochs, {t['seconds'] / 60:.0f} min" for t in trained)
    return {
        "training, wall clock, beside other work": f"{minutes}; seed {last['seed']}",
        "parameters": f"{last['parameters']:,}",
        "validation, full budget": percent(last["accuracy_at"]["M"])
        if last.get("unseen", True)
        else "trained on, once every choice was made",
    }


def results(name: str, data: str | None) -> dict[str, str]:
    """The test split at full budget and at the certified exit, and what follows from the latter."""
    deployed = deployment.open_bundle(name)
    b, certificate = deployed.bundle, deployed.certificate
    clouds = deployment.clouds_of(deployed, data, "test", None, None)
    rule, promise = deployment.exit_rule(deployed)
    full, _ = deployment.run(deployed, clouds, deployment.exit_rule(deployed, no_exit=True)[0])
    early, answers = deployment.run(deployed, clouds, rule, exact=True)
    cores = hardware.check(b.head, b.model.mixer, hardware.chip("loihi2"), b.golden.membranes, b.golden.spikes)
    cost = Estimate(b.model, deployment.usage(deployed, clouds, rule), hardware.prices())
    error = percent(np.sqrt(full["accuracy"] * (1.0 - full["accuracy"]) / full["n"]))
    certified, wrong = percent(early["certified_share"]), percent(early["certified_risk"])
    what = "fixations" if isinstance(deployed.settings, Gaze) else "chunks"
    read = f"{early['mean_observations']:.2f} of {early['budget']} {what}"
    share = percent(early["mean_observations"] / early["budget"], 0)
    tested = "none"
    if certificate is not None:
        n, kind = certificate.n, b.model.scene.kind
        tested = f"{certificate.n_errors} wrong of {certificate.n_accepted} accepted on {n} {kind}s"
    return {
        "**test, full budget**": f"**{percent(full['accuracy'], 2)}** of {full['n']} (standard error {error})",
        "**test, certified exit**": f"**{percent(early['accuracy'], 2)}** after {read} ({share} of the budget)",
        "certified exits on test": f"{certified}, {wrong} of them wrong",
        "promise": promise,
        "calibration": tested,
        **of_images(name, deployed.settings, clouds, answers),
        "spikes proven unmoved by rounding": f"{percent(early['preserved_share'])} of the answers at the exit; "
        f"equal to exact arithmetic: {percent(early['equal_share'])}",
        "firing rate": ", ".join(percent(rate, 0) for rate in cost.usage.taken.rates),
        **schedule(b.head),
        "fit on Loihi 2 (estimate)": fit(cores),
        "energy of an observation (estimate, on average at the exit)": per_look(cost, early["mean_observations"]),
        "energy (estimate, 45 nm, the paper's float prices)": energy(cost),
        "energy (estimate, 45 nm, the integers that run)": f"{energy(cost.deployed)}; "
        f"{percent(cost.deployed.float64_at_exit / cost.deployed.at_exit, 0)} of it in float64, element by element",
    }


def of_images(name: str, how: Settings, clouds: Any, answers: Sequence[Answer]) -> dict[str, str]:
    """What is read of an image at the exit; and what the dense control makes of whole images, if there is one."""
    if not isinstance(how, Gaze):
        return {}
    cell = how.scales[0]
    shares = [seen_share(how, answer.order) for answer in answers]
    rows = {"read at the exit": f"{percent(float(np.mean(shares)), 0)} of an image in cells of {cell} x {cell} pixels"}
    model = load_model(checkpoint.find(name))[0]
    if isinstance(model, ImageModel) and model.at_once:
        model.deploy = model.has_scales
        right = whole_accuracy(model, ImageExamples(clouds, how))
        used = [p for key, p in model.named_parameters() if key.startswith(("encoder.", "whole."))]
        n = sum(p.numel() for p in used) - sum(p.numel() for p in model.encoder.embedding.parameters())
        what = f"the same convolutions over the whole image, {n:,} parameters, learned together"
        rows["dense control"] = f"{percent(right, 2)} on test ({what})"
    return rows


def seen_share(how: Gaze, order: Sequence[int]) -> float:
    """The share of an image's pixels that lie in the finest windows of these fixations."""
    seen, half = np.zeros((how.size, how.size), dtype=bool), how.grid * how.scales[0] // 2
    for x, y in how.centres[list(order)]:
        seen[max(y - half, 0) : y + half, max(x - half, 0) : x + half] = True
    return float(seen.mean())


def schedule(head: HeadSpec) -> dict[str, str]:
    """How a free-running head is clocked; a ticked one has no schedule."""
    if head.form != STOCK:
        return {}
    words = f"N = {head.steps} time steps an observation, read p = {head.read_after} steps after the pulse arrived"
    return {"schedule of the head": words}


def fit(found: hardware.FitReport) -> str:
    groups = max(core.groups for core in found.cores_used)
    return f"{found.cores} cores, {groups} neuron groups on a core, {'fits' if found.fits else 'does not fit'}"


def per_look(cost: Estimate, observations: float) -> str:
    paper, integers = (one.at_exit / observations / 1e6 for one in (cost, cost.deployed))
    return f"{paper:.2f} uJ by the paper's float prices, {integers:.2f} uJ by the integers that run"


def energy(cost: Estimate) -> str:
    """By one convention."""
    ratios = f"head ratio {cost.ratios['head']:.2f}x, system ratio {cost.ratios['system']:.2f}x"
    return f"{cost.at_exit / 1e6:.2f} uJ at the exit, {cost.curve[-1] / 1e6:.2f} uJ at full budget; {ratios}"


def card(name: str, data: str | None) -> str:
    deployed = deployment.open_bundle(name)
    b, dense = deployed.bundle, is_dense(deployed.bundle.model)
    found, below = part_card.results(name, data) if dense else (results(name, data), "")
    rows = {
        "model": f"`{deployed.sha256[:16]}`, recipe `{b.recipe['name']}`",
        "data": f"{b.recipe['data']['name']}, {len(b.classes)} classes, {inputs_of(deployed.settings)}",
        "licence of the data": b.licence or "made by this project, free",
        **training(name),
        **found,
    }
    day = datetime.datetime.now(datetime.timezone.utc).date()
    limits = part_card.LIMITS if dense else limits_of(name, deployed.settings)
    lines = [
        f"# {name}",
        "",
        f"Written by `python train/card.py {name}` on {day}; on the integer grid throughout.",
    ]
    lines += ["", look(name), "", "| | |", "|---|---|", *(f"| {key} | {value} |" for key, value in rows.items())]
    lines += ["", below] if below else []
    return "\n".join([*lines, "", "Known limits:", "", *(f"- {limit}" for limit in limits)])


def inputs_of(how: Settings) -> str:
    if not isinstance(how, Gaze):
        return f"{how.n_points} points a cloud"
    widths = ", ".join(str(scale * how.grid) for scale in how.scales)
    return (
        f"{how.size} x {how.size} pixels, {how.budget} of {how.n_places} fixation points, glimpses {widths} pixels "
        f"wide in {how.grid} x {how.grid} cells"
    )


def limits_of(name: str, how: Settings) -> Sequence[str]:
    if isinstance(how, Gaze):
        return IMAGE_LIMITS if how.channels == 1 else PHOTO_LIMITS
    if not name.startswith("modelnet"):
        return LIMITS
    return [*LIMITS, ON_AXES if how.axes else ALIGNED, *MODELNET]


def look(name: str) -> str:
    """Where the page to look at is."""
    return f"To look at it: [reports/{name}.html](../../reports/{name}.html), once `make reports` has written it."


def rows_of(text: str) -> dict[str, str]:
    """The table of a card, back again."""
    cells = [line.strip("|").split("|") for line in text.splitlines() if line.startswith("| ")]
    return {row[0].strip(" *"): row[1].strip() for row in cells if len(row) == 2 and row[0].strip()}


def table_of_cards() -> str:
    """One line for each card."""
    columns = ("parameters", "test, full budget", "test, certified exit", "certified exits on test",
               "spikes proven unmoved by rounding")  # fmt: skip
    lines = [f"| model | {' | '.join(columns)} |", "|---" * (len(columns) + 1) + "|"]
    for path in sorted(MODELS.glob("*.md")):
        rows = rows_of(path.read_text(encoding="utf-8"))
        cells = " | ".join(rows[column].split(";")[0] for column in columns)
        lines.append(f"| [{path.stem}](../asp_neuro/models/{path.name}) | {cells} |")
    return "\n".join(lines)


def numbers_of_cards() -> str:
    """A sentence for each card, for the front page."""
    lines = []
    for path in sorted(MODELS.glob("*.md")):
        rows = rows_of(path.read_text(encoding="utf-8"))
        early, full = rows["test, certified exit"], rows["test, full budget"]
        early = early if "mIoU" in early else early.replace(" after", " right after")
        lines.append(
            f"- [{path.stem}](asp_neuro/models/{path.name}): {early}; {full.partition(' (')[0]} at full budget"
        )
    return "\n".join(lines)


def between_marks(page: str, text: str) -> str:
    """The page with `text` between its two marks."""
    before, rest = page.split(BEGIN)
    return f"{before}{BEGIN}\n{text}\n{END}{rest.split(END)[1]}"
