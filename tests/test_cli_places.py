"""Where verbs write: what is there is kept unless told, places are tried before the work, the package is left alone."""

from __future__ import annotations

import dataclasses
import errno
import hashlib
import json
import os
import re
import shlex
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from asp_neuro import bundle as bundles
from asp_neuro import files
from asp_neuro.errors import InputError, UsageError
from asp_neuro.learn import checkpoint, training, workshop
from asp_neuro.learn.recipe import ModelRecipe, Recipe, TrainRecipe
from asp_neuro.runtime import deployment
from asp_neuro.scenes.cloud import Chunking

TINY = Recipe(
    name="tiny",
    scene=Chunking(n_points=64, n_groups=8, group_size=4, n_chunks=4),
    model=ModelRecipe(width=8, neurons=8, layers=2, edge_widths=(6, 8), policy_width=5),
    train=TrainRecipe(epochs=2, qat_epochs=1, batch_size=256, learning_rate=1e-2),
)
TOML = """
[scene]
kind = "cloud"
n_points = 64
n_groups = 8
group_size = 4
n_chunks = 4
[model]
width = 8
neurons = 8
layers = 2
edge_widths = [6, 8]
policy_width = 5
[train]
epochs = 20
qat_epochs = 1
batch_size = 256
"""


@pytest.fixture(scope="module")
def finished(tmp_path_factory) -> Path:
    out = tmp_path_factory.mktemp("finished") / "model.pt"
    workshop.train(TINY, out=out)
    return out


@pytest.fixture
def no_training(monkeypatch):
    monkeypatch.setattr(training, "train", lambda *_, **__: pytest.fail("it was trained"))


@pytest.fixture(autouse=True)
def here(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture
def package():
    """The shipped files, which must be the same afterwards, and the only ones."""

    def state() -> dict[str, str]:
        folder = bundles.shipped()["compact"].parent
        return {path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in folder.iterdir()}

    before = state()
    yield
    assert state() == before


# train


def test_a_finished_training_is_not_overwritten_in_silence(finished, no_training):
    before = finished.read_bytes()
    with pytest.raises(UsageError, match=r"model\.pt' holds a finished training .*'tiny', seed 0.*--out.*--force"):
        workshop.train(TINY, out=finished)
    assert finished.read_bytes() == before
    assert not finished.with_name("model.pt.lock").exists()


def test_force_trains_anew(finished, tmp_path):
    out = tmp_path / "model.pt"
    out.write_bytes(finished.read_bytes())
    workshop.train(dataclasses.replace(TINY, seed=3), out=out, force=True)
    assert checkpoint.read(out)["recipe"]["seed"] == 3


def test_a_file_of_another_kind_is_not_overwritten_either(tmp_path, no_training):
    (tmp_path / "model.pt").write_text("my poem")
    with pytest.raises(UsageError, match=r"model\.pt' holds something that is no checkpoint"):
        workshop.train(TINY, out="model.pt")


def stopped(monkeypatch, out: str = "model.pt") -> None:
    """A training that was interrupted in its second epoch."""
    epoch = training.train_epoch

    def stop(run, *rest):
        if run.epoch == 1:
            raise KeyboardInterrupt
        return epoch(run, *rest)

    with monkeypatch.context() as patch:
        patch.setattr(training, "train_epoch", stop)
        with pytest.raises(KeyboardInterrupt):
            workshop.train(TINY, out=out)


def test_a_stopped_training_is_not_overwritten_in_silence_and_goes_on_when_asked(finished, monkeypatch, tmp_path):
    stopped(monkeypatch)
    with pytest.raises(UsageError, match=r"holds epoch 1 of 2 of a training that was stopped.*--resume.*--force"):
        workshop.train(TINY, out="model.pt")
    workshop.train(TINY, out="model.pt", resume=True)
    mine, theirs = (checkpoint.read(path)["model"] for path in (tmp_path / "model.pt", finished))
    assert all((mine[key] == theirs[key]).all() for key in theirs)
    assert {path.name for path in tmp_path.iterdir()} == {"model.pt", "model.log.jsonl"}


def test_nothing_to_resume_is_told(finished, no_training):
    with pytest.raises(UsageError, match=r"nothing to resume: there is no 'model\.pt\.resume'; without --resume"):
        workshop.train(TINY, out="model.pt", resume=True)
    said = r"nothing to resume: .*model\.pt' holds a finished training .*; --force in place of --resume starts anew"
    with pytest.raises(UsageError, match=said):
        workshop.train(TINY, out=finished, resume=True)


def test_going_on_and_starting_anew_at_once_makes_no_sense(cli):
    said = cli("train", "--resume", "--force", "--json")
    assert (said.code, said.json["error"]["kind"]) == (2, "usage")


def test_a_second_training_into_the_same_file_is_refused(tmp_path, no_training):
    said = rf"a training of 'compact', process {os.getpid()} on .* is at work on it"
    with files.held("model.pt", "a training of 'compact'"), pytest.raises(UsageError, match=said):
        workshop.train(TINY, out="model.pt", force=True)


@pytest.mark.parametrize("place", [".", "no/model.pt", "/proc/model.pt"])
def test_a_place_that_cannot_be_written_is_refused_before_the_data_are_read(place, monkeypatch, cli):
    monkeypatch.setattr(workshop, "training_clouds", lambda *_: pytest.fail("data were read"))
    said = cli("train", "--out", place, "--json")
    assert said.code == 2
    assert f"'{place}'" in said.json["error"]["message"]


@pytest.mark.slow
@pytest.mark.parametrize("sent", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_tells_the_command_that_goes_on_and_the_command_goes_on(tmp_path, sent):
    Path("my recipe.toml").write_text(TOML)
    words = ["train", "--recipe", "my recipe.toml", "--out", "my model.pt", "--seed", "4"]
    child = subprocess.Popen(
        [sys.executable, "-m", "asp_neuro", *words], stderr=subprocess.PIPE, text=True, start_new_session=True
    )
    deadline = time.monotonic() + 120.0
    while not Path("my model.pt.resume").exists():
        assert child.poll() is None, child.stderr.read()
        assert time.monotonic() < deadline
        time.sleep(0.05)
    child.send_signal(sent)
    _, err = child.communicate(timeout=60)
    assert child.returncode == 128 + sent
    command = re.search(r"the last whole epoch is kept in 'my model.pt.resume'; go on with: asp-neuro (.*)", err)[1]
    done = subprocess.run([sys.executable, "-m", "asp_neuro", *shlex.split(command), "--json"], capture_output=True)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["seed"] == 4
    assert {path.name for path in tmp_path.iterdir()} == {"my recipe.toml", "my model.pt", "my model.log.jsonl"}


def test_a_signal_before_the_first_epoch_says_that_nothing_is_kept(monkeypatch, cli):
    def interrupted(*_, **__):
        raise KeyboardInterrupt

    monkeypatch.setattr(workshop, "train", interrupted)
    said = cli("train", "--json")
    assert said.code == 130
    assert said.json["error"]["message"] == "interrupted; no epoch was finished, nothing is kept"


def test_a_full_disk_in_a_later_epoch_tells_how_to_go_on(monkeypatch, cli):
    Path("tiny.toml").write_text(TOML)
    save = checkpoint.save

    def full(path, content):
        if content.get("epoch") == 2:
            raise InputError(f"cannot write '{path}': No space left on device")
        save(path, content)

    monkeypatch.setattr(checkpoint, "save", full)
    said = cli("train", "--recipe", "tiny.toml", "--json")
    assert said.code == 2
    assert re.search(
        r"No space left on device; the last whole epoch.*asp-neuro train --recipe tiny.toml --out model.pt --resume$",
        said.json["error"]["message"],
    )


# certify, and what else is written about a shipped bundle


def test_certifying_a_shipped_bundle_writes_a_copy_here(cli, package, tmp_path):
    said = cli("certify", "compact", "--json")
    assert (said.code, said.json["out"]) == (0, "compact.net")
    assert bundles.read(tmp_path / "compact.net").certificate["alpha"] == 0.05
    again = cli("certify", "compact", "--json")
    assert (again.code, again.json["error"]["kind"]) == (2, "usage")
    command = re.search(r"\(asp-neuro (certify .*?)\)", again.json["error"]["message"])[1]
    assert cli(*shlex.split(command)).code == 0
    assert bundles.read(tmp_path / "compact.net").certificate["alpha"] == 0.05
    assert [path.name for path in tmp_path.iterdir()] == ["compact.net"]


def test_the_copy_is_announced_and_the_command_that_is_named_runs_it(cli, package):
    said = cli("certify", "compact")
    assert "compact.net: a copy with this certificate" in said.out
    command = re.search(r"next: asp-neuro (.*)", said.out)[1]
    assert cli(*shlex.split(command), "--limit", "2").code == 0


@pytest.mark.parametrize("given", ["name", "file"])
def test_the_package_is_left_alone_from_within_too(cli, package, monkeypatch, given):
    shipped = bundles.shipped()["compact"]
    monkeypatch.chdir(shipped.parent)
    said = cli("certify", "compact" if given == "name" else "./compact.net", "--json")
    assert said.code == 2
    assert "lies in the installed package" in said.json["error"]["message"]


def test_exporting_a_shipped_bundle_names_its_checkpoint_and_trains_nothing(cli):
    done = cli("export", "compact")
    assert done.code == 2
    assert "'compact' is a shipped bundle" in done.err
    assert Path(__file__).parents[1].joinpath(*re.findall(r"train/\S+\.pt", done.err)).is_file()
    assert "asp-neuro train" not in done.err


def test_a_certificate_can_go_elsewhere(cli, tmp_path):
    (tmp_path / "mine.net").write_bytes(bundles.shipped()["compact"].read_bytes())
    before = (tmp_path / "mine.net").read_bytes()
    said = cli("certify", "mine.net", "--out", "new.net", "--json")
    assert (said.code, said.json["out"]) == (0, "new.net")
    assert (tmp_path / "mine.net").read_bytes() == before
    assert bundles.read(tmp_path / "new.net").certificate["alpha"] == 0.05


def test_feedback_about_a_shipped_bundle_is_kept_here(cli, package, tmp_path):
    said = cli("run", "compact", "--limit", "3", "--feedback", "--json")
    assert said.json["monitor"]["file"] == "compact.feedback.json"
    assert (tmp_path / "compact.feedback.json").exists()


def test_feedback_about_another_bundle_lies_beside_it(tmp_path):
    (tmp_path / "sub").mkdir()
    (tmp_path / "sub" / "mine.net").write_bytes(bundles.shipped()["compact"].read_bytes())
    deployed = deployment.open_bundle("sub/mine.net")
    assert deployment.own_place(deployed, ".feedback.json") == Path("sub/mine.feedback.json")


# Every verb that writes


@pytest.mark.parametrize(
    "words",
    [
        ("export", "x.pt", "--out"),
        ("export", "x.pt", "--nir"),
        ("certify", "compact", "--out"),
        ("certify", "compact", "--curve"),
        ("energy", "compact", "--plot"),
        ("run", "compact", "--picture"),
        ("run", "compact", "--feedback"),
        ("run", "compact", "--jsonl"),
        ("study", "order", "--out"),
        ("study", "robustness", "--out"),
        ("demo", "--out"),
    ],
    ids=lambda words: " ".join(words),
)
def test_a_place_that_cannot_be_written_is_refused_before_the_work(words, cli, monkeypatch):
    """/proc takes no file, not even from root."""
    from asp_neuro.learn import exporter

    for module, name in ((deployment, "run"), (deployment, "certify"), (deployment, "usage"), (workshop, "train"),
                         (exporter, "export")):  # fmt: skip
        monkeypatch.setattr(module, name, lambda *_, **__: pytest.fail("the work was begun"))
    suffix = ".png" if words[-1] in ("--curve", "--plot", "--picture") else ""
    said = cli(*words, f"/proc/place{suffix}", "--json")
    assert said.code == 2
    assert re.search(r"cannot (write|make the folder) '/proc/place", said.json["error"]["message"])


@pytest.mark.parametrize("verb", [("train",), ("export", "x.pt"), ("certify", "compact"), ("run", "compact")])
def test_a_folder_where_a_file_should_be_is_told(verb, cli):
    option = "--jsonl" if verb[0] == "run" else "--out"
    said = cli(*verb, option, ".", "--json")
    assert said.code == 2
    assert re.search(r"'\.': (Is a directory|it is a folder; name a file)", said.json["error"]["message"])


def test_a_full_disk_is_told_with_the_name_of_the_lines(cli):
    said = cli("run", "compact", "--limit", "3", "--jsonl", "/dev/full", "--json")
    assert said.code == 2
    expected = "cannot write '/dev/full': No space left on device; the lines before are kept"
    assert said.json["error"]["message"] == expected


@pytest.mark.parametrize(
    "words",
    [("run", "compact", "--limit", "1", "--picture", "a.png"), ("certify", "compact", "--out", "b.net")],
    ids=["picture", "bundle"],
)
def test_a_full_disk_is_told_with_the_name_of_the_file(words, cli, monkeypatch, tmp_path):
    """It fills up while the work is done: only the last step of a write fails."""

    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "replace", full)
    said = cli(*words, "--json")
    assert said.code == 2
    assert said.json["error"]["message"].startswith(f"cannot write '{words[-1]}': No space left on device")
    assert list(tmp_path.iterdir()) == []
