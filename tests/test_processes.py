"""The Lava models one time step at a time, against hand-computed tables; ports are lists, no runtime is started."""

from __future__ import annotations

import subprocess
import sys

import numpy as np
import pytest
import specs

from asp_neuro.chip.lava_limits import demand_buildable
from asp_neuro.chip.wire import Job, write_job
from asp_neuro.errors import ConfigError
from asp_neuro.heads.bits import DRIVE_MAX
from asp_neuro.heads.soft.layer import LayerSpec
from asp_neuro.heads.spec import HeadSpec

pytestmark = pytest.mark.lava


class Inbox:
    """An in-port that has been told what it will receive."""

    def __init__(self, *values) -> None:
        self.values = [np.asarray(value) for value in values]

    def recv(self) -> np.ndarray:
        return self.values.pop(0)


class Outbox:
    """An out-port that keeps what is sent, and in which order among all ports."""

    def __init__(self, diary: list[str], name: str) -> None:
        self.diary, self.name, self.sent = diary, name, []

    def send(self, data: np.ndarray) -> None:
        self.diary.append(self.name)
        self.sent.append(np.array(data).tolist())


def neurons(model_class, a, ticks, *, index=0, shift=0, band=(0, 0), leak=2048):
    """Two neurons with bias 1, theta 10 and 20, theta_fire 10 and 15, fed sums and tick words step by step."""
    dtype = np.int64 if model_class.__name__ == "PySoftLIFFixed" else float
    model = model_class({"index": index, "shift": shift, "n_neurons": 2})
    constants = {"bias_int": [1, 1], "lambda_int": [leak, leak], "theta_int": [10, 20], "theta_fire_int": [10, 15]}
    for name, value in (constants | dict.fromkeys(("a_sum", "u", "s"), (0, 0))).items():
        setattr(model, name, np.array(value, dtype=dtype))
    model.guard_width, model.guard_one_sided = np.array(band), np.array([False, True])
    model.a_in, model.tick_in = Inbox(*a), Inbox(*[[word] for word in ticks])
    if index == 0:  # the first layer's tick comes with its sums
        model.a_in = Inbox(*[[*sums, 2 * word] for sums, word in zip(a, ticks, strict=True)])
    model.diary = []
    for name in ("tick_out", "s_out", "u_out"):
        setattr(model, name, Outbox(model.diary, name))
    for _ in ticks:
        model.run_spk()
    return model


@pytest.fixture(scope="module")
def soft_lif():
    from asp_neuro.chip.processes import soft_lif

    return soft_lif


def test_tick_words_carry_observation_and_hit(soft_lif):
    assert soft_lif.read_word(soft_lif.tick_word(7)) == (7, 0)
    assert soft_lif.read_word(soft_lif.tick_word(65535, 2 * 4096 + 11)) == (65535, 8203)
    assert soft_lif.tick_word(3, 1).tolist() == [65539]


def test_a_neuron_sums_until_its_tick_and_holds_in_between(soft_lif):
    a = [[4, 0], [6, 7], [0, 0], [5, 8], [-9, 3], [0, 0]]
    model = neurons(soft_lif.PySoftLIFFixed, a, [0, 1, 0, 0, 2, 3])
    # observation 1: 10 + 1 = 11 > 10 fires; 7 + 1 = 8
    # observation 2: trunc(5.5) + max(0, -4 + 1) - 10 = -5; 4 + 12 = 16 > 15 fires
    # observation 3: trunc(-2.5) + 1 = -1, not -2; 8 + 1 - 20 = -11
    assert model.u_out.sent == [[0, 0, 0], [11, 8, 1], [0, 0, 0], [0, 0, 0], [-5, 16, 2], [-1, -11, 3]]
    assert model.s_out.sent == [[0, 0], [1, 0], [0, 0], [0, 0], [0, 1], [0, 0]]


def test_the_tick_leaves_one_step_late_and_first_of_all(soft_lif):
    model = neurons(soft_lif.PySoftLIFFixed, [[0, 0]] * 4, [1, 0, 2, 0])
    assert model.tick_out.sent == [[0], [1], [0], [2]]
    assert [word for _, _, word in model.u_out.sent] == [1, 0, 2, 0]
    assert model.diary[:3] == ["tick_out", "s_out", "u_out"]


def test_a_first_tick_forgets_the_membrane_and_the_spike_but_not_its_own_input(soft_lif):
    model = neurons(soft_lif.PySoftLIFFixed, [[99, 99], [3, 4]], [1, 1])
    assert model.u_out.sent == [[100, 100, 1], [4, 5, 1]]


def test_equality_with_the_threshold_does_not_fire(soft_lif):
    model = neurons(soft_lif.PySoftLIFFixed, [[9, 15]], [1])
    assert model.u_out.sent == [[10, 16, 1]]
    assert model.s_out.sent == [[0, 1]]


def test_sums_are_shifted_in_64_bits(soft_lif):
    model = neurons(soft_lif.PySoftLIFFixed, [np.array([2**30, -(2**30)], dtype=np.int32)], [1], shift=6)
    assert model.u_out.sent == [[2**23 - 1, 0, (1 << 16) + 1]]  # at the limit: a guard hit


def test_the_floating_point_model_keeps_fractions_and_large_membranes(soft_lif):
    model = neurons(soft_lif.PySoftLIFFloat, [[4.0, 2.0**24], [0.0, 0.0]], [1, 2], shift=1)
    assert model.u_out.sent == [
        [9.0, 2.0**25 + 1, (2 << 16) + 1],  # above the limit of 24 bits: a guard hit
        [5.5, 2.0**24 + 0.5 + 1 - 20, (2 << 16) + 2],
    ]


@pytest.mark.parametrize(
    ("sums", "hit"),
    [
        ((5, 0), 0),  # 6 against 10, band 2
        ((8, 0), 1),  # 9
        ((9, 0), 1),  # 10
        ((10, 0), 1),  # 11
        ((11, 0), 0),  # 12
        ((0, 13), 2),  # 14 against 15, lower side only
        ((0, 15), 0),  # 16
        ((8, 13), 1),  # the first of two
        ((2**23, 0), 1),  # at the clip limit
    ],
)
def test_the_first_neuron_within_its_band_is_noted(soft_lif, sums, hit):
    tick = soft_lif.tick_word
    model = neurons(soft_lif.PySoftLIFFixed, [[0, 0], sums], [1, 3], leak=0, band=(5, 5), index=0)
    assert [u[-1:] for u in model.u_out.sent] == [[1], tick(3, hit).tolist()]
    model = neurons(soft_lif.PySoftLIFFixed, [[0, 0], sums], [1, 3], leak=0, band=(5, 5), index=2)
    assert [u[-1:] for u in model.u_out.sent] == [[1], tick(3, hit + 2 * 4096 if hit else 0).tolist()]


def test_an_earlier_layers_hit_is_kept(soft_lif):
    word = int(soft_lif.tick_word(3, 77)[0])
    model = neurons(soft_lif.PySoftLIFFixed, [[0, 0], [9, 0]], [1, word], leak=0, band=(5, 5), index=1)
    assert [u[-1] for u in model.u_out.sent] == [1, word]


def host_of(requests, pauses, n_steps, answers):
    """A host model that plays `requests`; `answers` gives the tick word that comes back in each step."""
    from asp_neuro.chip.processes.host import PyHostModel

    heard = []

    def play():
        for request in requests:
            heard.append((yield request))

    model = PyHostModel({"play": play, "pauses": lambda: iter(pauses), "n_inputs": 2})
    model.u_in = Inbox(*[[step, word] for step, word in enumerate(answers)])
    model.drive_out = Outbox([], "drive")
    for _ in range(n_steps):
        model.run_spk()
    return model, heard


def test_the_host_sends_a_drive_with_its_tick_once_the_last_one_is_answered():
    from asp_neuro.chip.processes.soft_lif import tick_word
    from asp_neuro.model.episode import Request

    on = np.zeros(1, dtype=int)
    requests = [Request(np.array([[n, n]]), keep) for n, keep in ((1, None), (2, on), (3, None))]
    hit = int(tick_word(2, 5)[0])
    model, heard = host_of(requests, [0, 2, 0], 10, [0, 0, 1, 0, 0, 0, hit, 0, 1, 0])
    silence = [0, 0, 0]
    assert model.drive_out.sent == [[1, 1, 1], *[silence] * 3, [2, 2, 2], silence, [3, 3, 1], *[silence] * 3]
    assert [(int(r.membrane[0, 0]), r.hit.tolist()) for r in heard] == [(2, [0]), (6, [5]), (8, [0])]
    assert model._req_pause


def test_a_run_is_paused_only_when_the_story_is_told():
    from asp_neuro.model.episode import Request

    requests = [Request(np.ones((1, 2)), None)]
    assert not host_of(requests, [0], 2, [0, 0])[0]._req_pause
    assert host_of(requests, [0], 3, [0, 0, 1])[0]._req_pause


def wide_head(n_inputs: int, n_neurons: int = 1) -> HeadSpec:
    ones = np.ones(n_neurons, dtype=np.int64)
    weight = np.full((n_neurons, n_inputs), 254, dtype=np.int64)
    return HeadSpec((LayerSpec(weight, ones, ones, ones, ones, np.ones(n_neurons), 12),))


def test_sums_that_could_wrap_in_32_bits_are_refused():
    fits = (2**31 - 1) // (254 * DRIVE_MAX)
    demand_buildable(wide_head(fits), 16)
    with pytest.raises(ConfigError, match="layer 1: synaptic sums can reach"):
        demand_buildable(wide_head(fits + 1), 16)
    demand_buildable(wide_head(fits + 1), 16, drive_bound=np.full(fits + 1, DRIVE_MAX - 200.0))


def test_what_a_tick_cannot_carry_is_refused():
    with pytest.raises(ConfigError, match=r"32768 observations.*1\.\.32767"):
        demand_buildable(wide_head(1), 32768)
    with pytest.raises(ConfigError, match="4097 neurons"):
        demand_buildable(wide_head(1, 4097), 16)


def test_the_lava_side_loads_neither_torch_nor_lava_dl(tmp_path):
    rng = np.random.default_rng(0)
    perceiver = specs.random_perceiver(rng)
    scenes = perceiver.scenes(specs.random_clouds(rng, 1))
    with open(tmp_path / "job.npz", "wb") as file:
        write_job(file, Job(perceiver.head, 6, perceiver.spec, scenes))
    program = """
import sys
from lava.magma.core.run_configs import Loihi2SimCfg
from asp_neuro.chip import simulator
with open(sys.argv[1], "rb") as file:
    host = simulator.network(simulator.read_job(file), 1, [])
executable = host.compile(Loihi2SimCfg(select_tag="fixed_pt", select_sub_proc_model=True))
print([type(process).__name__ for process in executable.proc_builders])
print([builder.proc_model.__name__ for builder in executable.proc_builders.values()])
print([name for name in sys.modules if name.split(".")[0] == "torch" or name.startswith("lava.lib")])
"""
    command = [sys.executable, "-W", "error::UserWarning", "-c", program, str(tmp_path / "job.npz")]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    processes, models, heavy = done.stdout.splitlines()
    assert sorted(eval(processes)) == ["Dense", "Dense", "Host", "SoftLIF", "SoftLIF"]
    assert set(eval(models)) == {"PyDenseModelBitAcc", "PyHostModel", "PySoftLIFFixed"}
    assert heavy == "[]"
