"""The report: what it shows, that nothing in it can break out of it, and that a real browser runs it."""

from __future__ import annotations

import base64
import dataclasses
import io
import json
import re
import shutil
import subprocess
from pathlib import Path

import numpy as np
import pytest
import specs

from asp_neuro.model.exit import ExitReason, ExitRule
from asp_neuro.studies.audits.record import Exits, Record
from asp_neuro.studies.page import contents, pictures
from asp_neuro.studies.page.curves import Axes, Line, bars, lines, ticks

BROWSER = next((found for name in ("chromium", "chromium-browser") if (found := shutil.which(name))), None)

# Appended to the page: what a user would do, and what came of it, as text in the document. All in one go, so that the
# cloud does not turn by itself between two pictures.
VISITOR = """<script>
(() => {
  const canvas = document.getElementById("cloud"), slider = document.getElementById("look");
  const buttons = [...document.querySelectorAll("#strip button")], bars = document.getElementById("bars");
  const seen = () => canvas.toDataURL(), said = () => bars.textContent;
  const move = (value) => { slider.value = value; slider.dispatchEvent(new Event("input")); return [seen(), said()]; };
  const first = move(1), again = move(1), last = move(slider.max);
  const at = (type, x) => canvas.dispatchEvent(new PointerEvent(type, {clientX: x, clientY: 50, pointerId: 1}));
  canvas.setPointerCapture = () => {};
  at("pointerdown", 10); at("pointermove", 90); at("pointerup", 90);
  const turned = seen();
  buttons[buttons.length - 1].click();
  const other = seen();
  const blank = document.createElement("canvas");
  blank.width = canvas.width; blank.height = canvas.height;
  const note = document.createElement("pre");
  note.id = "visit";
  note.textContent = JSON.stringify({
    slider: first[0] !== last[0], steady: first[0] === again[0], bars: first[1] !== last[1], turns: turned !== last[0],
    other: other !== turned, drawn: first[0] !== blank.toDataURL(),
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
            [
                "report",
                "compact",
                "--split",
                "validation",
                "--limit",
                "24",
                "--no-audit",
                "--no-robust",
                "--out",
                str(path),
                "--json",
            ]
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


def test_a_page_does_not_tell_where_its_maker_keeps_data(cli, tmp_path):
    """It is made to be passed on; what was typed stands in the commands alone."""
    named = "modelnet10 (npz) in /somewhere, else/data, test split, y up"
    assert contents.placeless(named, "test") == "modelnet10 (npz), test split, y up"
    assert contents.placeless("/somewhere/chairs, test split, z up", "test") == "chairs, test split, z up"
    assert contents.placeless("built-in shapes, test split, seed 0", "test") == "built-in shapes, test split, seed 0"
    path, out = tmp_path / "a.xyz", tmp_path / "page.html"
    np.savetxt(path, np.random.default_rng(0).normal(size=(1024, 3)))
    assert cli("run", "compact", "--input", str(path), "--report", str(out)).code == 0
    text = out.read_text(encoding="utf-8")
    assert text.count(str(tmp_path)) == text.count(f"--input {path}") == 1


def test_objects_have_a_belief_for_every_look(page):
    data = data_of(page.read_text(encoding="utf-8"))
    assert len(data["classes"]) == 8
    assert data["objects"]
    for one in data["objects"]:
        assert len(one["picture"]["points"]) == 3 * len(one["picture"]["seen"])
        assert len(one["order"]) == len(one["shares"]) == len(one["margins"]) == 16
        assert set(one["picture"]["seen"]) <= set(range(17))
        assert 1 <= one["stop"] <= 16


def seen_record() -> Record:
    """Three scenes, two looks: right and sure, wrong and sure, right and never sure."""
    logits = np.zeros((2, 3, 2))
    logits[:, 0, 0], logits[:, 1, 1], logits[:, 2, 0] = 9.0, 9.0, 0.1
    zeros = np.zeros((2, 3, 1))
    return Record(np.zeros(3, dtype=int), np.tile([[0], [1]], (1, 3)), logits, zeros, zeros, zeros)


def test_a_few_of_each_kind_are_shown():
    record = seen_record()
    stops = contents.stops_of(record.margins, ExitRule(tau=0.5))
    assert contents.picked(record, stops) == [(0, "right"), (1, "wrong"), (2, "budget spent")]
    whole = contents.stops_of(record.margins, ExitRule())
    assert whole.observations.tolist() == [2, 2, 2]
    assert isinstance(whole, Exits)


def test_points_are_seen_at_the_first_look_that_has_them():
    perceiver = specs.random_perceiver(np.random.default_rng(0))
    chunks = perceiver.scenes(specs.random_clouds(np.random.default_rng(1), 2))
    mask, place = chunks.mask()[1], np.array([3, 0])
    expected = np.where(mask[3], 1, np.where(mask[0], 2, 0))
    assert np.array_equal(pictures.seen_at(chunks, 1, place), expected)


def test_curves_by_hand():
    axes = Axes("x", "y", (0.0, 1.0), (0.0, 2.0))
    assert axes.at(0.0, 0.0) == (52.0, 214.0)
    assert axes.at(1.0, 2.0) == (508.0, 18.0)
    assert ticks(0.0, 1.0) == pytest.approx([0.0, 0.2, 0.4, 0.6, 0.8, 1.0])
    assert ticks(1.0, 16.0, 9) == [2.0, 4.0, 6.0, 8.0, 10.0, 12.0, 14.0, 16.0]
    assert ticks(0.5, 0.5) == [0.5]
    assert 'points="52.0,214.0 508.0,18.0"' in lines(axes, [Line("a < b", [0, 1], [0, 2])])
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
    about = contents.Subject(evil, evil, 4, evil, evil)
    text = html.page(contents.gather(deployed, named, about, ExitRule(tau=0.5), evil))
    assert "<script>alert" not in text
    assert data_of(text)["objects"]


def browsed(folder: Path, width: int, page: Path, *words: str) -> subprocess.CompletedProcess:
    """Headless Chromium opens a page."""
    flags = ["--headless", "--no-sandbox", "--disable-gpu", "--disable-background-networking", "--hide-scrollbars"]
    flags += [f"--user-data-dir={folder / 'profile'}", f"--window-size={width},900", "--virtual-time-budget=3000"]
    return subprocess.run([BROWSER, *flags, *words, page.as_uri()], capture_output=True, text=True, timeout=240)


def visited(page: Path, folder: Path, width: int) -> dict:
    """What a visitor finds."""
    text = page.read_text(encoding="utf-8")
    path = folder / "visited.html"
    path.write_text(text.replace("<head>", "<head>" + LISTENER).replace("</body>", VISITOR + "</body>"), "utf-8")
    done = browsed(folder, width, path, "--dump-dom")
    found = re.search(r'<pre id="visit">(.*?)</pre>', done.stdout)
    assert found is not None, done.stderr[-2000:]
    return json.loads(found.group(1))


in_browser = pytest.mark.skipif(BROWSER is None, reason="no chromium on this machine (Debian: apt install chromium)")
WELL = ("slider", "steady", "bars", "turns", "other", "drawn", "wide")


@in_browser
@pytest.mark.parametrize("width", [1280, 390])
def test_a_browser_runs_it_without_an_error_and_the_slider_moves_the_picture(page, tmp_path, width):
    assert visited(page, tmp_path, width) == {**dict.fromkeys(WELL, True), "errors": []}


@in_browser
def test_the_browser_test_sees_a_slider_that_does_nothing(page, tmp_path):
    dead = tmp_path / "dead.html"
    text, line = page.read_text(encoding="utf-8"), 'slider.addEventListener("input", () => { stop(); refresh(); });'
    assert line in text
    dead.write_text(text.replace(line, 'console.error("dead");'), encoding="utf-8")
    found = visited(dead, tmp_path, 1280)
    assert (found["slider"], found["errors"]) == (False, ["dead"])


@in_browser
def test_a_screenshot_shows_more_than_an_empty_page(page, tmp_path):
    picture = tmp_path / "page.png"
    browsed(tmp_path, 1280, page, f"--screenshot={picture}")
    image = pytest.importorskip("matplotlib.image", reason="matplotlib is not installed").imread(picture)
    assert image.shape[1] == 1280
    assert len(np.unique(np.rint(255 * image.reshape(-1, image.shape[2])), axis=0)) > 500  # many colours


# Clouds at hand, and kinds without a picture


def test_run_writes_a_page_of_files_whose_classes_nobody_knows(cli, tmp_path):
    paths = [tmp_path / f"{i}.xyz" for i in range(2)]
    for i, path in enumerate(paths):
        np.savetxt(path, np.random.default_rng(i).normal(size=(1024, 3)))
    out = tmp_path / "page.html"
    said = cli("run", "compact", "--input", *map(str, paths), "--report", str(out), "--json")
    assert said.code == 0
    assert said.json["page"] == {"out": str(out), "bytes": len(out.read_bytes())}
    text = out.read_text(encoding="utf-8")
    objects = data_of(text)["objects"]
    assert [one["name"] for one in objects] == [path.name for path in paths]
    assert {one["truth"] for one in objects} == {None}
    assert [one["stop"] for one in objects] == [answer["observations"] for answer in said.json["answers"]]
    assert "Accuracy against looks" not in text
    assert f"--input {paths[0]}" in text
    sentences = {reason.value: reason.sentence for reason in ExitReason}
    for one, answer in zip(objects, said.json["answers"], strict=True):
        assert one["end"].startswith(sentences[answer["exit"]])  # whether a promise covers it


def test_run_writes_a_page_of_parts(cli, tmp_path):
    path, out = tmp_path / "thing.xyz", tmp_path / "page.html"
    np.savetxt(path, np.random.default_rng(0).normal(size=(1100, 3)))
    said = cli("run", "shapenetpart", "--input", str(path), "--category", "mug", "--report", str(out), "--json")
    assert said.code == 0
    assert said.json["page"]["out"] == str(out)
    text = out.read_text(encoding="utf-8")
    (one,) = data_of(text)["objects"]
    assert one["name"] == "thing.xyz"
    assert one["end"].endswith("of the points are accepted.")
    assert "--category mug" in text


def test_run_writes_a_page_of_a_data_set(cli, tmp_path):
    out = tmp_path / "page.html"
    assert cli("run", "compact", "--split", "validation", "--limit", "8", "--report", str(out)).code == 0
    assert "Accuracy against looks" in out.read_text(encoding="utf-8")


def test_many_targets_have_a_bar_for_each_label_and_points_keep_theirs():
    labels = np.array([[0, 0, 1], [1, 1, 1]])
    assert pictures.many_targets(labels, 2).tolist() == [
        pytest.approx([2 / 3, 1 / 3]),
        [0.0, 1.0],
    ]
    perceiver = specs.random_perceiver(np.random.default_rng(0))
    chunks = perceiver.scenes(specs.random_clouds(np.random.default_rng(1), 1))
    n = chunks.coordinates().shape[1]
    told = pictures.cloud(None, chunks, 0, np.array([0, 1]), np.arange(2 * n).reshape(2, n))
    assert len(told["labels"]) == 2
    assert len(told["labels"][0]) == len(told["seen"])
    assert "labels" not in pictures.cloud(None, chunks, 0, np.array([0]), None)


def test_a_kind_without_a_picture_is_passed_over_with_a_word(monkeypatch):
    from asp_neuro.runtime import deployment
    from asp_neuro.studies.page import html

    monkeypatch.setattr(pictures, "SCENES", {})
    for module in (contents, html):
        monkeypatch.setattr(module, "SCENES", {})
    deployed = deployment.open_bundle("compact")
    clouds = deployment.clouds_of(deployed, None, "validation", None, 4)
    text = html.page(contents.gather(deployed, clouds, contents.Subject("validation", "x", 4), ExitRule(tau=0.5), "-"))
    assert "have no picture yet" in text
    assert all(one["picture"] is None for one in data_of(text)["objects"])


def test_the_commands_of_a_page_are_commands(page):
    """Every verb and option that it names is known."""
    import shlex

    from asp_neuro.cli.main import build_parser

    commands = re.findall(r"<code>(asp-neuro .*?)</code>", page.read_text(encoding="utf-8"))
    assert len(commands) >= 6
    for command in commands:
        build_parser().parse_args(shlex.split(command)[1:])


def test_an_image_is_a_png_with_its_fixations():
    from types import SimpleNamespace

    from asp_neuro.scenes.image import Gaze, Images

    how = Gaze()
    pixels = np.random.default_rng(0).integers(0, 256, (2, 1, 60, 60)).astype(np.uint8)
    told = pictures.image(SimpleNamespace(gaze=how), Images(pixels), 1, np.array([0, 24]), None)
    assert (told["fixations"], told["windows"]) == (how.centres[[0, 24]].tolist(), [12, 24, 48])
    image = pytest.importorskip("matplotlib.image", reason="matplotlib is not installed")
    file = io.BytesIO(base64.b64decode(told["pixels"].partition(",")[2]))
    assert np.array_equal(np.rint(255 * image.imread(file)), pixels[1, 0])
    coloured = np.random.default_rng(1).integers(0, 256, (4, 5, 3)).astype(np.uint8)
    assert np.array_equal(np.rint(255 * image.imread(io.BytesIO(pictures.png(coloured)))), coloured)


def test_rivals_of_a_learned_order_are_those_of_its_kind_of_scene():
    """Images are rivalled from the centre out and by brightness, as in `study order`; clouds by farthest points."""
    perceiver = specs.random_perceiver(np.random.default_rng(0))
    orders = contents.rival_orders(perceiver, None, 3)
    assert list(orders) == ["random order", "farthest-point order"]
    from asp_neuro.runtime import deployment

    images = deployment.open_bundle("clutter").perceiver
    pixels = np.zeros((2, 60, 60), np.uint8)
    pixels[0, 40:50, 40:50] = 255
    orders = contents.rival_orders(images, images.scenes(pixels), 2)
    assert list(orders) == ["random order", "from the centre out", "brightest first"]
    assert images.spec.scene.gaze.centres[orders["brightest first"][0, 0]].min() > 30  # where it is bright
    assert np.abs(images.spec.scene.gaze.centres[orders["from the centre out"][:, 0]] - 30).max() < 1


def test_a_promise_for_points_has_its_curve():
    from types import SimpleNamespace

    from asp_neuro.runtime import deployment, parts
    from asp_neuro.studies.page.html import point_promise

    found = parts.promise_of(deployment.open_bundle("shapenetpart"))
    text = point_promise(SimpleNamespace(points=found))
    assert "share of the points that are accepted" in text
    assert "certified" in text
    assert point_promise(SimpleNamespace(points=None)) == ""
