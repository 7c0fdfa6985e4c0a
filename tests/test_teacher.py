"""The teacher: trained on training clouds alone, and what it leaves is what a distilling recipe reads."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch

from asp_neuro.data import CloudSet, load_clouds
from asp_neuro.errors import ConfigError, InputError
from asp_neuro.learn import checkpoint, workshop
from asp_neuro.learn import recipe as recipes
from asp_neuro.learn import teacher as teachers
from asp_neuro.learn.examples import examples_of
from asp_neuro.learn.recipe import ModelRecipe, Recipe, TrainRecipe
from asp_neuro.learn.teacher import TeacherRecipe, logits_of, teach, train_teacher
from asp_neuro.scenes.cloud import Chunking

ROOT = Path(__file__).parents[1]
SMALL = Recipe(
    name="small",
    seed=3,
    scene=Chunking(n_points=64, n_groups=8, group_size=4, n_chunks=4),
    model=ModelRecipe(width=8, neurons=8, layers=2, edge_widths=(6, 8), policy_width=5),
    train=TrainRecipe(epochs=1, qat_epochs=0, batch_size=16, distillation=0.5),
)


@pytest.fixture
def few(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """64 clouds a split wherever data are loaded; the list tells which splits were."""
    asked: list[str] = []

    def cut_short(place: object, split: str, **how: object) -> CloudSet:
        asked.append(split)
        return load_clouds(place, split, **how).subset(range(64))

    monkeypatch.setattr("asp_neuro.data.samples.load_clouds", cut_short)
    return asked


def test_a_teacher_leaves_logits_that_a_distilling_training_takes(few: list[str], tmp_path: Path) -> None:
    out = tmp_path / "teacher.npz"
    report = teach(SMALL, out, TeacherRecipe(epochs=1))
    assert few == ["train"]  # it saw nothing else
    assert report["clouds"] == 64
    trained = workshop.train(SMALL, out=tmp_path / "model.pt", threads=1, teacher=out)
    assert 0.0 <= trained["accuracy_at"]["M"] <= 1.0
    assert sorted(path.name for path in tmp_path.iterdir()) == ["model.log.jsonl", "model.pt", "teacher.npz"]


def test_a_teacher_sees_the_clouds_of_its_student_and_none_that_are_held_out(
    monkeypatch: pytest.MonkeyPatch, few: list[str], tmp_path: Path
) -> None:
    """With `data.also` more than the train split, with `data.without` less."""
    teach(SMALL.changed(data={"also": ("validation",)}), tmp_path / "more.npz", TeacherRecipe(epochs=1))
    assert few == ["train", "validation"]
    clouds = workshop.training_clouds(SMALL)
    monkeypatch.setattr(teachers, "training_clouds", lambda *_: clouds.subset(range(40)))
    assert teach(SMALL, tmp_path / "less.npz", TeacherRecipe(epochs=1))["clouds"] == 40
    with pytest.raises(InputError, match="no row for cloud"):
        workshop.teacher_logits(tmp_path / "less.npz", clouds)


def test_points_have_no_teacher(tmp_path: Path) -> None:
    how = recipes.load("shapenetpart").changed(train={"distillation": 0.5})
    for asked in (
        lambda: teach(how, tmp_path / "t.npz"),
        lambda: workshop.train(how, out=tmp_path / "m.pt", teacher=tmp_path / "t.npz"),
    ):
        with pytest.raises(ConfigError, match="labels points"):
            asked()


def test_distillation_changes_what_is_learned(few: list[str], tmp_path: Path) -> None:
    teach(SMALL, tmp_path / "teacher.npz", TeacherRecipe(epochs=1))
    workshop.train(SMALL, out=tmp_path / "taught.pt", threads=1, teacher=tmp_path / "teacher.npz")
    alone = SMALL.changed(train={"distillation": 0.0})
    workshop.train(alone, out=tmp_path / "alone.pt", threads=1)
    taught, untaught = (checkpoint.read(tmp_path / name)["model"] for name in ("taught.pt", "alone.pt"))
    assert not torch.equal(taught["readout.weight"], untaught["readout.weight"])


def test_the_logits_stand_by_the_names_of_the_clouds(few: list[str], tmp_path: Path) -> None:
    teach(SMALL, tmp_path / "teacher.npz", TeacherRecipe(epochs=1))
    clouds = load_clouds("shapes", "train", n_points=64).subset(range(64))
    back = clouds.subset(range(63, -1, -1))
    ahead = workshop.teacher_logits(tmp_path / "teacher.npz", clouds)
    assert np.array_equal(ahead[::-1], workshop.teacher_logits(tmp_path / "teacher.npz", back))
    assert len(np.unique(ahead, axis=0)) == 64


def test_a_teacher_learns_its_clouds() -> None:
    clouds = load_clouds("shapes", "train", n_points=64).subset(range(64))
    examples = examples_of(clouds, SMALL.chunking)
    how = TeacherRecipe(epochs=30, dropout=0.0, learning_rate=1e-2)
    teacher = train_teacher(SMALL, examples, len(clouds.classes), how)
    right = (logits_of(teacher, examples).argmax(axis=1) == clouds.labels).mean()
    assert right > 2.5 / len(clouds.classes)


def test_the_same_seed_gives_the_same_logits() -> None:
    clouds = load_clouds("shapes", "train", n_points=64).subset(range(48))
    examples = examples_of(clouds, SMALL.chunking)
    one, two = (logits_of(train_teacher(SMALL, examples, 8, TeacherRecipe(epochs=1)), examples) for _ in range(2))
    assert np.array_equal(one, two)


def test_bad_numbers_and_places_are_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="epochs = 0 must be at least 1"):
        TeacherRecipe(epochs=0)
    clouds = load_clouds("shapes", "train", n_points=64).subset(range(1))
    with pytest.raises(InputError, match="1 clouds to train a teacher on"):
        train_teacher(SMALL, examples_of(clouds, SMALL.chunking), 8, TeacherRecipe())
    with pytest.raises(InputError, match="cannot write"):
        teachers.write_logits(tmp_path / "nowhere" / "t.npz", clouds, np.zeros((1, 8)))


@pytest.mark.slow
def test_the_command_says_what_is_wrong_in_one_line(tmp_path: Path) -> None:
    command = [sys.executable, ROOT / "train" / "teacher.py", "--recipe", "compcat"]
    done = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path)
    assert done.returncode == 2
    assert done.stderr.startswith("teacher: error: ")
    assert "compact" in done.stderr
    assert done.stderr.count("\n") == 1
