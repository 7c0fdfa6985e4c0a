"""The page: one file that opens offline, with its style, its script and its data inside."""

from __future__ import annotations

import shlex
from html import escape
from importlib import resources
from typing import Any

import numpy as np

from asp_neuro.report import to_json
from asp_neuro.studies.page.contents import Contents
from asp_neuro.studies.page.curves import Axes, Line, bars, lines

LARGEST = 6_000_000  # bytes


def page(found: Contents) -> str:
    """The whole file."""
    sections = (
        _summary(found), _objects(found), _accuracy(found), _exits(found), _promise(found), _energy(found),
        _audits(found), _fit(found), _repeat(found),
    )  # fmt: skip
    data = {"classes": found.classes, "objects": found.objects, "tau": found.rule.tau}
    told = to_json(data).replace("<", "\\u003c")  # nothing in it may end the script
    return (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f"<title>{escape(found.name)}: report</title>\n<style>\n{_file('style.css')}</style></head>\n<body><main>\n"
        + "\n".join(section for section in sections if section)
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
    return f'<div class="scroll"><table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table></div>'


def _cell(value: Any) -> str:
    if value is None:
        return "–"
    return f"{value:.4g}" if isinstance(value, float) else escape(str(value))


def _percent(value: float) -> str:
    return f"{100.0 * value:.1f} %"


def _summary(found: Contents) -> str:
    seen, stops = found.record, found.stops
    right = stops.at(seen.right)
    tiles = (
        ("right at the exit", _percent(float(right.mean()))),
        ("looks taken", f"{float(stops.observations.mean()):.2f} of {seen.n_steps}"),
        ("right after all looks", _percent(float(seen.right[-1].mean()))),
        ("exits before the end", _percent(float(stops.crossed.mean()))),
        ("energy (estimate)", f"{found.energy.deployed.at_exit / 1e6:.2f} uJ"),
        ("Loihi 2 cores (estimate)", str(found.fit.cores)),
    )
    cells = "".join(
        f'<div class="tile"><b>{escape(value)}</b><span>{escape(name)}</span></div>' for name, value in tiles
    )
    about = (
        f"An active spiking classifier of {len(found.classes)} classes. It looks at a cloud chunk by chunk, at most "
        f"{seen.n_steps} times, chooses where to look next by what it believes, and stops when it is sure. "
        f"{seen.n} clouds: {found.split} split of {found.source}. {found.exit}"
    )
    words = f"<h1>{escape(found.name)}</h1><p>{escape(about)}</p>"
    return f'<header class="wide">{words}<div class="tiles">{cells}</div></header>'


def _objects(found: Contents) -> str:
    names = [f"{one['why']}: {found.classes[one['truth']]} ({one['name']})" for one in found.objects]
    options = "".join(f'<option value="{at}">{escape(name)}</option>' for at, name in enumerate(names))
    return _section(
        "The objects themselves",
        f"""<div class="viewer">
<div class="stage"><canvas id="cloud" aria-label="point cloud; drag to turn"></canvas></div>
<div class="side"><select id="which" aria-label="object">{options}</select>
<label for="look">after <output id="count">0</output> looks <span id="state"></span></label>
<input id="look" type="range" min="0" value="0" step="1">
<div id="scale" aria-hidden="true"></div>
<div id="bars"></div></div></div>
<p class="small">Drag to turn. Points take the colour of the look that first saw them; grey ones are unseen. Bars:
what the network believes after that many looks. The looks after its exit are shown too: they did not happen in use.
</p>""",
        wide=True,
    )


def _accuracy(found: Contents) -> str:
    seen = found.record
    k, y = np.arange(1, seen.n_steps + 1), seen.right.mean(axis=1)
    low = np.floor(10 * float(y.min())) / 10
    axes = Axes("looks", "share right", (1, seen.n_steps), (low, 1.0))
    stops = float(found.stops.observations.mean())
    picture = lines(axes, [Line("right after k looks", k.tolist(), y.tolist())], (stops, f"mean exit {stops:.2f}"))
    return _section("Accuracy against looks", picture)


def _exits(found: Contents) -> str:
    n_steps = found.record.n_steps
    shares = np.bincount(found.stops.step, minlength=n_steps) / found.record.n
    axes = Axes("looks at the exit", "share of the clouds", (0.5, n_steps + 0.5), (0.0, float(shares.max())))
    return _section("When it stops", bars(axes, shares.tolist(), n_steps - 1))


def _promise(found: Contents) -> str:
    certificate = found.certificate
    if certificate is None:
        return _section("The promise", f"<p>{escape(found.exit)}</p>")
    rows = [row for row in certificate.table if row.risk is not None]
    coverage = [row.coverage for row in rows]
    top = max([2 * certificate.alpha, *(row.risk or 0.0 for row in rows)])
    axes = Axes("share of the clouds that exit", "share wrong among them", (0.0, 1.0), (0.0, top))
    drawn = [
        Line("wrong, on the calibration clouds", coverage, [row.risk or 0.0 for row in rows]),
        Line("promised at most", [0.0, 1.0], [certificate.alpha] * 2, "b"),
    ]
    mark = (certificate.coverage, "certified") if certificate.certified else None
    return _section("The promise", f"<p>{escape(found.exit)}</p>{lines(axes, drawn, mark)}")


def _audits(found: Contents) -> str:
    if found.audit is None:
        return ""
    rows = [
        (row["claim"], row["theorem"], row["predicted"], row["measured"], _interval(row), row["null"], row["paper"])
        for row in found.audit["rows"]
    ]
    headers = ("claim", "theorem", "predicted", "measured", "95 % interval", "null", "paper", "verdict")
    whole = [(*row, told["verdict"]) for row, told in zip(rows, found.audit["rows"], strict=True)]
    inside = _table(headers, whole)
    for verdict in ("holds", "fails", "unclear"):
        inside = inside.replace(f"<td>{verdict}</td>", f'<td class="{verdict}">{verdict}</td>')
    said = (
        "Every claim of the theory, measured; unclear: so many clouds cannot tell. What each row means: docs/audits.md."
    )
    return _section("Audits", f"<p>{said}</p>{inside}", wide=True)


def _interval(row: dict[str, Any]) -> str | None:
    return None if row["low"] is None else f"{row['low']:.4g} .. {row['high']:.4g}"


def _energy(found: Contents) -> str:
    estimate, k = found.energy, np.arange(1, found.record.n_steps + 1).tolist()
    curves = [estimate.deployed.curve / 1e6, estimate.curve / 1e6]
    axes = Axes("looks", "uJ a cloud", (1, k[-1]), (0.0, max(float(curve.max()) for curve in curves)))
    drawn = [
        Line("integers that run", k, curves[0].tolist()),
        Line("the paper's float prices", k, curves[1].tolist(), "b"),
    ]
    stops = float(found.stops.observations.mean())
    picture = lines(axes, drawn, (stops, f"mean exit {stops:.2f}"))
    note = "An estimate: operations counted, times a price at 45 nm. No chip was measured."
    return _section("Energy (estimate)", f"{picture}<p class=small>{note}</p>")


def _fit(found: Contents) -> str:
    verdict = "fits" if found.fit.fits else "does not fit"
    rows: list[tuple[Any, ...]] = [(v.rule, v.layer, v.value, v.limit) for v in found.fit.violations]
    broken = _table(("rule", "layer", "value", "limit"), rows) if rows else ""
    text = f"The spiking head {verdict} on Loihi 2 by an estimate from public figures: {found.fit.cores} of its cores."
    return _section("Fit", f"<p>{escape(text)}</p>{broken}", wide=True)


def _repeat(found: Contents) -> str:
    name, data = shlex.quote(found.name), found.options
    run = f"{data} {found.exit_options}"
    threshold = "" if found.rule.tau is None else f" --threshold {found.rule.tau}"
    commands = (
        ("accuracy, looks, exits", f"asp-neuro run {name} {run}"),
        ("accuracy after k looks", f"asp-neuro study order {name} {data}"),
        ("the promise", f"asp-neuro show {name}"),
        ("audits", f"asp-neuro audit {name} {data}{threshold}"),
        ("energy", f"asp-neuro energy {name} {run}"),
        ("fit", f"asp-neuro check {name}"),
        ("this page", f"asp-neuro report {name} {run} --out report.html"),
    )
    rows = "".join(
        f"<tr><td>{what}</td><td><code>{escape(command.strip())}</code></td></tr>" for what, command in commands
    )
    note = f"model {found.sha256[:16]}; n = {found.record.n}"
    return _section(
        "How to repeat every number", f"<div class=scroll><table>{rows}</table></div><p class=small>{note}</p>", True
    )
