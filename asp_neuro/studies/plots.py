"""Pictures, made headless."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from asp_neuro import files
from asp_neuro.certify import Certificate, Recording, tally_at
from asp_neuro.libraries import demand
from asp_neuro.model.exit import NEVER, ExitRule, first_crossing
from asp_neuro.model.look import Answer
from asp_neuro.model.rules import TRUTH
from asp_neuro.runtime.energy import Estimate
from asp_neuro.scenes.cloud import Chunks
from asp_neuro.scenes.image import Gaze, Images, all_glimpses, maps

BLUE, ORANGE, GREEN, GREY = "#1b6ca8", "#d1495b", "#3a7d44", "#7a7a7a"
RULE_COLOURS = {
    "learned": BLUE, "random": ORANGE, "fps_order": GREEN, "oracle": GREY,
    "centre_out": GREEN, "brightest": "#c04f9f", "nearest": "#8a6f3f",
}  # fmt: skip


def figure(columns: int, width: float = 5.2, height: float = 3.9) -> tuple[Any, Any]:
    """A figure and its panels, side by side."""
    demand("matplotlib", "a picture")
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    made, axes = pyplot.subplots(1, columns, figsize=(width * columns, height), constrained_layout=True)
    for axis in np.atleast_1d(axes):
        _plain_frame(axis)
    return made, axes


def _plain_frame(axis: Any) -> None:
    axis.spines[["top", "right"]].set_visible(False)
    axis.grid(alpha=0.25, linewidth=0.6)
    axis.set_axisbelow(True)  # bars stand before the lines


def saved(drawn: Any, path: Path) -> Path:
    """Write a figure, and let it go."""
    from matplotlib import pyplot

    with files.writing(path) as file:
        drawn.savefig(file, dpi=150, format=path.suffix[1:])
    pyplot.close(drawn)
    return path


def _legend_above(axis: Any, columns: int) -> None:
    """Outside of the frame, where it hides no line."""
    axis.legend(loc="lower left", bbox_to_anchor=(-0.02, 1.0), ncols=columns, frameon=False, fontsize=8)


def certificate_curve(path: Path, calibration: Recording, found: Certificate) -> Path:
    """Risk and bound against the threshold, coverage below; accuracy against the mean number of observations."""
    drawn, (left, right) = figure(2)
    left.remove()
    upper, lower = left.get_subplotspec().subgridspec(2, 1, height_ratios=(2, 1)).subplots(sharex=True)
    rows = [row for row in found.table if row.risk is not None]
    tau = np.array([row.threshold for row in rows])
    risk = 100.0 * np.array([row.risk or 0.0 for row in rows])
    upper.plot(tau, risk, color=BLUE, label="wrong among certified exits")
    upper.plot(tau, [100.0 * row.bound for row in rows], color=BLUE, linestyle="--", label="its upper bound")
    upper.axhline(100.0 * found.alpha, color=ORANGE, label=f"promised: at most {100.0 * found.alpha:g} %")
    upper.set(ylabel="risk in %", ylim=(0.0, max(300.0 * found.alpha, 1.2 * float(risk.max(initial=0.0)))))
    lower.plot(tau, [100.0 * row.coverage for row in rows], color=GREEN)
    lower.set(xlabel="exit threshold (margin)", ylabel="certified in %\nof the clouds", ylim=(0.0, 104.0))
    if found.certified and found.threshold is not None:
        for axis in (upper, lower):
            axis.axvline(found.threshold, color=GREY, linestyle=":", label=f"certified exit: {found.threshold:.3f}")
    for axis in (upper, lower):
        _plain_frame(axis)
    _legend_above(upper, 2)
    _accuracy_curve(right, calibration, found)
    return saved(drawn, path)


def _accuracy_curve(axis: Any, calibration: Recording, found: Certificate) -> None:
    """All answers, whatever made them stop, over a sweep of thresholds."""
    steps, right = [], []
    n = np.arange(calibration.n)
    for tau in np.linspace(0.0, 0.999, 120):
        crossing = first_crossing(calibration.margins, float(tau))
        stop = np.where(crossing == NEVER, len(calibration.margins) - 1, crossing)
        steps.append(float(stop.mean()) + 1.0)
        right.append(100.0 * float(calibration.correct[stop, n].mean()))
    axis.plot(steps, right, color=BLUE, label="all answers, certified or not")
    if found.certified and found.threshold is not None and found.exit_threshold is None:
        at = tally_at(calibration, found.threshold).mean_observations
        axis.axvline(at, color=GREY, linestyle=":", label=f"certified exit: {at:.2f} observations")
    _legend_above(axis, 2)
    axis.set(xlabel="observations on average", ylabel="right answers in %, calibration split")


def visits(
    path: Path,
    chunks: Chunks,
    answer: Answer,
    classes: tuple[str, ...],
    title: str = "",
    rule: ExitRule | None = None,
) -> Path:
    """One cloud, its points coloured by the observation that first showed them, and the margin as it grew."""
    drawn, (left, right) = figure(2)
    left.remove()
    solid = drawn.add_subplot(left.get_subplotspec(), projection="3d")
    _draw_cloud(drawn, solid, chunks, answer)
    solid.set_title(title or classes[answer.label], fontsize=10)
    _draw_margins(right, answer, classes, rule or ExitRule())
    return saved(drawn, path)


def fixations(
    path: Path,
    images: Images,
    how: Gaze,
    answer: Answer,
    classes: tuple[str, ...],
    title: str = "",
    rule: ExitRule | None = None,
) -> Path:
    """One image with its fixations and what each glimpse covers, what was seen of it, the margin, and the belief."""
    drawn, (left, seen, margins, belief) = figure(4, 3.75, 3.6)
    shown = images.pixels[0].transpose(1, 2, 0)
    extent = (0, how.size, how.size, 0)
    for axis, pixels, name in ((left, shown, title or classes[answer.label]), (seen, seen_of(images, how, answer), "")):
        axis.imshow(pixels.squeeze(), cmap="gray", vmin=0, vmax=255, extent=extent, interpolation="nearest")
        axis.set_axis_off()
        axis.set_title(name or "what it has seen", fontsize=10)
    _draw_fixations(left, how, answer)
    _draw_margins(margins, answer, classes, rule or ExitRule(), beside=False)
    _draw_belief(belief, answer, classes)
    return saved(drawn, path)


def _draw_fixations(axis: Any, how: Gaze, answer: Answer) -> None:
    """The way of the gaze, numbered; a frame is the smallest glimpse of a fixation."""
    from matplotlib import colormaps
    from matplotlib.patches import Rectangle

    at = how.centres[list(answer.order)]
    colours = colormaps["plasma"](np.linspace(0.95, 0.45, max(len(at), 2)))
    axis.plot(*how.centres.T, color="#5f7f9f", marker=".", markersize=2, linestyle="none")
    axis.plot(*at.T, color="white", linewidth=1.0, alpha=0.7)
    width = how.grid * how.scales[0]
    for number, ((x, y), colour) in enumerate(zip(at, colours), start=1):
        frame = (x - width / 2, y - width / 2)
        axis.add_patch(Rectangle(frame, width, width, fill=False, edgecolor=colour, linewidth=1.2))
        axis.text(x, y, str(number), color="black", fontsize=8, ha="center", va="center",
                  bbox={"boxstyle": "circle,pad=0.2", "facecolor": colour, "edgecolor": "none"})  # fmt: skip
    axis.set(xlim=(0, how.size), ylim=(how.size, 0))


def seen_of(images: Images, how: Gaze, answer: Answer) -> np.ndarray:
    """The image as far as its glimpses showed it, each pixel at the finest scale that any of them had there; else 0."""
    size, centres = how.size, how.centres
    out = np.zeros((size, size, images.pixels.shape[1]), dtype=np.uint8)
    for one, scale in reversed(list(zip(maps(images.pixels, how), how.scales))):
        glimpses = all_glimpses(one, scale, how)
        for place in answer.order:
            y, x = divmod(place, how.side)
            wide = glimpses[0, :, y, x].repeat(scale, axis=1).repeat(scale, axis=2).transpose(1, 2, 0)
            left, top = (int(v) - how.grid * scale // 2 for v in centres[place])
            rows, columns = (np.arange(v, v + len(wide)) for v in (top, left))
            inside = [(a >= 0) & (a < size) for a in (rows, columns)]
            out[np.ix_(rows[inside[0]], columns[inside[1]])] = wide[np.ix_(*inside)]
    return out


def _draw_belief(axis: Any, answer: Answer, classes: tuple[str, ...]) -> None:
    """The probabilities of the classes at the stop, the six likeliest."""
    shares = np.asarray(answer.probabilities)
    best = np.argsort(-shares, kind="stable")[:6]
    axis.barh(np.arange(len(best)), shares[best], color=[BLUE if i == answer.label else GREY for i in best])
    axis.set_yticks(np.arange(len(best)), [classes[i] for i in best])
    axis.invert_yaxis()
    axis.grid(axis="y", visible=False)
    axis.set(xlim=(0.0, 1.0), xlabel="probability at the stop")


def _draw_cloud(sheet: Any, axis: Any, chunks: Chunks, answer: Answer) -> None:
    """Points by the observation that first showed them, a colour each; a bar names more than one."""
    from matplotlib import colormaps
    from matplotlib.colors import BoundaryNorm

    x, up, z = chunks.coordinates()[0].T
    seen, n_steps = first_visits(chunks, answer.order), answer.observations
    hidden, looked = seen == 0, seen > 0
    whole = {"depthshade": False, "clip_on": False}  # a long object reaches beyond the frame of a 3D plot
    if hidden.any():
        axis.scatter(x[hidden], z[hidden], up[hidden], c="#c8c8c8", s=4, label="never looked at", **whole)
    if n_steps == 1:
        axis.scatter(x[looked], z[looked], up[looked], c=BLUE, s=9, label="seen at the one observation", **whole)
    else:
        colours = colormaps["viridis_r"].resampled(n_steps)
        norm = BoundaryNorm(np.arange(n_steps + 1) + 0.5, n_steps)
        drawn = axis.scatter(
            x[looked], z[looked], up[looked], c=seen[looked], s=9, cmap=colours, norm=norm, label="_", **whole
        )
        bar = sheet.colorbar(drawn, ax=axis, shrink=0.7, pad=0.02, label="first seen at observation")
        bar.set_ticks(range(1, n_steps + 1, -(-n_steps // 8)))
        bar.minorticks_off()
    if hidden.any() or n_steps == 1:
        below = {"loc": "upper left", "bbox_to_anchor": (0.0, -0.01), "borderaxespad": 0.0}  # clouds fill the frame
        axis.legend(frameon=False, fontsize=8, markerscale=1.5, handletextpad=0.2, **below)
    axis.set_box_aspect((np.ptp(x), np.ptp(z), np.ptp(up)), zoom=1.25)
    axis.set_axis_off()
    axis.view_init(elev=18.0, azim=-60.0)


def _draw_margins(axis: Any, answer: Answer, classes: tuple[str, ...], rule: ExitRule, beside: bool = True) -> None:
    """The margin after each observation, a colour for the class that leads, and the line that it has to cross."""
    steps = np.arange(1, answer.observations + 1)
    margins, labels = np.asarray(answer.margins), np.asarray(answer.labels)
    axis.plot(steps, margins, color="#b5b5b5", linewidth=1.2, zorder=1)
    for number, label in enumerate(dict.fromkeys(answer.labels)):
        at = labels == label
        axis.plot(
            steps[at], margins[at], color=f"C{number}", marker="o", linestyle="none", label=f"{classes[label]} leads"
        )
    if rule.tau is not None:
        name = "certified exit" if rule.certified and rule.kappa is None else "exit"
        axis.axhline(rule.tau, color="black", linewidth=1.0, linestyle="--", label=f"{name} above {rule.tau:.3f}")
    if rule.kappa is not None:
        axis.axhline(rule.kappa, color="black", linewidth=1.0, linestyle=":", label=f"certified above {rule.kappa:.3f}")
    axis.set(xlabel="observation", ylabel="margin of the two best classes", ylim=(0.0, 1.02))
    axis.set_xlim(0.6, max(answer.observations, 4) + 0.4)
    axis.xaxis.get_major_locator().set_params(integer=True)
    axis.set_title(f"{classes[answer.label]}: {answer.exit.value} after {answer.observations}", fontsize=10)
    place = {"loc": "upper left", "bbox_to_anchor": (1.0, 1.0)} if beside else {"loc": "lower right"}
    axis.legend(frameon=False, fontsize=8, **place)


def first_visits(chunks: Chunks, order: tuple[int, ...]) -> np.ndarray:
    """[P] the observation (from 1) that first showed each point of the first cloud; 0: none did."""
    shown = chunks.mask()[0][list(order)]  # [T, P]
    return np.where(shown.any(axis=0), shown.argmax(axis=0) + 1, 0)


def energy_curves(path: Path, found: Estimate) -> Path:
    """Energy against observations by both conventions, and the phase boundary with the model's own points."""
    drawn, (paper, deployed, plane) = figure(3)
    _energy_curve(paper, found, "the paper's float prices, products only")
    _energy_curve(deployed, found.deployed, "the integers that run, and float64 element by element")
    _phase_plane(plane, found)
    return saved(drawn, path)


def _energy_curve(axis: Any, found: Estimate, title: str) -> None:
    k, at = np.arange(1, len(found.curve) + 1), found.usage.taken.observations
    axis.plot(k, found.dense_curve / 1e6, color=GREY, linestyle="--", label="the same, all analog")
    axis.plot(k, found.curve / 1e6, color=BLUE, marker=".", label="with the spiking head")
    if found.float64_at_exit > 0.0:
        products = (found.curve - found.float64_curve) / 1e6
        axis.plot(k, products, color=BLUE, linewidth=1.0, linestyle=":", label="of it products")
        axis.fill_between(k, products, found.curve / 1e6, color=BLUE, alpha=0.1, linewidth=0.0, label="of it float64")
    axis.axhline(found.fixed_order / 1e6, color=GREEN, linewidth=1.0, label="fixed order, whole budget, no policy")
    label = f"at its exit: {found.at_exit / 1e6:.2f} µJ, {at:.2f} observations"
    axis.plot(at, found.at_exit / 1e6, color=ORANGE, marker="*", markersize=13, linestyle="none", label=label)
    axis.set(xlabel="observations", ylabel="µJ a cloud (estimate, 45 nm)", xlim=(0.5, k[-1] + 0.5))
    axis.set_ylim(0.0, 1.5 * max(found.dense_curve[-1], found.fixed_order) / 1e6)  # room for the legend
    ratios = f"head ratio {found.ratios['head']:.2f}x, system ratio {found.ratios['system']:.2f}x"
    axis.set_title(f"{title}\n{ratios}", fontsize=9)
    axis.legend(frameon=True, framealpha=0.95, edgecolor="none", fontsize=8, loc="upper left", ncols=1)


def _phase_plane(axis: Any, found: Estimate) -> None:
    phases = (found.phase, found.deployed.phase)
    a = np.geomspace(min(0.01, *(p.a / 10.0 for p in phases)), max(100.0, *(10.0 * p.a for p in phases)), 400)
    for estimate, name, colour, size in ((found, "paper", BLUE, 18), (found.deployed, "deployed", GREEN, 9)):
        own, prefix = estimate.phase, estimate.prefix_phase
        axis.plot(a, own.boundary(a), color=colour, label=f"φ*, {name}, state carried: κ = {own.kappa:.2f}")
        axis.fill_between(a, 0.0, np.minimum(own.boundary(a), 1.0), color=colour, alpha=0.06, linewidth=0.0)
        if prefix is not None:
            label = f"φ*, {name}, prefix computed again: κ = {prefix.kappa:.2f}"
            axis.plot(a, prefix.boundary(a), color=colour, linestyle="--", linewidth=1.0, label=label)
        label = f"this model, {name}: a = {own.a:.0f}, φ = {own.fraction:.2f}"
        axis.plot(own.a, own.fraction, color=colour, marker="*", markersize=size, linestyle="none", label=label)
    top = 1.6 * max(1.0, *(float(p.boundary(a).max()) for p in phases))  # room for the legend
    axis.set(xscale="log", xlim=(a[0], a[-1]), ylim=(0.0, top))
    axis.set(xlabel="a: analog over spiking cost (estimate)", ylabel="φ: observed share of the budget")
    axis.legend(frameon=True, framealpha=0.95, edgecolor="none", fontsize=8, loc="upper left")


def order_study(path: Path, report: dict[str, Any]) -> Path:
    """Accuracy against observations, per rule; and how far the learned rule is ahead of its rivals."""
    drawn, (left, right) = figure(2)
    steps = np.arange(1, report["budget"] + 1)
    for rule, found in report["rules"].items():
        colour = RULE_COLOURS[rule]
        mean = 100.0 * np.array(found["curve"])
        band = 100.0 * np.array([deviation or 0.0 for deviation in found["curve_spread"]])
        left.plot(steps, mean, color=colour, label=rule, linestyle="--" if rule in TRUTH else "-")
        left.fill_between(steps, mean - band, mean + band, color=colour, alpha=0.18, linewidth=0)
        swept = [(point["observations"], 100.0 * point["accuracy"]) for point in found["sweep"]]
        left.plot(*zip(*swept), color=colour, marker="o", markersize=3.5, linestyle="none")
    left.plot([], [], color="black", marker="o", markersize=3.5, linestyle="none", label="exit at margin 0.2 ... 0.5")
    left.set(xlabel="observations", ylabel=f"right answers in %, {report['split']} split")
    rivals = [rule for rule in report["rules"] if rule != "learned" and rule not in TRUTH]
    for shift, rule in zip(np.linspace(0.96, 1.04, len(rivals)), rivals):
        rows = [row for row in report["paired"] if row["rule"] == rule and row["k"] is not None]
        height, error = (
            100.0 * np.array([row[key] or 0.0 for row in rows]) for key in ("difference", "standard_error")
        )
        at = [row["k"] * shift for row in rows]
        right.errorbar(
            at,
            height,
            yerr=error,
            color=RULE_COLOURS[rule],
            marker="o",
            markersize=4,
            capsize=2.5,
            label=f"of {rule} (± s.e.)",
        )
    right.axhline(0.0, color="black", linewidth=0.8)
    right.set(xlabel="observations", ylabel="learned rule ahead by, in points")
    for axis, place in ((left, "lower right"), (right, "upper right")):
        axis.set_xscale("log", base=2)
        axis.set_xticks(ticks := [k for k in (1, 2, 4, 8, 16, 32, 64) if k <= report["budget"]], map(str, ticks))
        axis.legend(frameon=False, fontsize=8, loc=place)
    return saved(drawn, path)


def robustness_study(path: Path, report: dict[str, Any]) -> Path:
    """Accuracy per corruption for learned and fixed order, and the difference: a panel per budget."""
    budgets = sorted({row["k"] for row in report["corruptions"]})
    drawn, axes = figure(len(budgets))
    axes = np.atleast_1d(axes)
    for axis, k in zip(axes, budgets):
        rows = [row for row in report["corruptions"] if row["k"] == k][::-1]  # the clean one on top
        height = np.arange(len(rows))
        for shift, order, colour in ((0.19, "learned", BLUE), (-0.19, "fixed", GREEN)):
            share, error = (100.0 * np.array([row[key] or 0.0 for row in rows]) for key in (order, f"{order}_spread"))
            axis.barh(height + shift, share, 0.36, xerr=error, color=colour, ecolor=GREY, label=f"{order} order")
        axis.text(102.0, len(rows) - 0.35, "difference (s.e.)", va="center", fontsize=7, color=GREY)
        for place, row in zip(height, rows):
            error_text = "" if row["standard_error"] is None else f" ({100.0 * row['standard_error']:.1f})"
            axis.text(102.0, place, f"{100.0 * row['difference']:+.1f}{error_text}", va="center", fontsize=8)
        axis.set_yticks(height, [row["corruption"] for row in rows])
        axis.grid(axis="y", visible=False)
        axis.set(xlim=(0.0, 128.0), xlabel=f"right answers in %, {report['split']} split", xticks=range(0, 101, 20))
        axis.set_title(f"{k} of {report['budget']} observations", fontsize=10)
    drawn.legend(*axes[0].get_legend_handles_labels(), loc="outside upper left", ncols=2, frameon=False, fontsize=9)
    return saved(drawn, path)


def fovea_study(path: Path, report: dict[str, Any]) -> Path:
    """Accuracy against energy and fixations, and when images stop: analog models, their control, the spiking one."""
    drawn, (left, middle, right) = figure(3)
    colours = {"mean": ORANGE, "gru": GREEN, "dense": GREY, "spiking": BLUE}
    names = {"mean": "foveated, mean", "gru": "foveated, GRU", "dense": "dense control", "spiking": "spiking"}
    for kind, colour in colours.items():
        at = [(1e3 * row["mj"], 100.0 * row["accuracy"]) for row in report["points"] if row["model"] == kind]
        shape = {"marker": "*", "markersize": 13} if kind == "dense" else {"marker": "o", "markersize": 3.5}
        left.plot(*zip(*sorted(at)), color=colour, label=names[kind], **shape)
    left.set(xlabel="energy of an image in uJ (45 nm, the paper's prices)", ylabel="right answers in %", xscale="log")
    styles = {"learned": "-", "random": ":", "centre_out": "--", "oracle": "-."}
    for kind in ("mean", "gru", "spiking"):
        for rule, style in styles.items():
            rows = [row for row in report["anytime"] if (row["model"], row["rule"]) == (kind, rule)]
            curve = [100.0 * row["accuracy"] for row in rows]
            middle.plot([row["k"] for row in rows], curve, color=colours[kind], linestyle=style)
    for rule, style in styles.items():
        middle.plot([], [], color="black", linestyle=style, label={"learned": "own rule"}.get(rule, rule))
    middle.set(xlabel="fixations", ylabel="right answers in %", xticks=range(1, report["budget"] + 1))
    for shift, kind in zip((-0.27, 0.0, 0.27), ("mean", "gru", "spiking")):
        rows = [row for row in report["exits"] if row["model"] == kind]
        right.bar([row["k"] + shift for row in rows], [100.0 * row["share"] for row in rows], 0.25, color=colours[kind])
    right.set(xlabel="fixations until the exit at margin 0.7", ylabel="images in %")
    for axis in (left, middle):
        _legend_above(axis, 4)
    return saved(drawn, path)
