"""doctor: what it finds, what it misses, and when it says no."""

from __future__ import annotations

import sys

import pytest
from packaging.specifiers import SpecifierSet

from asp_neuro import doctor

KEYS = {"name", "status", "hint"}


def item(said, name):
    (found,) = [item for item in said.json["items"] if item["name"] == name]
    return found


def test_a_sound_installation_passes(cli, monkeypatch, tmp_path):
    monkeypatch.setenv("ASP_NEURO_DATA", str(tmp_path))
    said = cli("doctor", "--json")
    assert said.code == 0
    assert all(set(item) >= KEYS and item["status"] in ("ok", "missing", "broken") for item in said.json["items"])
    assert item(said, "lava-dl") == {"name": "lava-dl", "status": "ok", "hint": "0.6.0", "needed": True}


def test_a_library_of_the_wrong_version_is_broken_and_exits_1(cli, monkeypatch):
    monkeypatch.setattr("importlib.metadata.version", lambda name: "9.9.9" if name == "torch" else "0.10.0")
    said = cli("doctor", "--json")
    assert said.code == 1
    assert item(said, "torch")["status"] == "broken"
    assert "9.9.9 is installed, ==2.3.1 is needed" in item(said, "torch")["hint"]


def test_a_library_that_is_not_there_is_missing():
    found = doctor.library("no-such-library", SpecifierSet(">=1"))
    assert (found.status, found.hint) == ("missing", "make setup")


def test_another_python_is_broken(monkeypatch):
    monkeypatch.setattr("sys.version_info", (3, 12, 1))
    assert doctor.python().status == "broken"


@pytest.mark.parametrize(
    ("files", "modelnet40", "modelnet10"),
    [
        ([], "missing", "missing"),
        (["modelnet40_train_1024fps.npz"], "ok", "ok"),
        (["ModelNet10/bed/train/bed_0001.off"], "missing", "ok"),
    ],
)
def test_data_are_looked_for_where_the_variable_says(cli, monkeypatch, tmp_path, files, modelnet40, modelnet10):
    monkeypatch.setenv("ASP_NEURO_DATA", str(tmp_path))
    monkeypatch.chdir(tmp_path)
    for name in files:
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).touch()
    said = cli("doctor", "--json")
    assert said.code == 0  # nobody needs them
    assert item(said, "data: modelnet40")["status"] == modelnet40
    assert item(said, "data: modelnet10")["status"] == modelnet10


def test_missing_data_name_the_places_looked_in(cli, monkeypatch, tmp_path):
    monkeypatch.setenv("ASP_NEURO_DATA", str(tmp_path / "nowhere"))
    monkeypatch.chdir(tmp_path)
    assert str(tmp_path / "nowhere") in item(cli("doctor", "--json"), "data: modelnet40")["hint"]


def test_without_numpy_the_doctor_still_answers(monkeypatch):
    monkeypatch.setitem(sys.modules, "asp_neuro.data", None)
    (found,) = doctor.data()
    assert (found.status, found.needed) == ("broken", True)
    assert "make setup" in found.hint


def test_missing_shared_memory_is_told(monkeypatch, tmp_path):
    monkeypatch.setattr(doctor, "SHARED_MEMORY", tmp_path / "shm")
    assert doctor.shared_memory().status == "missing"


def test_a_person_reads_a_table(cli):
    lines = cli("doctor").out.splitlines()
    assert lines[0].split() == ["status", "item", "what", "it", "says"]
    assert any(line.split()[:3] == ["ok", "torch", "2.3.1"] for line in lines)
