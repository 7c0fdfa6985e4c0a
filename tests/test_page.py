"""The report: what it shows, that nothing in it can break out of it, and that a real browser runs it."""

from __future__ import annotations

import dataclasses
import json
import re
import shutil
import subprocess
from pathlib import Path

import numpy as np
import pytest
import specs

from asp_neuro.model.exit import ExitRule
from asp_neuro.studies.audits.record import Exits, Record
from asp_neuro.studies.page import contents
from asp_neuro.studies.page.curves import Axes, Line, bars, lines, ticks

BROWSER = next((found for name in ("chromium", "chromium-browser") if (found := shutil.which(name))), None)

# Appended to the page: what a user would do, and what came of it, as text in the document.
VISITOR = """<script>
(() => {
  const canvas = document.getElementById("cloud"), slider = document.getElementById("look");
  const which = document.getElementById("which"), bars = document.getElementById("bars");
  const seen = () => canvas.toDataURL() , said = () => bars.textContent;
  const move = (value) => { slider.value = value; slider.dispatchEvent(new Event("input")); return [seen(), said()]; };
  const first = move(1), last = move(slider.max);
  const at = (type, x) => canvas.dispatchEvent(new PointerEvent(type, {clientX: x, clientY: 50, pointerId: 1}));
  canvas.setPointerCapture = () => {};
  at("pointerdown", 10); at("pointermove", 90); at("pointerup", 90);
  const turned = seen();
  which.value = which.options.length - 1; which.dispatchEvent(new Event("change"));
  const note = document.createElement("pre");
  note.id = "visit";
  note.textContent = JSON.stringify({
    slider: first[0] !== last[0], bars: first[1] !== last[1], turns: turned !== last[0], other: seen() !== turned,
    wide: document.documentElement.scrollWidth <= window.innerWidth, errors: window.heard,
  });
  document.body.append(note);
})();
</script>"""
LISTENER = """<script>
window.heard = [];
window.addEventListener("error", (e) => window.heard.push(String(e.message)));
for (const name of ["error", "warn"]) console[name] = (...words) => window.heard.push(words.join(" "));
</script>"""


@pytest.fixture(scope="module")
def page(tmp_path_factory):
    """The report of the shipped compact bundle on a few clouds."""
    from asp_neuro.cli.main import main

    path = tmp_path_factory.mktemp("report") / "report.html"
    assert (
        main(
            ["report", "compact", "--split", "validation", "--limit", "24", "--no-audit", "--out", str(path), "--json"]
        )
        == 0
    )
    return path


def data_of(text: str) -> dict:
    return json.loads(re.search(r'id="data">(.*?)</script>', text, re.DOTALL).group(1))


def test_the_page_is_one_small_file_that_asks_for_nothing_else(page):
    text = page.read_text(encoding="utf-8")
    assert len(text.encode()) < 1_000_000
    assert not re.search(r"\bsrc=|<link|@import|url\(|https?://", text)
    assert "--limit 24" in text  # the commands repeat the numbers of these clouds
    for title in ("The objects themselves", "Accuracy against looks", "The promise", "Energy", "Fit", "How to repeat"):
        assert title in text


def test_objects_have_a_belief_for_every_look(page):
    data = data_of(page.read_text(encoding="utf-8"))
    assert len(data["classes"]) == 8
    assert data["objects"]
    for one in data["objects"]:
        assert len(one["points"]) == 3 * len(one["seen"])
        assert len(one["order"]) == len(one["shares"]) == len(one["margins"]) == 16
        assert set(one["seen"]) <= set(range(17))
        assert 1 <= one["stop"] <= 16


def seen_record() -> Record:
    """Three scenes, two looks: right and sure, wrong and sure, right and never sure."""
    logits = np.zeros((2, 3, 2))
    logits[:, 0, 0], logits[:, 1, 1], logits[:, 2, 0] = 9.0, 9.0, 0.1
    zeros = np.zeros((2, 3, 1))
    return Record(np.zeros(3, dtype=int), np.tile([[0], [1]], (1, 3)), logits, zeros, zeros, zeros)


def test_a_few_of_each_kind_are_shown():
    record = seen_record()
    stops = contents.stops_of(record, ExitRule(tau=0.5))
    assert contents.picked(record, stops) == [(0, "right"), (1, "wrong"), (2, "budget spent")]
    whole = contents.stops_of(record, ExitRule())
    assert whole.observations.tolist() == [2, 2, 2]
    assert isinstance(whole, Exits)


def test_points_are_seen_at_the_first_look_that_has_them():
    perceiver = specs.random_perceiver(np.random.default_rng(0))
    chunks = perceiver.scenes(specs.random_clouds(np.random.default_rng(1), 2))
    mask, place = chunks.mask()[1], np.array([3, 0])
    expected = np.where(mask[3], 1, np.where(mask[0], 2, 0))
    assert np.array_equal(contents.seen_at(chunks, 1, place), expected)


def test_curves_by_hand():
    axes = Axes("x", "y", (0.0, 1.0), (0.0, 2.0))
    assert axes.at(0.0, 0.0) == (48.0, 220.0)
    assert axes.at(1.0, 2.0) == (508.0, 30.0)
    assert ticks(0.0, 1.0) == pytest.approx([0.0, 0.2, 0.4, 0.6, 0.8, 1.0])
    assert ticks(1.0, 16.0, 9) == [2.0, 4.0, 6.0, 8.0, 10.0, 12.0, 14.0, 16.0]
    assert ticks(0.5, 0.5) == [0.5]
    assert 'points="48.0,220.0 508.0,30.0"' in lines(axes, [Line("a < b", [0, 1], [0, 2])])
    assert "a &lt; b" in lines(axes, [Line("a < b", [0, 1], [0, 2])])
    assert bars(Axes("x", "y", (0.5, 2.5), (0.0, 1.0)), [0.5, 1.0]).count("<rect") == 2


def test_names_cannot_break_out_of_the_page():
    """A file's name or a class may hold anything; it stays text."""
    from asp_neuro.runtime import deployment
    from asp_neuro.studies.page import html

    evil = "</script><script>alert(1)</script>"
    deployed = deployment.open_bundle("compact")
    clouds = deployment.clouds_of(deployed, None, "validation", None, 4)
    named = dataclasses.replace(clouds, names=(evil, *clouds.names[1:]), source=evil)
    text = html.page(contents.gather(deployed, named, "validation", ExitRule(tau=0.5), evil, None))
    assert "<script>alert" not in text
    assert data_of(text)["objects"]


def visited(page: Path, folder: Path, width: int) -> dict:
    """What a visitor finds in headless Chromium."""
    text = (
        page.read_text(encoding="utf-8").replace("<head>", "<head>" + LISTENER).replace("</body>", VISITOR + "</body>")
    )
    path = folder / "visited.html"
    path.write_text(text, encoding="utf-8")
    words = [BROWSER, "--headless=new", "--no-sandbox", "--disable-gpu", f"--user-data-dir={folder / 'profile'}"]
    words += [f"--window-size={width},900", "--virtual-time-budget=3000", "--dump-dom", path.as_uri()]
    done = subprocess.run(words, capture_output=True, text=True, timeout=240)
    found = re.search(r'<pre id="visit">(.*?)</pre>', done.stdout)
    assert found is not None, done.stderr[-2000:]
    return json.loads(found.group(1))


@pytest.mark.skipif(BROWSER is None, reason="no chromium on this machine (Debian: apt install chromium)")
@pytest.mark.parametrize("width", [1280, 500])
def test_a_browser_runs_it_without_an_error_and_the_slider_moves_the_picture(page, tmp_path, width):
    found = visited(page, tmp_path, width)
    assert found == {"slider": True, "bars": True, "turns": True, "other": True, "wide": True, "errors": []}


@pytest.mark.skipif(BROWSER is None, reason="no chromium on this machine (Debian: apt install chromium)")
def test_the_browser_test_sees_a_slider_that_does_nothing(page, tmp_path):
    dead = tmp_path / "dead.html"
    text = page.read_text(encoding="utf-8")
    assert 'slider.addEventListener("input", refresh);' in text
    dead.write_text(text.replace('slider.addEventListener("input", refresh);', 'console.error("dead");'))
    found = visited(dead, tmp_path, 1280)
    assert (found["slider"], found["errors"]) == (False, ["dead"])
