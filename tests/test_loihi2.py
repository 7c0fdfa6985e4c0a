"""`--backend=loihi2` without a chip: each missing piece has its own error, and no run falls back to the CPU.

The extension is a stand-in (tests/stand_in), sinfo and ping are small programs. Where all pieces are there the whole
path runs, with the delays and the 24 bits of the real adapters, and must give the answers of the fast engine.
"""

from __future__ import annotations

import contextlib
import dataclasses
import json
import os
import subprocess
import sys

import numpy as np
import pytest
import specs
from loihi2_place import FIRST_DOWN

from asp_neuro.bundle import Bundle, write
from asp_neuro.chip import preflight
from asp_neuro.chip.machines import LOIHI2
from asp_neuro.chip.preflight import EXTENSION, ExtensionMissing, NoBoard, Node, NotExpressible, OnHost
from asp_neuro.chip.session import SessionError
from asp_neuro.heads.spec import HeadSpec
from asp_neuro.model.exit import ExitReason, ExitRule
from asp_neuro.model.perceiver import Perceiver
from asp_neuro.runtime import hardware
from asp_neuro.runtime.deployment import answered
from asp_neuro.scenes.cloud import MAX_CHUNKS


def answer(perceiver, scenes, rule, on_answer=lambda index, answer: None):
    return answered(LOIHI2, perceiver, scenes, rule, len(scenes), on_answer)


def environ(**values: str) -> dict[str, str]:
    return values


@pytest.fixture(scope="module")
def perceiver():
    return specs.random_perceiver(np.random.default_rng(11))


@pytest.fixture(scope="module")
def chunks(perceiver):
    return perceiver.scenes(specs.random_clouds(np.random.default_rng(12), 3))


# 2: the extension


@pytest.mark.parametrize("module", EXTENSION)
def test_each_missing_module_is_named_alone(place, perceiver, module):
    path = module.replace(".", "/")
    place.without(path if (place.extension / path).is_dir() else f"{path}.py")
    with pytest.raises(ExtensionMissing, match=rf"missing: {module.replace('.', '[.]')}[.]\n") as caught:
        preflight.preflight(perceiver)
    assert caught.value.exit_code == 2


def test_without_the_extension_all_modules_are_listed_and_nothing_is_run(monkeypatch, perceiver, chunks):
    monkeypatch.setattr("asp_neuro.chip.session.simulate", lambda *_, **__: pytest.fail("a session was started"))
    with pytest.raises(ExtensionMissing) as caught:
        answer(perceiver, chunks, ExitRule())
    assert all(module in str(caught.value) for module in EXTENSION)
    assert "--backend=sim" in str(caught.value)


def test_the_whole_extension_is_found(place):
    assert preflight.missing_modules() == []


# 3: the board


def test_no_slurm_and_no_variable_names_all_that_was_looked_for(place, perceiver):
    with pytest.raises(NoBoard) as caught:
        preflight.preflight(perceiver)
    for words in ("sinfo on PATH (not found)", "PARTITION (not set)", "BOARD (not set)", "NXSDKHOST (not set)"):
        assert words in str(caught.value)
    assert caught.value.exit_code == 3


@pytest.mark.parametrize("end", ["\n", "", "\n\n"], ids=["newline", "no newline", "empty line"])
def test_the_first_board_that_is_up_decides_the_partition(place, end):
    place.sinfo(*FIRST_DOWN, end=end)
    chosen = preflight.choose_board(environ())
    assert chosen.variables == {
        "BOARD": None, "PARTITION": "oheogulch", "LOIHI_GEN": "N3B3", "SLURM": "1", "NOSLURM": None, "NXSDKHOST": None,
    }  # fmt: skip


@pytest.mark.lava
def test_lava_itself_stumbles_over_the_newline(place):
    """Why `use_slurm_host` is called without arguments: with one, lava-nc 0.10.0 fails on what Slurm prints."""
    place.sinfo(*FIRST_DOWN)
    program = "from lava.utils import loihi; loihi.use_slurm_host(partition='oheogulch')"
    env = os.environ | {"PYTHONPATH": str(place.extension)}
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, env=env)
    assert "IndexError" in done.stderr


@pytest.mark.parametrize(
    ("asked", "board", "partition"),
    [
        ({"BOARD": "ncl-og-02"}, "ncl-og-02", None),
        ({"BOARD": "ncl-og-01,ncl-og-02"}, "ncl-og-02", None),  # down, up
        ({"BOARD": "ncl-og-01, ncl-kp-01", "PARTITION": "kp"}, "ncl-kp-01", "kp"),
        ({"PARTITION": "oheogulch"}, None, "oheogulch"),  # its first board is down
        ({"PARTITION": "kp"}, None, "kp"),  # all busy: Slurm waits
        ({"PARTITION": "kp", "NXSDKHOST": "10.0.0.7"}, None, "kp"),
    ],
)
def test_the_variables_choose_the_board(place, asked, board, partition):
    place.sinfo(*FIRST_DOWN)
    found = preflight.choose_board(environ(**asked, LOIHI_GEN="N3C1")).variables
    assert (found["BOARD"], found["PARTITION"], found["LOIHI_GEN"]) == (board, partition, "N3C1")


@pytest.mark.parametrize(
    ("asked", "words"),
    [
        ({"BOARD": "ncl-og-01"}, "board ncl-og-01 is down"),
        ({"BOARD": "ncl-og-01,ncl-og-09"}, "board ncl-og-01 is down; board ncl-og-09 is not listed"),
        ({"BOARD": "ncl-og-02", "PARTITION": "kp"}, "board ncl-og-02 is not listed in partition kp"),
        ({"PARTITION": "loihi_2h"}, "PARTITION loihi_2h: no board of it is up"),
        ({"PARTITION": "oheo"}, "PARTITION oheo: Slurm has no such partition"),
        ({"LOIHI_GEN": "N2A2"}, "LOIHI_GEN is 'N2A2', Loihi 2 comes as N3B2"),
    ],
)
def test_a_board_that_cannot_be_had_is_named_with_its_state(place, asked, words):
    place.sinfo(*FIRST_DOWN, "ncl-l1-01 1 loihi_2h drain*")
    with pytest.raises(NoBoard) as caught:
        preflight.choose_board(environ(**asked))
    assert words in str(caught.value)


def test_all_boards_down_is_no_board(place):
    place.sinfo("ncl-og-01 1 oheogulch down*", "ncl-og-02 1 oheogulch drain", "ncl-l1-01 1 loihi_2h idle")
    with pytest.raises(NoBoard, match="no board is up in a partition named oheogulch or kp") as caught:
        preflight.choose_board(environ())
    assert "ncl-og-01 (oheogulch, down*), ncl-og-02 (oheogulch, drain)" in str(caught.value)


@pytest.mark.parametrize(
    ("state", "up"),
    [("idle", True), ("alloc", True), ("mix", True), ("down", False), ("idle*", False), ("DRAINED", False)],
)
def test_the_states_of_a_node(state, up):
    assert Node("a", "p", state).is_up == up


@pytest.mark.parametrize(
    ("script", "words"),
    [("exit 1", "the Slurm controller does not answer"), ("echo hello", "expected the columns NODELIST")],
)
def test_a_sinfo_that_does_not_work_is_told(place, script, words):
    place.program("sinfo", script)
    with pytest.raises(NoBoard, match=words):
        preflight.choose_board(environ())


def test_a_board_on_the_network_is_pinged(place):
    asked = environ(NXSDKHOST="10.0.0.7")
    with pytest.raises(NoBoard, match="ping is not on PATH"):
        preflight.choose_board(asked)
    place.program("ping", "exit 1")
    with pytest.raises(NoBoard, match=r"`ping -c 1 10.0.0.7` failed"):
        preflight.choose_board(asked)
    place.program("ping", "exit 0")
    found = preflight.choose_board(asked).variables
    assert (found["NXSDKHOST"], found["NOSLURM"], found["SLURM"]) == ("10.0.0.7", "1", None)
    assert found["HOST_BINARY"] == "nxcore/bin/nx_driver_server"
    both = preflight.choose_board(asked | {"PARTITION": "kp", "NOSLURM": "1"}).variables
    assert (both["NXSDKHOST"], both["PARTITION"]) == ("10.0.0.7", None)


def test_the_environment_is_as_before_afterwards(monkeypatch):
    monkeypatch.setenv("BOARD", "mine")
    monkeypatch.delenv("SLURM", raising=False)
    with preflight.environment({"BOARD": None, "SLURM": "1"}):
        assert ("BOARD" in os.environ, os.environ["SLURM"]) == (False, "1")
    assert (os.environ["BOARD"], "SLURM" in os.environ) == ("mine", False)


# 4: the model


def test_no_entry_point_is_not_expressible(place, perceiver):
    place.sinfo(*FIRST_DOWN)
    place.offers()
    with pytest.raises(NotExpressible, match="no installed package offers the entry point 'SoftLIF'") as caught:
        preflight.preflight(perceiver)
    assert caught.value.exit_code == 4


def test_two_offers_are_one_too_many(place):
    place.offers("stand_in_models:NcSoftLIF", "other:Model")
    with pytest.raises(NotExpressible, match="2 packages offer"):
        preflight.demand_neuron_model()


def test_a_broken_design_rule_names_layer_and_number(perceiver, monkeypatch):
    preflight.demand_expressible(perceiver)
    hw = hardware.chip("loihi2")
    tight = dataclasses.replace(hw, limits=dataclasses.replace(hw.limits, weight_max=10))
    monkeypatch.setattr(hardware, "chip", lambda name: tight)
    with pytest.raises(NotExpressible, match=r"layer 1: weight_range: \d+, limit 10"):
        preflight.demand_expressible(perceiver)


def test_a_tick_on_the_chip_can_count_every_episode():
    """Each of the places once, whatever their number; places that may be taken again make longer episodes."""
    assert MAX_CHUNKS < 2**preflight.CHIP_TICK_BITS
    for budget, fits in ((255, True), (256, False)):
        free = specs.random_perceiver(np.random.default_rng(11), mask=False, budget=budget)
        with contextlib.nullcontext() if fits else pytest.raises(NotExpressible, match="budget 256, a tick counts to"):
            preflight.demand_expressible(free)


def test_guard_hits_that_do_not_fit_a_tick_are_refused(perceiver):
    deep = HeadSpec((*perceiver.head.layers, *[perceiver.head.layers[1]] * 15))
    with pytest.raises(NotExpressible, match="layer 17: guard hits count to 65552, a tick holds 65535"):
        preflight.demand_expressible(with_head(perceiver, deep))


# In the session


def with_deep_resets(perceiver):
    """The last layer's spikes take more than fired them, so that membranes get negative."""
    *layers, last = perceiver.head.layers
    last = dataclasses.replace(last, theta_int=3 * last.theta_int)
    return with_head(perceiver, HeadSpec((*layers, last)))


def with_head(perceiver: Perceiver, head: HeadSpec) -> Perceiver:
    return Perceiver(dataclasses.replace(perceiver.spec, head=head))


@pytest.mark.lava
@pytest.mark.slow
def test_with_every_piece_there_the_answers_are_those_of_the_fast_engine(place, monkeypatch, tmp_path):
    """Three layers, early exits, several clouds; the adapters are late by 2 and 1 steps, states have 24 bits."""
    place.sinfo(*FIRST_DOWN)
    monkeypatch.setenv("ASP_NEURO_PROFILE", str(tmp_path / "profile.json"))
    monkeypatch.setenv("BOARD", "ncl-og-01,ncl-og-02")
    monkeypatch.setenv("LOIHI_GEN", "N3C1")
    perceiver = with_deep_resets(specs.random_perceiver(np.random.default_rng(11), n_layers=3))
    chunks = perceiver.scenes(specs.random_clouds(np.random.default_rng(12), 5))
    full = perceiver.answers(chunks, ExitRule())
    rule = ExitRule(tau=float(np.sort([max(found.margins) for found in full])[1:3].mean()))
    want = perceiver.answers(chunks, rule)
    assert {found.exit for found in want} == {ExitReason.THRESHOLD, ExitReason.BUDGET}
    assert any((found.membrane < 0).any() for found in want)  # else the sign would not be missed
    told = []
    got = answer(perceiver, chunks, rule, on_answer=lambda index, _: told.append(index))
    assert told == [0, 1, 2, 3, 4]
    for ours, theirs in zip(got, want, strict=True):
        np.testing.assert_array_equal(ours.membrane, theirs.membrane)
        assert (ours.order, ours.exit, ours.labels) == (theirs.order, theirs.exit, theirs.labels)
        assert ours.margins == theirs.margins
    profile = json.loads((tmp_path / "profile.json").read_text())
    assert profile["Loihi2ExecutionTime"] == {"avg_time_per_step": 12.5}
    assert profile["Loihi2Power"] == {
        "total_power": [0.5, 0.75],
        "vdd_power": "RuntimeError: no sensor on ['1', 'ncl-og-02', None, 'N3C1']",  # Lava had cleared the board
    }


@pytest.mark.lava
@pytest.mark.slow
@pytest.mark.parametrize(
    ("way_in_and_out", "read", "right"),
    [("5,3", "5", True), ("2,1", "6", False)],
    ids=["all late", "membrane too late"],
)
def test_long_ways_are_waited_out_and_unequal_ones_up_to_a_limit(
    place, monkeypatch, perceiver, chunks, way_in_and_out, read, right
):
    place.sinfo(*FIRST_DOWN)
    monkeypatch.setenv("STAND_IN_DELAYS", way_in_and_out)
    monkeypatch.setenv("STAND_IN_READ", read)
    got = answer(perceiver, chunks[:1], ExitRule())
    assert np.array_equal(got[0].membrane, perceiver.answers(chunks[:1], ExitRule())[0].membrane) == right


@pytest.fixture
def bundle(tmp_path, perceiver):
    golden = specs.golden(perceiver.spec, specs.random_drives(np.random.default_rng(0), 4, 2, 16))
    write(tmp_path / "m.net", Bundle(perceiver.spec, {"data": {"name": "shapes"}}, golden))
    np.savetxt(tmp_path / "cloud.xyz", specs.random_clouds(np.random.default_rng(3), 1)[0])
    return tmp_path / "m.net", tmp_path / "cloud.xyz"


@pytest.mark.lava
@pytest.mark.slow
@pytest.mark.parametrize(
    ("offer", "taken_out", "code", "words"),
    [
        ("stand_in_models:NcSoftLIF", "lava/proc/dense/ncmodels.py", 5, "layer 1 synapses (PyDense"),
        ("stand_in_models:on_cpu", None, 5, "the neurons would run on the host, not on Loihi 2"),
        ("stand_in_models:of_another_process", None, 4, "is no model of asp_neuro.chip.processes.soft_lif.SoftLIF"),
        ("no_such_module:Model", None, 4, "cannot be loaded: ModuleNotFoundError"),
    ],
    ids=["synapses on the CPU", "neurons on the CPU", "not a SoftLIF", "cannot be imported"],
)
def test_a_run_that_would_fall_back_ends_with_its_exit_code(cli, place, bundle, offer, taken_out, code, words):
    place.sinfo(*FIRST_DOWN)
    place.offers(offer)
    if taken_out:
        place.without(taken_out)
    said = cli("run", str(bundle[0]), "--backend=loihi2", "--input", str(bundle[1]), "--json")
    assert said.code == code
    assert words in said.json["error"]["message"]
    assert said.json["error"]["message"].count("\n") == 0


@pytest.mark.lava
@pytest.mark.slow
def test_a_controller_that_leaves_after_the_check_is_no_board(place, perceiver, chunks, tmp_path):
    place.sinfo(*FIRST_DOWN)
    once = tmp_path / "asked"
    place.program("sinfo.list", (place.programs / "sinfo").read_text())
    place.program("sinfo", f'[ -e {once} ] && exit 1; : > {once}; exec "{place.programs / "sinfo.list"}"')
    with pytest.raises(NoBoard, match="Lava refused the board that was found"):
        answer(perceiver, chunks, ExitRule())


def test_a_run_without_the_extension_exits_2(cli, bundle):
    said = cli("run", str(bundle[0]), "--backend=loihi2", "--input", str(bundle[1]), "--json")
    assert said.code == 2
    assert said.json["error"]["kind"] == "loihi2 extension"


def test_a_failed_session_of_another_kind_stays_what_it_is():
    error = SessionError("Lava session: host (PyChipHostModel) failed in phase spiking: NoBoard: a word in a text")
    assert preflight.typed(error) is error
    told = SessionError("Lava session: the leader failed in phase session: OnHost: 1 of 4 processes")
    assert isinstance(preflight.typed(told), OnHost)
    assert str(preflight.typed(told)) == "1 of 4 processes"


# Messages


@pytest.mark.lava
def test_24_bits_get_their_sign_back():
    from asp_neuro.chip.processes.chip_host import sign_extended

    words = np.array([0, 1, 0x7FFFFF, 0x800000, 0xFFFFFF, 0x55FFFFFE])
    assert sign_extended(words).tolist() == [0, 1, 2**23 - 1, -(2**23), -1, -2]


@pytest.mark.lava
def test_a_tick_word_has_24_bits_and_no_sign():
    from asp_neuro.chip.processes.chip_host import chip_word, read_chip_word

    assert chip_word(7).tolist() == [7]
    assert chip_word(3, 5).tolist() == [0x503]
    assert read_chip_word(chip_word(255, 65535)) == (255, 65535)
    assert read_chip_word(np.array([-1])) == (255, 65535)  # as it comes back through a signed port
    assert read_chip_word(np.array([0])) == (0, 0)


@pytest.mark.lava
def test_an_answer_to_another_observation_is_a_failure():
    from asp_neuro.chip.processes.chip_host import PyChipHostModel

    host = PyChipHostModel({"play": lambda: None, "pauses": lambda: None, "n_inputs": 2, "hits": True})
    host.observation = 3
    with pytest.raises(RuntimeError, match="answered to observation 2, asked was 3"):
        host.has_settled(2, 0)
    assert [host.has_settled(3, 9), *(host.has_settled(0, 0) for _ in range(4))] == [False, False, True, False, False]
    assert host.hit == 9
