"""All that is missing for Loihi 2 is told at once, in the order of the exit codes, by a run and by doctor."""

from __future__ import annotations

import dataclasses
import shutil
from pathlib import Path

import numpy as np
import pytest
import specs

from asp_neuro.chip import preflight
from asp_neuro.chip.preflight import ExtensionMissing, NoBoard, NotExpressible
from asp_neuro.cli import doctor
from asp_neuro.heads.spec import HeadSpec

STAND_IN = Path(__file__).parent / "stand_in"


@pytest.fixture(autouse=True)
def no_board(monkeypatch, tmp_path):
    for name in ("PARTITION", "BOARD", "NXSDKHOST", "NOSLURM", "LOIHI_GEN"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("PATH", str(tmp_path))


@pytest.fixture(scope="module")
def perceiver():
    return specs.random_perceiver(np.random.default_rng(11))


def too_deep(perceiver):
    """Guard hits that no tick can hold."""
    head = HeadSpec((*perceiver.head.layers, *[perceiver.head.layers[1]] * 15))
    return dataclasses.replace(perceiver, spec=dataclasses.replace(perceiver.spec, head=head))


def with_board(tmp_path: Path) -> None:
    (tmp_path / "sinfo").write_text("#!/bin/sh\necho NODELIST NODES PARTITION STATE\necho ncl-og-01 1 oheogulch idle\n")
    (tmp_path / "sinfo").chmod(0o755)


def test_every_missing_piece_is_told_and_the_first_decides_the_exit_code(perceiver):
    with pytest.raises(ExtensionMissing) as caught:
        preflight.preflight(too_deep(perceiver))
    assert caught.value.exit_code == 2
    lines = str(caught.value).splitlines()
    assert lines[0] == "4 pieces are missing for Loihi 2:"
    for number, words in enumerate(("Lava extension", "no Loihi 2 board", "no model for Loihi 2", "layer 17"), start=1):
        (told,) = [line for line in lines if line.startswith(f"{number}. ")]
        assert words in told


def test_without_a_board_and_a_model_the_board_comes_first(perceiver, monkeypatch, tmp_path):
    shutil.copytree(STAND_IN, tmp_path / "extension")
    for offer in (tmp_path / "extension").glob("*.dist-info"):
        shutil.rmtree(offer)
    monkeypatch.syspath_prepend(tmp_path / "extension")
    with pytest.raises(
        NoBoard, match=r"^2 pieces are missing for Loihi 2:\n1\. no Loihi 2 board(.|\n)*\n2\. SoftLIF has"
    ):
        preflight.preflight(perceiver)


def test_one_missing_piece_is_told_as_ever(perceiver, monkeypatch, tmp_path):
    with_board(tmp_path)
    monkeypatch.syspath_prepend(STAND_IN)
    with pytest.raises(NotExpressible, match=r"^layer 17: guard hits"):
        preflight.preflight(too_deep(perceiver))
    assert preflight.preflight(perceiver).text == "Slurm, PARTITION oheogulch, N3B3"


def test_doctor_counts_the_same_pieces(monkeypatch, tmp_path):
    found = doctor.ready()
    assert (found.status, found.needed) == ("missing", False)
    assert found.hint == "not before these are there: extension, board"  # bundles of the stock form need no model
    assert doctor.ready() in list(doctor.loihi2())
    with_board(tmp_path)
    monkeypatch.syspath_prepend(STAND_IN)
    assert doctor.ready().status == "ok"


def test_a_run_tells_them_all(cli):
    said = cli("run", "compact", "--no-exit", "--backend=loihi2", "--limit", "1", "--json")
    assert (said.code, said.json["error"]["kind"]) == (2, "loihi2 extension")
    assert said.json["error"]["message"].startswith("3 pieces are missing for Loihi 2:")
