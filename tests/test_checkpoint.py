"""model.pt: written whole or not at all; a file that is cut short, damaged, foreign or hostile is refused."""

from __future__ import annotations

import collections
import os
import pickle
import resource
import zipfile
from pathlib import Path

import numpy as np
import pytest
import torch

from asp_neuro.errors import AspError, InputError, MissingError
from asp_neuro.learn import checkpoint


def content(seed: int = 0) -> dict:
    weights = torch.randn(40, 50, generator=torch.Generator().manual_seed(seed))
    return {
        "recipe": {"name": "x", "seed": seed},
        "classes": ["a", "b"],
        "model": {"w": weights},
        "history": [{"a": 1.0}],
    }


@pytest.fixture
def path(tmp_path: Path) -> Path:
    checkpoint.save(tmp_path / "model.pt", content())
    return tmp_path / "model.pt"


def test_what_was_saved_comes_back(path: Path) -> None:
    found = checkpoint.read(path)
    assert torch.equal(found["model"]["w"], content()["model"]["w"])
    assert found["recipe"] == {"name": "x", "seed": 0}
    assert found["classes"] == ["a", "b"]
    assert os.listdir(path.parent) == ["model.pt"]


@pytest.fixture
def full_disk():
    """No file of this process may grow beyond 1 kB: what a full disk looks like to a writer."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1024, before[1]))
    yield
    resource.setrlimit(resource.RLIMIT_FSIZE, before)


def test_a_full_disk_keeps_the_old_file_and_leaves_no_scraps(path: Path, full_disk: None) -> None:
    whole = path.read_bytes()
    with pytest.raises(InputError, match=r"cannot write '.*model\.pt'.*what was there before is untouched"):
        checkpoint.save(path, content(1))
    assert path.read_bytes() == whole
    assert os.listdir(path.parent) == ["model.pt"]
    assert checkpoint.read(path)["recipe"]["seed"] == 0


@pytest.mark.parametrize("place", ["save", "fsync", "replace"])
@pytest.mark.parametrize("error", [OSError(28, "No space left on device"), KeyboardInterrupt()])
def test_an_interruption_at_any_place_keeps_the_old_file(
    path: Path, monkeypatch: pytest.MonkeyPatch, place: str, error: BaseException
) -> None:
    def fail(*_: object) -> None:
        raise error

    whole = path.read_bytes()
    monkeypatch.setattr(torch if place == "save" else os, place, fail)
    with pytest.raises((InputError, KeyboardInterrupt)):
        checkpoint.save(path, content(1))
    assert path.read_bytes() == whole
    assert os.listdir(path.parent) == ["model.pt"]


def test_a_folder_that_is_not_there_is_told(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"cannot write '.*no/model\.pt'"):
        checkpoint.save(tmp_path / "no" / "model.pt", content())


def test_a_missing_file_says_how_to_make_it(tmp_path: Path) -> None:
    with pytest.raises(MissingError, match="does not exist; `asp-neuro train --out"):
        checkpoint.read(tmp_path / "model.pt")


def test_a_file_cut_short_anywhere_is_refused(path: Path) -> None:
    whole = path.read_bytes()
    for kept in (0, 1, 4, 100, len(whole) // 2, len(whole) - 1, *range(200, len(whole), 397)):
        path.write_bytes(whole[:kept])
        with pytest.raises(InputError, match=r"model\.pt"):
            checkpoint.read(path)


def test_no_flipped_bit_gets_into_a_weight(path: Path) -> None:
    """A flip may hit padding and do nothing; it must never change what is read, and never show as a traceback."""
    whole, good = path.read_bytes(), checkpoint.read(path)
    rng = np.random.default_rng(0)
    outcome: collections.Counter[str] = collections.Counter()
    for place in [*range(0, 900, 2), *rng.integers(len(whole), size=200), *range(len(whole) - 700, len(whole), 3)]:
        damaged = bytearray(whole)
        damaged[place] ^= 1 << int(rng.integers(8))
        path.write_bytes(damaged)
        try:
            found = checkpoint.read(path)
        except AspError:
            outcome["refused"] += 1
            continue
        outcome["read"] += 1
        assert torch.equal(found.pop("model")["w"], good["model"]["w"]), place
        assert found == {k: v for k, v in good.items() if k != "model"}, place
    assert outcome["refused"] > outcome["read"]


class Payload:
    """A pickle that runs a command when it is read with pickle alone."""

    def __init__(self, command: str) -> None:
        self.command = command

    def __reduce__(self) -> tuple:
        return os.system, (self.command,)


@pytest.mark.parametrize("kind", ["inside a checkpoint", "bare pickle", "old torch format"])
def test_a_hostile_file_is_refused_and_runs_nothing(path: Path, kind: str) -> None:
    witness = path.parent / "witness"
    payload = Payload(f"touch {witness}")
    if kind == "inside a checkpoint":
        torch.save({"format": checkpoint.FORMAT, "version": checkpoint.VERSION, **content(), "more": payload}, path)
    elif kind == "old torch format":
        torch.save({**content(), "more": payload}, path, _use_new_zipfile_serialization=False)
    else:
        path.write_bytes(pickle.dumps(payload))
    with pytest.raises(InputError, match="not a checkpoint that can be read safely"):
        checkpoint.read(path)
    assert not witness.exists()
    if kind == "bare pickle":  # the trap works: this test can fail
        pickle.loads(path.read_bytes())
        assert witness.exists()


@pytest.mark.parametrize("kind", ["text", "folder", "zip", "numpy", "tensor", "list", "junk"])
def test_a_foreign_file_is_refused_by_name(path: Path, kind: str) -> None:
    path.unlink()
    if kind == "text":
        path.write_text("hello")
    elif kind == "folder":
        path.mkdir()
    elif kind == "zip":
        with zipfile.ZipFile(path, "w") as file:
            file.writestr("hello", "world")
    elif kind == "numpy":
        with open(path, "wb") as file:
            np.savez(file, w=np.zeros(3))
    elif kind == "junk":
        path.write_bytes(b"\x80\x02" + bytes(range(255)))
    else:
        torch.save(torch.zeros(3) if kind == "tensor" else [1, 2], path)
    with pytest.raises(InputError, match=r"model\.pt' is"):
        checkpoint.read(path)


def test_another_program_or_version_is_told_apart(path: Path) -> None:
    torch.save({"format": "other", "version": 1, **content()}, path)
    with pytest.raises(InputError, match="not an asp-neuro checkpoint"):
        checkpoint.read(path)
    torch.save({"format": checkpoint.FORMAT, "version": 99, **content()}, path)
    with pytest.raises(InputError, match=f"has checkpoint version 99, this program reads {checkpoint.VERSION}"):
        checkpoint.read(path)


def test_a_part_that_is_missing_or_of_another_type_is_named(path: Path) -> None:
    with pytest.raises(InputError, match="incomplete checkpoint, without optimiser, epoch"):
        checkpoint.read(path, needs=("recipe", "optimiser", "epoch"))
    checkpoint.save(path, {**content(), "recipe": [1]})
    with pytest.raises(InputError, match="recipe is a list, expected a dict"):
        checkpoint.read(path)
