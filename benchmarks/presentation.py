"""results.json for a reader: the table in benchmarks/README.md and the picture. Nothing in either is typed by hand."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from machine import LOADED, sentence
from timing import HEADERS, Row, cells, verdict

BEGIN, END = "<!-- bench:begin -->", "<!-- bench:end -->"
Results = dict[str, Any]


def markdown(results: Results) -> str:
    """The text between the page's markers: the machine, warnings, and every row that compares or has a limit."""
    lines = [f"Measured by `make bench` on: {sentence(results['machine'])}."]
    lines += [f"**{warning}**" for warning in warnings(results)]
    lines += ["", _tally(results), "", "![ratios](results.png)", "", _line(HEADERS), _line(["---"] * len(HEADERS))]
    for part in results["scripts"].values():
        shown = [row for row in part.get("rows", []) if _telling(row, part["rows"])]
        if shown:
            head = [f"**{part['title']}**", *[""] * (len(HEADERS) - 1)]
            lines += [_line(head), *(_line(cells(row)) for row in shown)]
    return "\n".join(lines)


def _tally(results: Results) -> str:
    """How many limits were met, and what missed its own."""
    rows = [row for part in results["scripts"].values() for row in part.get("rows", [])]
    missed = [row["what"] for row in rows if verdict(row) == "missed"]
    met = sum(verdict(row) == "met" for row in rows)
    return f"Limits met: {met} of {met + len(missed)}." + (f" Missed: {'; '.join(missed)}." if missed else "")


def _telling(row: Row, rows: list[Row]) -> bool:
    """It has a ratio, or a limit, or others are compared with it."""
    rivals = [other["against"] for other in rows if other["against"]]
    return row["ratio"] is not None or bool(row["wanted"]) or any(row["what"].startswith(name) for name in rivals)


def _line(texts: Any) -> str:
    return "| " + " | ".join(texts) + " |"


def warnings(results: Results) -> list[str]:
    """What a reader must know before trusting the numbers."""
    found, load = [], results["machine"]["load"]
    if results["quick"]:
        found.append("A quick run (`--quick`), a few turns each, to see that all of it works: the numbers mean little.")
    if load > LOADED:
        found.append(f"The machine was busy with other work: load average {load:.2f} at the start.")
    for name, part in results["scripts"].items():
        if "missing" in part:
            found.append(f"Not measured: {name} ({part['missing']}).")
    return found


def into_page(path: Path, results: Results) -> None:
    """Put the table between the markers."""
    before, after = _around(path.read_text())
    path.write_text(f"{before}{BEGIN}\n{markdown(results)}\n{END}{after}")


def _around(text: str) -> tuple[str, str]:
    if text.count(BEGIN) != 1 or text.count(END) != 1 or text.index(BEGIN) > text.index(END):
        raise SystemExit(f"benchmarks/README.md: expected {BEGIN} and then {END}, once each")
    return text[: text.index(BEGIN)], text[text.index(END) + len(END) :]


def picture(path: Path, results: Results) -> None:
    """Every ratio as a bar from 1, on a logarithmic scale, with its quartiles."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    from asp_neuro.studies.plots import BLUE, GREEN, GREY, ORANGE

    labels: list[str] = []
    bars: list[tuple[int, Row, str]] = []
    heads: list[int] = []
    for number, part in enumerate(results["scripts"].values()):
        rows = [row for row in part.get("rows", []) if row["ratio"] is not None]
        if rows:
            heads.append(len(labels))
            labels.append(part["title"])
        for row in rows:
            bars.append((len(labels), row, (BLUE, GREEN, ORANGE)[number % 3]))
            labels.append(f"{row['what']}  /  {row['against']}")
    figure, axis = pyplot.subplots(figsize=(10.0, 1.2 + 0.21 * len(labels)), constrained_layout=True)
    for place, row, colour in bars:
        ratio = row["ratio"]
        axis.barh(place, ratio["median"] - 1.0, left=1.0, color=colour, alpha=0.75, height=0.7)
        axis.plot([ratio["low"], ratio["high"]], [place, place], color="black", linewidth=1.4)
        right = ratio["median"] >= 1.0
        edge = max(ratio["high"], 1.0) if right else min(ratio["low"], 1.0)
        axis.annotate(
            cells(row)[2].split(" (")[0],
            (edge, place),
            xytext=(4 if right else -4, 0),
            textcoords="offset points",
            va="center",
            ha="left" if right else "right",
            fontsize=7,
        )
    axis.axvline(1.0, color=GREY, linewidth=0.8)
    axis.set_xscale("log")
    axis.margins(x=0.08, y=0.005)
    axis.set_yticks(range(len(labels)), labels, fontsize=7.5)
    for place in heads:
        axis.get_yticklabels()[place].set_fontweight("bold")
    axis.tick_params(axis="y", length=0)
    axis.invert_yaxis()
    axis.spines[["top", "right"]].set_visible(False)
    axis.grid(axis="x", alpha=0.25, linewidth=0.6)
    axis.set_xlabel("times as much as the rival behind the stroke (logarithmic; black: quartiles)")
    machine = results["machine"]
    notes = ["quick run"] * results["quick"] + ["machine busy"] * (machine["load"] > LOADED)
    axis.set_title(", ".join([machine["cpu"], f"{machine['cores']} cores", machine["date"], *notes]), fontsize=9)
    figure.savefig(path, dpi=110)
    pyplot.close(figure)
