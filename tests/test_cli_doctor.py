"""doctor: what it finds, what it misses, and when it says no."""

from __future__ import annotations

import importlib.metadata
import shutil
import sys
from pathlib import Path

import numpy as np
import pytest
from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet

from asp_neuro import bundle
from asp_neuro.chip.session import LavaRun, SessionError
from asp_neuro.cli import doctor
from asp_neuro.heads.soft.reference import run_reference

KEYS = {"name", "status", "hint"}


def item(said, name):
    (found,) = [item for item in said.json["items"] if item["name"] == name]
    return found


def test_a_sound_installation_passes(cli, monkeypatch, tmp_path):
    monkeypatch.setenv("ASP_NEURO_DATA", str(tmp_path))
    said = cli("doctor", "--quick", "--json")
    assert said.code == 0
    assert all(set(item) >= KEYS and item["status"] in ("ok", "missing", "broken") for item in said.json["items"])
    assert not any(item["name"] == "Lava simulator" for item in said.json["items"])  # quick
    assert item(said, "numpy") == {"name": "numpy", "status": "ok", "hint": np.__version__, "needed": True}
    assert item(said, "extra: train")["status"] == "ok"


@pytest.mark.lava
def test_lava_is_an_extra_with_all_its_libraries(cli):
    found = item(cli("doctor", "--quick", "--json"), "extra: lava")
    assert found["hint"].startswith("lava-nc 0.10.0, lava-dl 0.6.0, torch 2.3.1")


@pytest.mark.lava
def test_an_extra_with_a_library_of_the_wrong_version_is_broken_and_exits_1(cli, monkeypatch):
    known = importlib.metadata.version
    monkeypatch.setattr("importlib.metadata.version", lambda name: "9.9.9" if name == "torch" else known(name))
    said = cli("doctor", "--quick", "--json")
    assert said.code == 1
    assert item(said, "extra: lava")["status"] == "broken"
    assert "torch: 9.9.9 is installed, ==2.3.1 is needed" in item(said, "extra: lava")["hint"]
    assert item(said, "extra: train")["status"] == "ok"  # which takes any current one


def lacking(monkeypatch, *absent: str) -> None:
    """As if these distributions were not installed."""
    known = importlib.metadata.version

    def version(name: str) -> str:
        if name in absent:
            raise importlib.metadata.PackageNotFoundError(name)
        return known(name)

    monkeypatch.setattr("importlib.metadata.version", version)


@pytest.mark.parametrize(
    ("extra", "libraries"),
    [
        ("train", ["torch"]), ("plots", ["matplotlib"]), ("files", ["pypcd4", "laspy", "lazrs"]), ("e57", ["pye57"]),
        ("nir", ["nir"]),
    ],
)  # fmt: skip
def test_an_extra_that_is_not_there_says_what_it_would_add(monkeypatch, extra, libraries):
    lacking(monkeypatch, *libraries)
    found = doctor.extra(extra)
    assert (found.status, found.needed) == ("missing", False)
    assert found.hint.startswith(f"adds {', '.join(libraries)} for ")
    assert found.hint.endswith(f": pip install 'asp-neuro[{extra}]'")


def test_half_an_extra_is_broken(monkeypatch):
    monkeypatch.setattr(doctor, "requirements", lambda name: [Requirement("numpy>=1"), Requirement("no-such-library")])
    found = doctor.extra("lava")
    assert (found.status, found.needed) == ("broken", True)
    assert found.hint.startswith("no-such-library is missing: ")


def test_without_lava_its_rows_say_which_python_it_needs(cli, monkeypatch):
    monkeypatch.setattr(doctor, "is_there", lambda module: False)
    monkeypatch.setattr("asp_neuro.libraries.sys.version_info", (3, 13, 0))
    monkeypatch.setattr(doctor, "requirements", lambda name="": [])  # as the markers have it there
    rows = {found.name: found for found in doctor.examine()}
    for name in ("extra: lava", "Loihi 2"):
        assert (rows[name].status, rows[name].needed) == ("missing", False)
        assert "Lava runs on Python 3.10 only, and this is 3.13" in rows[name].hint
    assert "Lava simulator" not in rows


def test_a_core_library_of_the_wrong_version_is_broken_and_exits_1(cli, monkeypatch):
    known = importlib.metadata.version
    monkeypatch.setattr("importlib.metadata.version", lambda name: "0.9" if name == "h5py" else known(name))
    said = cli("doctor", "--quick", "--json")
    assert said.code == 1
    assert "0.9 is installed, >=3.11 is needed" in item(said, "h5py")["hint"]


def test_a_library_that_is_not_there_is_missing():
    found = doctor.library("no-such-library", SpecifierSet(">=1"))
    assert (found.status, found.hint) == ("missing", doctor.REPAIR)


@pytest.mark.parametrize(("running", "status"), [((3, 9, 2), "broken"), ((3, 10, 0), "ok"), ((3, 14, 1), "ok")])
def test_python_from_310_on_will_do(monkeypatch, running, status):
    monkeypatch.setattr("sys.version_info", running)
    assert doctor.python().status == status


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
    said = cli("doctor", "--quick", "--json")
    assert said.code == 0  # nobody needs them
    assert item(said, "data: modelnet40")["status"] == modelnet40
    assert item(said, "data: modelnet10")["status"] == modelnet10


def test_missing_data_name_the_places_looked_in(cli, monkeypatch, tmp_path):
    monkeypatch.setenv("ASP_NEURO_DATA", str(tmp_path / "nowhere"))
    monkeypatch.chdir(tmp_path)
    assert str(tmp_path / "nowhere") in item(cli("doctor", "--quick", "--json"), "data: modelnet40")["hint"]


def test_without_numpy_the_doctor_still_answers(monkeypatch):
    monkeypatch.setitem(sys.modules, "asp_neuro.data", None)
    (found,) = doctor.data()
    assert (found.status, found.needed) == ("broken", True)
    assert "make setup" in found.hint


def test_missing_shared_memory_is_told(monkeypatch, tmp_path):
    monkeypatch.setattr(doctor, "SHARED_MEMORY", tmp_path / "shm")
    assert doctor.shared_memory().status == "missing"


def test_a_person_reads_a_table(cli):
    lines = cli("doctor", "--quick").out.splitlines()
    assert lines[0].split() == ["status", "item", "what", "it", "says"]
    assert any(line.split()[:3] == ["ok", "numpy", np.__version__] for line in lines)


# The simulator's self-test


def test_the_ten_steps_make_both_layers_fire():
    head, drives = doctor.ten_steps()
    _, spikes, overflows = run_reference(head, drives)  # [T, L, b, H]
    assert len(drives) == 10
    assert all(0.1 < rate < 0.9 for rate in spikes.mean(axis=(0, 2, 3)))
    assert overflows == 0


@pytest.mark.lava
@pytest.mark.slow
def test_the_self_test_runs_lava():
    found = doctor.simulator()
    assert (found.status, found.needed) == ("ok", True)
    assert found.hint.startswith("10 observations")


def test_a_simulator_that_is_off_by_one_is_broken_and_exits_1(cli, monkeypatch):
    monkeypatch.setattr(doctor, "is_there", lambda module: True)

    def wrong(head, drives, **_):
        membranes, spikes, _ = run_reference(head, drives)
        membranes[3, 1, 0, 2] += 1
        return LavaRun(membranes, spikes, np.zeros(10))

    monkeypatch.setattr("asp_neuro.chip.session.run_head", wrong)
    said = cli("doctor", "--json")
    assert said.code == 1
    assert item(said, "Lava simulator")["status"] == "broken"
    assert item(said, "Lava simulator")["hint"].startswith("1 numbers differ")


def test_a_session_that_fails_is_told(monkeypatch):
    def fails(*_, **__):
        raise SessionError("Lava session: the leader ended with code 9")

    monkeypatch.setattr("asp_neuro.chip.session.run_head", fails)
    found = doctor.simulator()
    assert found.status == "broken"
    assert "ended with code 9" in found.hint


@pytest.mark.parametrize(("value", "status"), [("1", "ok"), ("500", "ok"), ("many", "broken"), ("0", "broken")])
def test_the_number_of_threads_is_a_number(monkeypatch, value, status):
    monkeypatch.setenv("OMP_NUM_THREADS", value)
    found = doctor.threads()
    assert found.status == status
    assert ("more threads than cores" in found.hint) == (value == "500")


# Loihi 2

STAND_IN = Path(__file__).parent / "stand_in"


def loihi_items() -> dict[str, tuple[str, str]]:
    found = list(doctor.loihi2())
    assert not any(item.needed for item in found)
    return {item.name.removeprefix("Loihi 2: "): (item.status, item.hint) for item in found}


@pytest.fixture
def no_board(monkeypatch, tmp_path):
    for name in ("PARTITION", "BOARD", "NXSDKHOST", "NOSLURM", "LOIHI_GEN"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("PATH", str(tmp_path))


def test_without_a_chip_every_piece_is_missing_and_nobody_minds(no_board, cli):
    assert {status for status, _ in loihi_items().values()} == {"missing"}
    assert cli("doctor", "--quick", "--json").code == 0


def test_with_every_piece_there_all_is_well(no_board, monkeypatch, tmp_path):
    program = tmp_path / "sinfo"
    program.write_text("#!/bin/sh\necho NODELIST NODES PARTITION STATE\necho ncl-og-01 1 oheogulch idle\n")
    program.chmod(0o755)
    monkeypatch.syspath_prepend(STAND_IN)
    monkeypatch.setenv("PARTITION", "oheogulch")
    found = loihi_items()
    assert {name for name, (status, _) in found.items() if status != "ok"} == {"BOARD", "NXSDKHOST"}
    assert found["sinfo"] == ("ok", str(program))
    assert found["board"] == ("ok", "Slurm, PARTITION oheogulch, N3B3")
    assert found["entry point asp_neuro.loihi2_models"] == ("ok", "stand_in_models:NcSoftLIF")


def test_one_missing_module_is_the_one_named(no_board, monkeypatch, tmp_path):
    part = tmp_path / "part"
    shutil.copytree(STAND_IN, part)
    shutil.rmtree(part / "nxcore")
    monkeypatch.syspath_prepend(part)
    found = loihi_items()
    assert found["nxcore"][0] == "missing"
    assert found["lava.proc.embedded_io"][0] == "ok"


# Shipped models


def test_a_damaged_model_is_broken(monkeypatch, tmp_path):
    (tmp_path / "compact.net").write_bytes(b"no bundle")
    monkeypatch.setattr(bundle, "shipped", lambda: {"compact": tmp_path / "compact.net"})
    (found,) = doctor.models()
    assert (found.name, found.status, found.needed) == ("model: compact", "broken", True)


def test_no_shipped_model_is_no_harm(monkeypatch):
    monkeypatch.setattr(bundle, "shipped", dict)
    (found,) = doctor.models()
    assert (found.status, found.needed) == ("missing", False)
