"""The page: one file that opens offline, with its style, its script and its data inside. A function per block."""

from __future__ import annotations

import shlex
from html import escape
from importlib import resources
from pathlib import Path
from typing import Any

import numpy as np

from asp_neuro import files
from asp_neuro.errors import CheckFailed
from asp_neuro.report import to_json
from asp_neuro.studies.page.contents import ROBUST, Contents
from asp_neuro.studies.page.curves import Axes, Line, bars, lines
from asp_neuro.studies.page.pictures import SCENES

LARGEST = 6_000_000  # bytes


def page(found: Contents) -> str:
    """The whole file."""
    blocks = (_summary, _objects, _accuracy, _exits, _promise, _energy, _robust, _fit, _audits, _repeat)
    data = {"classes": found.classes, "objects": found.objects, "tau": found.rule.tau}
    told = to_json(data).replace("<", "\\u003c")  # nothing in it may end the script
    return (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f"<title>{escape(found.name)}: report</title>\n<style>\n{_file('style.css')}</style></head>\n<body><main>\n"
        + "\n".join(text for block in blocks if (text := block(found)))
        + f'\n</main><script type="application/json" id="data">{told}</script>\n<script>\n{_file("viewer.js")}</script>'
        "</body></html>\n"
    )


def _file(name: str) -> str:
    return (resources.files("asp_neuro.studies.page") / name).read_text(encoding="utf-8")


def _section(title: str, inside: str, wide: bool = False) -> str:
    return f"<section{' class=wide' if wide else ''}><h2>{escape(title)}</h2>\n{inside}</section>"


def _table(headers: tuple[str, ...], rows: list[tuple[Any, ...]]) -> str:
    head = "".join(f"<th>{escape(name)}</th>" for name in headers)
    body = "".join("<tr>" + "".join(f"<td>{_cell(value)}</td>" for value in row) + "</tr>" for row in rows)
    return f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"


def _cell(value: Any) -> str:
    if value is None:
        return "–"
    return f"{value:.4g}" if isinstance(value, float) else escape(str(value))


def _percent(value: float | None) -> str | None:
    return None if value is None else f"{100.0 * value:.1f} %"


def _uses(found: Contents) -> str:
    """The mean number of looks at the exit, where it is known."""
    return "" if found.stops is None else f"{float(found.stops.observations.mean()):.2f}"


def _tiles(found: Contents) -> list[tuple[str, str]]:
    tiles = []
    if found.record is not None and found.stops is not None:
        right, whole = found.stops.at(found.record.score).mean(), found.record.score[-1].mean()
        tiles += [
            (f"{found.measure} at the exit", f"{100.0 * float(right):.1f} %"),
            ("looks taken", f"{_uses(found)} of {found.budget}"),
            (f"{found.measure} after all looks", f"{100.0 * float(whole):.1f} %"),
            ("exits before the end", f"{100.0 * float(found.stops.crossed.mean()):.1f} %"),
        ]
    if found.energy is not None:
        tiles.append((f"energy per {found.thing} (estimate)", f"{found.energy.deployed.at_exit / 1e6:.2f} µJ"))
    return [*tiles, ("Loihi 2 cores (estimate)", str(found.fit.cores))]


def _summary(found: Contents) -> str:
    cells = "".join(
        f'<div class="tile"><b>{escape(value)}</b><span>{escape(name)}</span></div>' for name, value in _tiles(found)
    )
    where = "" if found.about.at_hand or found.about.split in found.about.source else f", {found.about.split} split"
    scenes = f"{found.about.n} {found.thing}{'s' * (found.about.n != 1)}"
    about = (
        f"An active spiking network (scenes: {found.scene}, task: {found.task}, {len(found.classes)} labels). It "
        f"looks at one place after the other, at most {found.budget} times, chooses where to look next by what it "
        f"believes, and stops when it is sure. Here: {scenes}, {found.about.source}{where}."
    )
    words = f"<h1>{escape(found.name)}</h1><p>{escape(about)}</p>"
    return f'<header class="wide">{words}<div class="tiles">{cells}</div></header>'


def _objects(found: Contents) -> str:
    if not found.objects:
        return _section("The objects themselves", "<p>There is none to show.</p>", wide=True)
    passed = ""
    if found.scene not in SCENES:
        passed = (
            f"<p class=\"small\">Scenes of kind '{escape(found.scene)}' have no picture yet; their beliefs have.</p>"
        )
    bars_of = "what the network believes after that many looks"
    if found.task == "parts":
        bars_of = "the share of the points that gets each label after that many looks"
    return _section(
        "The objects themselves",
        f"""<div id="strip" role="listbox" aria-label="objects"></div>{passed}
<div class="viewer">
<div class="stage"><canvas id="cloud" aria-label="the object; drag to turn"></canvas>
<div class="tools"><button id="turn" type="button" aria-pressed="true">turning</button>
<button id="paint" type="button" hidden>by look</button></div></div>
<div class="side"><h3 id="title"></h3><p id="state" class="small"></p>
<div class="looks"><button id="play" type="button">play</button>
<input id="look" type="range" min="0" value="0" step="1" aria-label="looks taken"><output id="count"></output></div>
<div id="scale" aria-hidden="true"></div>
<div id="bars"></div>
<svg id="margins" viewBox="0 0 300 92" role="img"><title>margin after each look</title></svg></div></div>
<p class="small">{_legend(found)} Bars: {bars_of}; the little curve is its margin, the dashed line where it stops.
Looks after its exit are shown too: in use they do not happen.</p>""",
        wide=True,
    )


def _legend(found: Contents) -> str:
    """What the colours of a picture mean."""
    if found.scene == "image":
        return "Frames are glimpses, in the colour of the look that took them: blue first, red last."
    by_look = "points take the colour of the look that first saw them (blue first, red last), grey ones are unseen"
    if found.task == "parts":
        return f"Drag to turn. Points have the colour of their label; the button changes that: {by_look}."
    return f"Drag to turn: {by_look}."


def _accuracy(found: Contents) -> str:
    seen = found.record
    if seen is None:
        return ""
    k = np.arange(1, seen.n_steps + 1).tolist()
    curves = {"learned order": seen.score.mean(axis=1)} | {
        name: rival.score.mean(axis=1) for name, rival in found.rivals.items()
    }
    low = np.floor(10 * float(min(y.min() for y in curves.values()))) / 10
    axes = Axes("looks", "share right" if found.measure == "right" else found.measure, (1, seen.n_steps), (low, 1.0))
    drawn = [Line(name, k, y.tolist(), kind) for (name, y), kind in zip(curves.items(), "abcd", strict=False)]
    mark = None if found.stops is None else (float(_uses(found)), f"mean exit {_uses(found)}")
    return _section("Accuracy against looks", lines(axes, drawn, mark))


def _exits(found: Contents) -> str:
    if found.stops is None:
        return ""
    shares = np.bincount(found.stops.step, minlength=found.budget) / len(found.stops.step)
    axes = Axes(
        "looks at the exit", f"share of the {found.thing}s", (0.5, found.budget + 0.5), (0.0, float(shares.max()))
    )
    spent = float((~found.stops.crossed).mean())
    last = found.rule.most(found.budget)
    how = "spend the whole budget" if last == found.budget else f"have not crossed after {last} looks and end there"
    note = f"{100.0 * spent:.1f} % {how} (the last bar has them)."
    return _section("When it stops", f"{bars(axes, shares.tolist(), last - 1)}<p class=small>{note}</p>")


def _promise(found: Contents) -> str:
    certificate = found.certificate
    words = f"<p>{escape(found.exit)}</p>"
    if certificate is None:
        return _section("The promise", words + point_promise(found))
    rows = [row for row in certificate.table if row.risk is not None]
    coverage = [row.coverage for row in rows]
    top = max([2 * certificate.alpha, *(row.risk or 0.0 for row in rows)])
    axes = Axes(f"share of the {found.thing}s that exit", "share wrong among them", (0.0, 1.0), (0.0, min(top, 1.0)))
    drawn = [
        Line(f"wrong, on the calibration {found.thing}s", coverage, [row.risk or 0.0 for row in rows]),
        Line("promised at most", [0.0, 1.0], [certificate.alpha] * 2, "b"),
    ]
    mark = (certificate.coverage, "certified") if certificate.certified else None
    return _section("The promise", f"{words}{lines(axes, drawn, mark)}")


def point_promise(found: Contents) -> str:
    """The curve of the promise for points, where there is one."""
    promise = None if found.points is None else found.points.mean
    rows = [] if promise is None else [row for row in promise.table if row.risk is not None]
    if promise is None or not rows:
        return ""
    risks = [row.risk or 0.0 for row in rows]
    top = min(max(2 * promise.alpha, *risks), 1.0)
    axes = Axes("share of the points that are accepted", "share wrong among them", (0.0, 1.0), (0.0, top))
    drawn = [
        Line("wrong, on the calibration shapes", [row.accepted for row in rows], risks),
        Line("promised at most", [0.0, 1.0], [promise.alpha] * 2, "b"),
    ]
    return lines(axes, drawn, (promise.accepted, "certified") if promise.certified else None)


def _energy(found: Contents) -> str:
    estimate = found.energy
    if estimate is None:
        return _section("Energy (estimate)", "<p>The costs of this kind are not known.</p>")
    k = np.arange(1, found.budget + 1).tolist()
    curves = [estimate.deployed.curve / 1e6, estimate.curve / 1e6]
    axes = Axes("looks", f"µJ per {found.thing}", (1, k[-1]), (0.0, max(float(curve.max()) for curve in curves)))
    drawn = [
        Line("integers that run", k, curves[0].tolist()),
        Line("the paper's float prices", k, curves[1].tolist(), "b"),
    ]
    at = float(estimate.usage.taken.observations)
    picture = lines(axes, drawn, (at, f"mean exit {at:.2f}"))
    note = "An estimate: operations counted, times a price at 45 nm. No chip was measured."
    return _section("Energy (estimate)", f"{picture}<p class=small>{note}</p>{_neurobench(found)}")


def _neurobench(found: Contents) -> str:
    """The head's numbers under the names of NeuroBench."""
    named = None if found.audit is None else found.audit.get("neurobench")
    if not named or not named.get("synaptic_operations"):
        return ""
    operations = named["synaptic_operations"]
    rows: list[tuple[Any, ...]] = [
        ("footprint of the head", f"{named['footprint']:,} bytes"),
        ("connection sparsity", float(named["connection_sparsity"])),
        ("activation sparsity", float(named["activation_sparsity"])),
        (f"effective MACs per {found.thing}", f"{operations['Effective_MACs']:,.0f}"),
        (f"effective ACs per {found.thing}", f"{operations['Effective_ACs']:,.0f}"),
    ]
    return _table(("NeuroBench", "at the exit"), rows)


def _robust(found: Contents) -> str:
    if not found.robust:
        return ""
    n = min(ROBUST, found.about.n)
    if "certified_share" not in found.robust[0]:
        body: list[tuple[Any, ...]] = [(row["corruption"], _percent(row["accuracy"])) for row in found.robust]
        return _section("On corrupted clouds", _table(("corruption", "right, all looks"), body))
    headers = ("corruption", "right, all looks", "unfamiliar", "certified", "wrong among certified")
    keys = ("accuracy", "unfamiliar_share", "certified_share", "wrong_among_certified")
    body = [(row["corruption"], *(_percent(row[key]) for key in keys)) for row in found.robust]
    note = (
        f"The first {n} clouds, each changed once. A cloud that is called unfamiliar gets an answer and no promise; "
        "the promise is about clouds like those of the calibration."
    )
    return _section("On corrupted clouds", f"{_table(headers, body)}<p class=small>{note}</p>", wide=True)


def _fit(found: Contents) -> str:
    verdict = "fits" if found.fit.fits else "does not fit"
    rows: list[tuple[Any, ...]] = [(v.rule, v.layer, v.value, v.limit) for v in found.fit.violations]
    broken = _table(("rule", "layer", "value", "limit"), rows) if rows else ""
    text = f"The spiking head {verdict} on Loihi 2 by an estimate from public figures: {found.fit.cores} of its cores."
    return _section("Fit", f"<p>{escape(text)}</p>{broken}", wide=True)


def _audits(found: Contents) -> str:
    if found.audit is None:
        return ""
    headers = ("claim", "theorem", "predicted", "measured", "95 % interval", "null", "paper", "verdict")
    body = "".join(_audit_row(row, headers) for row in found.audit["rows"])
    head = "".join(f"<th>{name}</th>" for name in headers)
    words = {"holds": "hold", "fails": "fail", "unclear": "unclear"}
    counts = " ".join(f'<span class="chip {v}">{found.audit[v]} {many}</span>' for v, many in words.items())
    missing = "".join(f'<p class="small">Left out: {escape(words)}</p>' for words in found.audit.get("left_out", ()))
    said = "What the theory claims, measured here; unclear: so many cannot tell. docs/audits.md says more."
    table = f"<table class=audit><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"
    return _section("Audits", f"<p>{said}</p><p>{counts}</p>{table}{missing}", wide=True)


def _audit_row(row: dict[str, Any], headers: tuple[str, ...]) -> str:
    """On a phone a row is a card: its cells are named, and those that hold nothing are not shown."""
    claim = f"{escape(row['claim'])}<small>{escape(row['note'])}</small>"
    interval = None if row["low"] is None else f"{row['low']:.4g} .. {row['high']:.4g}"
    values = (row["theorem"], row["predicted"], row["measured"], interval, row["null"], row["paper"])
    cells = [claim, *map(_cell, values), f'<span class="chip {row["verdict"]}">{row["verdict"]}</span>']
    kinds = ["", *(" class=none" if value is None else "" for value in values), ""]
    named = zip(headers, kinds, cells, strict=True)
    return "<tr>" + "".join(f'<td data-name="{name}"{kind}>{cell}</td>' for name, kind, cell in named) + "</tr>"


def commands(found: Contents) -> list[tuple[str, str]]:
    """What is shown, and what to type for the same numbers."""
    name, data = shlex.quote(found.name), found.about.options
    run = f"{data} {found.about.exit_options}".strip()
    asked = " " + found.about.exit_options.replace("--uncertified", "").replace("--no-exit", "")  # what others know too
    if found.about.at_hand:
        told = [("the answers, and this page", f"asp-neuro run {name} {run} --report report.html")]
    else:
        told = [
            ("accuracy, looks, exits", f"asp-neuro run {name} {run}"),
            ("accuracy after k looks, other orders", f"asp-neuro study order {name} {data}"),
            ("when it stops", f"asp-neuro study exits {name} {data}{asked}"),
            ("energy", f"asp-neuro energy {name} {run}"),
            ("this page", f"asp-neuro report {name} {run} --out report.html"),
        ]
    if found.audit is not None:
        told.insert(-1, ("audits, NeuroBench", f"asp-neuro audit {name} {data}{asked}"))
    if found.robust:
        some = f"{data} --limit {min(ROBUST, found.about.n)} --draws 1"
        told.insert(-1, ("corrupted clouds", f"asp-neuro study robustness {name} {some}"))
    return [*told, ("the promise", f"asp-neuro show {name}"), ("fit", f"asp-neuro check {name}")]


def _repeat(found: Contents) -> str:
    rows = "".join(
        f"<dt>{escape(what)}</dt><dd><code>{escape(' '.join(command.split()))}</code></dd>"
        for what, command in commands(found)
    )
    note = f"model {found.sha256[:16]}; n = {found.about.n}"
    return _section("How to repeat every number", f"<dl>{rows}</dl><p class=small>{note}</p>", True)


def write(path: Path, found: Contents) -> dict[str, Any]:
    """Write the page; what `--json` says of it."""
    text = page(found)
    n_bytes = len(text.encode("utf-8"))
    if n_bytes > LARGEST:
        raise CheckFailed(f"the report would have {n_bytes} bytes, more than {LARGEST}; give a smaller --limit")
    files.write_text(path, text)
    return {"out": str(path), "bytes": n_bytes}
