"""Sessions end well whatever happens: in time, with the cause, and with no process and no shared memory left."""

from __future__ import annotations

import io
import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import numpy as np
import pytest
import specs

from asp_neuro.chip import session
from asp_neuro.chip.faults import VARIABLE
from asp_neuro.chip.session import SessionError, Side, members, simulate
from asp_neuro.chip.wire import Job, from_line, read_job, to_line, write_job
from asp_neuro.errors import AspError
from asp_neuro.grid.sections import leaves, settings
from asp_neuro.model.exit import ExitRule

N_CLOUDS = 6


def left_by(pid: int) -> list[str]:
    """Shared-memory segments of the sessions that a process started."""
    return [path.name for path in Path("/dev/shm").glob(f"asp{pid:x}_*")]


@pytest.fixture(scope="module")
def scene():
    rng = np.random.default_rng(5)
    perceiver = specs.random_perceiver(rng)
    return perceiver, perceiver.scenes(specs.random_clouds(rng, N_CLOUDS))


@pytest.fixture
def groups(monkeypatch):
    """The process groups that were started, and proof that segments of theirs existed.

    Looked for all along: a process that fails may have cleaned up by itself before the session is ended.
    """
    started: dict[int, set[str]] = {}
    seen: set[str] = set()
    over = threading.Event()
    end = session._end

    def look():
        while not over.wait(0.01):
            seen.update(left_by(os.getpid()))

    def noted_end(process, prefix):
        started[process.pid] = seen.union(left_by(os.getpid()))
        end(process, prefix)

    monkeypatch.setattr(session, "_end", noted_end)
    watcher = threading.Thread(target=look, daemon=True)
    watcher.start()
    yield started
    over.set()
    watcher.join()


FAULTS = [
    (
        "PySoftLIFFixed:constructor:0",
        ["(PySoftLIFFixed)", "neurons", "phase constructor", "planted: constructor"],
    ),
    (
        "PySoftLIFFixed:before receive:3",
        ["(PySoftLIFFixed)", "phase spiking", "time step 3", "planted: before receive"],
    ),
    ("PySoftLIFFixed:before send:3", ["(PySoftLIFFixed)", "phase spiking", "time step 3", "planted: before send"]),
    ("PySoftLIFFixed:after send:3", ["(PySoftLIFFixed)", "phase spiking", "time step 3", "planted: after send"]),
    ("PyDenseModelBitAcc:before receive:4", ["layer", "synapses (PyDenseModelBitAcc)", "time step 4"]),
    ("PyHostModel:before receive:40", ["host (PyHostModel)", "time step 40"]),
    ("PyHostModel:kill:40", ["host", "ended with code -9"]),
    ("PySoftLIFFixed:hang:3", ["deadline of 6 s", "during running", "0 of 6 clouds done"]),
]


@pytest.mark.lava
@pytest.mark.slow
@pytest.mark.parametrize(("fault", "words"), FAULTS, ids=[fault for fault, _ in FAULTS])
def test_a_failure_anywhere_is_told_in_time_and_leaves_nothing(scene, groups, monkeypatch, fault, words):
    monkeypatch.setenv(VARIABLE, fault)
    deadline = 6.0 if "hang" in fault else 60.0
    told = []
    started = time.monotonic()
    with pytest.raises(SessionError) as caught:
        simulate(*scene, ExitRule(), deadline=deadline, on_answer=lambda index, answer: told.append(answer))
    for word in words:
        assert word in str(caught.value)
    assert caught.value.answers == told
    assert ("chip/faults.py" in caught.value.trace) == ("planted" in str(caught.value))
    assert time.monotonic() - started < 10.0
    assert len(told) == (3 if fault.endswith(":40") else 0)  # 12 steps a cloud: what was finished is kept
    ((group, segments),) = groups.items()
    assert len(segments) > 5
    assert members(group) == []
    assert left_by(os.getpid()) == []


# A supervisor that works for long, and says what it is doing.
SUPERVISOR = """
import sys
sys.path.insert(0, sys.argv[1])
import numpy as np, specs
from asp_neuro.model.exit import ExitRule
from asp_neuro.chip.session import simulate
rng = np.random.default_rng(5)
perceiver = specs.random_perceiver(rng)
chunks = perceiver.scenes(specs.random_clouds(rng, 4))[np.arange(2000) % 4]
simulate(perceiver, chunks, ExitRule(), on_answer=lambda index, answer: print(index, flush=True))
"""


def leader_of(pid: int) -> int:
    """The process that a supervisor has started."""
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            if int(stat.read_text().rpartition(")")[2].split()[1]) == pid:
                return int(stat.parent.name)
        except OSError:
            pass
    raise AssertionError(f"process {pid} has no child")


@pytest.mark.lava
@pytest.mark.slow
@pytest.mark.parametrize(
    ("number", "target", "code"),
    [
        (signal.SIGINT, "supervisor", -signal.SIGINT),
        (signal.SIGTERM, "supervisor", 143),
        (signal.SIGKILL, "supervisor", -signal.SIGKILL),
        (signal.SIGKILL, "leader", 1),
        (signal.SIGKILL, "both", -signal.SIGKILL),
    ],
)
def test_a_signal_ends_everything(number, target, code):
    command = [sys.executable, "-c", SUPERVISOR, str(Path(specs.__file__).parent)]
    supervisor = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    try:
        assert supervisor.stdout.readline() == "0\n"
        leader = leader_of(supervisor.pid)
        assert len(members(leader)) >= 7  # leader, five models, runtime service, and Python's helpers
        assert len(left_by(supervisor.pid)) > 5
        struck = time.monotonic()
        for pid in {"supervisor": [supervisor.pid], "leader": [leader], "both": [supervisor.pid, leader]}[target]:
            os.kill(pid, number)
        _, words = supervisor.communicate(timeout=10)
        while (members(leader) or left_by(supervisor.pid)) and time.monotonic() - struck < 10.0:
            time.sleep(0.02)
        assert time.monotonic() - struck < 5.0
        assert members(leader) == []
        assert left_by(supervisor.pid) == []
        assert supervisor.returncode == code
        assert ("ended with code 9 during running" in words) == (target == "leader")
    finally:
        supervisor.kill()
        supervisor.wait()


@pytest.mark.lava
@pytest.mark.slow
def test_an_interrupted_callback_ends_the_session(scene, groups):
    def interrupt(index, answer):
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        simulate(*scene, ExitRule(), on_answer=interrupt)
    assert [members(group) for group in groups] == [[]]
    assert left_by(os.getpid()) == []
    assert signal.getsignal(signal.SIGTERM) == signal.SIG_DFL


@pytest.mark.lava
@pytest.mark.slow
def test_a_leader_that_cannot_start_is_told_with_its_last_words(scene, groups):
    nowhere = Side("asp_neuro.no_such_leader", 60.0)
    with pytest.raises(SessionError, match=r"code 1 during starting; its last words: ModuleNotFoundError: .*no_such"):
        simulate(*scene, ExitRule(), side=nowhere)
    assert [members(group) for group in groups] == [[]]


@pytest.mark.lava
def test_silence_is_not_waited_for_for_ever(scene, groups, monkeypatch):
    monkeypatch.setattr(Side, "program", "import time; time.sleep(60)")
    with pytest.raises(SessionError, match=r"nothing was heard for 0.5 s during starting, 0 of 6 clouds done"):
        simulate(*scene, ExitRule(), side=Side("", 0.5))
    assert [members(group) for group in groups] == [[]]


@pytest.mark.lava
@pytest.mark.parametrize("name", ["_spike", "_lrn"])
def test_a_lava_without_the_names_we_need_is_refused(monkeypatch, name):
    from asp_neuro.chip import simulator

    simulator.demand_lava()
    monkeypatch.delattr(simulator.PyLoihiProcessModel, name)
    with pytest.raises(RuntimeError, match=r"made for lava-nc 0.10.0 .* missing: PyLoihiProcessModel phases"):
        simulator.demand_lava()


def test_a_session_error_is_one_of_ours():
    assert issubclass(SessionError, AspError)
    assert (SessionError.kind, SessionError.exit_code) == ("session", 6)


def there_and_back(job: Job) -> Job:
    file = io.BytesIO()
    write_job(file, job)
    file.seek(0)
    return read_job(file)


def assert_same_section(ours, theirs) -> None:
    """Every array in its type, every setting."""
    assert type(ours) is type(theirs)
    assert settings(ours) == settings(theirs)
    assert leaves(ours).keys() == leaves(theirs).keys()
    for name, array in leaves(theirs).items():
        np.testing.assert_array_equal(leaves(ours)[name], array)
        assert leaves(ours)[name].dtype == array.dtype, name


@pytest.mark.parametrize(
    "parts", [{}, {"moments": True, "token_width": 20, "first_look": 6, "budget": 4, "mask": False}]
)
def test_a_job_comes_back_as_it_was(scene, parts):
    perceiver = specs.random_perceiver(np.random.default_rng(5), **parts)
    _, chunks = scene
    order = np.arange(36).reshape(6, 6) % 6
    rule = ExitRule(tau=0.1 + 0.2, certified=True, kappa=0.5)
    bound = perceiver.spec.drive_bound()
    back = there_and_back(
        Job(perceiver.head, 6, perceiver.spec, chunks, rule, order, drive_bound=bound, idle=2, idle_seed=3)
    )
    assert (back.n_steps, back.tag, back.idle, back.idle_seed, back.n_clouds) == (6, "fixed_pt", 2, 3, N_CLOUDS)
    assert back.exit_rule == rule
    assert back.drives_int is None
    for head in (back.head, back.model.head):
        assert head.form == perceiver.head.form
        for ours, theirs in zip(head.layers, perceiver.head.layers, strict=True):
            for name, value in vars(theirs).items():
                np.testing.assert_array_equal(getattr(ours, name), value)
    for name in ("scene", "mixer", "belief", "policy", "task"):
        assert_same_section(getattr(back.model, name), getattr(perceiver.spec, name))
    assert back.model.budget == perceiver.budget
    assert_same_section(back.scenes, chunks)
    for name, value in (("order", order), ("drive_bound", bound)):
        np.testing.assert_array_equal(getattr(back, name), value)
        assert getattr(back, name).dtype == value.dtype


def test_a_job_of_drives_alone_comes_back_as_it_was(scene):
    drives = specs.random_drives(np.random.default_rng(0), 4, 3, 16)
    back = there_and_back(Job(scene[0].head, 4, drives_int=drives, tag="floating_pt"))
    assert (back.model, back.scenes, back.order, back.drive_bound) == (None, None, None, None)
    assert (back.tag, back.n_clouds) == ("floating_pt", 3)
    np.testing.assert_array_equal(back.drives_int, drives)


def test_an_answer_comes_back_as_it_was(scene):
    perceiver, chunks = scene
    for answer in perceiver.answers(chunks, ExitRule(tau=0.3)):
        back = from_line(to_line(answer))
        for name, value in vars(answer).items():
            np.testing.assert_array_equal(getattr(back, name), value)
            assert type(getattr(back, name)) is type(value)
    assert b"\n" not in to_line(answer)[:-1]


def test_only_records_of_ours_have_a_line():
    with pytest.raises(TypeError, match="no line form for Stranger"):
        to_line(type("Stranger", (), {"__dataclass_fields__": {}})())
    with pytest.raises(ModuleNotFoundError):
        from_line(b'{"kind": "os:system", "value": "true"}')


@pytest.mark.lava
def test_lava_can_be_imported_where_processes_were_used_before():
    code = (
        "import multiprocessing; multiprocessing.Queue(); from asp_neuro.chip import simulator; "
        "print(multiprocessing.get_start_method())"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.stdout.split() == ["fork"], done.stderr
