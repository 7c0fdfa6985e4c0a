"""make and .ci/setup on machines that lack things, played with stand-ins: nothing is downloaded here."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
TOOLS = ("awk", "bash", "cat", "chmod", "cp", "dirname", "env", "make", "mkdir", "printf", "rm", "sh", "touch")

# Behaves like a Python 3.10 as far as setup asks; writes down what it was told to install.
PYTHON_310 = """#!/bin/bash
case "$1 $2" in
  "-m venv") mkdir -p "$3/bin"; cp "$0" "$3/bin/python" ;;
  "-m pip") echo "pip ${*:3}" >> "$LOG" ;;
  *"print(sys.executable)") echo "$0" ;;
  "-c "*) exit 0 ;;
esac
"""
UV = """#!/bin/bash
case "$1" in
  venv) echo "uv $*" >> "$LOG"; mkdir -p "${@: -1}/bin"; printf '#!/bin/bash\\nexit 0\\n' > "${@: -1}/bin/python"
        chmod +x "${@: -1}/bin/python" ;;
  pip) echo "uv $*" >> "$LOG" ;;
esac
"""
# Says which version it is, and nothing else.
ONLY = """#!/bin/bash
case "$2" in
  *"!= '{version}')") exit 0 ;;
  *"print(sys.executable)") echo "$0" ;;
  *) exit 1 ;;
esac
"""
SHIM_WITHOUT_ITS_VERSION = "#!/bin/bash\necho 'pyenv: command not found' >&2; exit 127\n"
OTHER_PYTHON = "#!/bin/bash\nexit 1\n"  # runs, and is not 3.10


@pytest.fixture
def machine(tmp_path):
    """A folder with our set-up files and a PATH that holds only basic tools and the given programs."""
    tree, programs = tmp_path / "tree", tmp_path / "bin"
    (tree / ".ci").mkdir(parents=True)
    programs.mkdir()
    for name in ("Makefile", "pyproject.toml", "constraints.txt", "constraints-3.12.txt", ".ci/setup"):
        shutil.copy(ROOT / name, tree / name)
    for tool in TOOLS:
        (programs / tool).symlink_to(shutil.which(tool))

    class Machine:
        folder = tree
        log = tmp_path / "log"

        def add(self, name: str, script: str) -> None:
            (programs / name).write_text(script)
            (programs / name).chmod(0o755)

        @property
        def env(self) -> dict[str, str]:
            return {"PATH": str(programs), "HOME": str(tmp_path / "home"), "LOG": str(self.log)}

        def make(self, *words: str) -> subprocess.CompletedProcess[str]:
            return subprocess.run(["make", *words], cwd=self.folder, env=self.env, capture_output=True, text=True)

        def logged(self) -> list[str]:
            return self.log.read_text().splitlines() if self.log.exists() else []

    return Machine()


def test_without_python_310_and_uv_setup_says_what_is_missing_and_leaves_nothing(machine):
    machine.add("python3.10", SHIM_WITHOUT_ITS_VERSION)
    machine.add("python3", OTHER_PYTHON)
    done = machine.make("setup")
    assert done.returncode != 0
    assert "Python 3.10 is missing" in done.stderr
    assert "pyenv install 3.10" in done.stderr
    assert not (machine.folder / ".venv").exists()


def test_a_shim_that_does_not_run_is_passed_over_for_one_that_does(machine):
    machine.add("python3.10", SHIM_WITHOUT_ITS_VERSION)
    machine.add("python3", PYTHON_310)
    done = machine.make("setup")
    assert done.returncode == 0, done.stderr
    assert machine.logged() == [
        "pip install --quiet uv",  # the stand-in does not bring it, so pip goes on alone
        "pip install --quiet --constraint constraints.txt --editable .[dev]",
        "pip install --quiet --no-deps neurobench==2.3.0",
    ]


def test_uv_brings_python_310_where_there_is_none(machine):
    machine.add("uv", UV)
    done = machine.make("setup")
    assert done.returncode == 0, done.stderr
    assert machine.logged() == [
        "uv venv --quiet --python 3.10 .venv",
        "uv pip install --quiet --python .venv/bin/python --constraint constraints.txt --editable .[dev]",
        "uv pip install --quiet --python .venv/bin/python --no-deps neurobench==2.3.0",
    ]


def test_another_python_gets_an_environment_of_its_own(machine):
    machine.add("uv", UV)
    done = machine.make("setup", "PYTHON=python3.12")
    assert done.returncode == 0, done.stderr
    assert machine.logged() == [
        "uv venv --quiet --python 3.12 .venv-3.12",
        "uv pip install --quiet --python .venv-3.12/bin/python --constraint constraints-3.12.txt --torch-backend cpu "
        "--editable .[train,plots,files,e57,nir,test]",
    ]
    assert not (machine.folder / ".venv").exists()


def test_torch_comes_with_cuda_where_its_own_index_cannot_be_reached(machine):
    machine.add("uv", UV.replace('pip) echo "uv $*" >> "$LOG"', 'pip) echo "uv $*" >> "$LOG"; [[ "$*" != *cpu* ]]'))
    assert machine.make("setup", "PYTHON=3.13").returncode == 0
    assert ["cpu" in line for line in machine.logged() if "pip install" in line] == [True, False]


def test_linting_is_left_to_the_environment_that_has_its_tools(machine):
    assert "mypy" in machine.make("-n", "test").stdout
    assert "mypy" not in machine.make("-n", "test", "PYTHON=python3.12").stdout


def test_a_python_that_nobody_knows_is_told(machine):
    done = machine.make("setup", "PYTHON=snake")
    assert done.returncode != 0
    assert "PYTHON=snake does not run" in done.stderr


def newer(machine, folder: Path) -> str:
    env = {**machine.env, "PYENV_ROOT": str(folder)}
    words = ["bash", ".ci/setup", "newer"]
    return subprocess.run(words, cwd=machine.folder, env=env, capture_output=True, text=True).stdout


def test_a_newer_python_is_found_on_the_path_or_with_pyenv_or_not_at_all(machine, tmp_path):
    assert newer(machine, tmp_path) == ""
    place = tmp_path / "versions/3.13.0/bin/python"
    place.parent.mkdir(parents=True)
    place.write_text(ONLY.format(version="3.13"))
    place.chmod(0o755)
    assert newer(machine, tmp_path) == f"{place}\n"
    machine.add("python3.12", ONLY.format(version="3.12"))
    assert Path(newer(machine, tmp_path).strip()).name == "python3.12"


def test_a_failed_installation_fails_and_is_tried_again(machine):
    machine.add("uv", UV.replace('pip) echo "uv $*" >> "$LOG"', 'pip) echo "uv $*" >> "$LOG"; exit 1'))
    for n_calls in (1, 2):
        done = machine.make("setup")
        assert done.returncode != 0
        assert "installing failed" in done.stderr
        assert sum("--editable" in line for line in machine.logged()) == n_calls


def test_setup_is_done_once_and_again_after_a_change_or_a_move(machine):
    machine.add("uv", UV)

    def installations() -> int:
        assert machine.make("setup").returncode == 0
        return sum("--editable" in line for line in machine.logged())

    assert [installations(), installations()] == [1, 1]
    later = (machine.folder / ".venv/.asp-neuro-installed").stat().st_mtime + 10
    os.utime(machine.folder / "constraints.txt", (later, later))
    assert installations() == 2
    machine.folder = machine.folder.rename(machine.folder.with_name("a folder with blanks"))
    os.utime(machine.folder / "constraints.txt", (0, 0))
    assert [installations(), installations()] == [3, 3]


def test_a_browser_is_installed_where_setup_may_and_told_of_where_it_may_not(machine):
    machine.add("uv", UV)
    assert "no chromium: the tests that open a report" in machine.make("setup").stderr
    machine.add("apt-get", '#!/bin/bash\necho "apt-get $*" >> "$LOG"\n')
    os.utime(machine.folder / "constraints.txt", (later := 4e9, later))
    machine.make("setup")
    asked = [line for line in machine.logged() if line.startswith("apt-get")]
    assert asked == ["apt-get install -qq -y --no-install-recommends chromium fonts-dejavu-core"] * (os.geteuid() == 0)
    machine.add("chromium", "#!/bin/bash\n")
    assert "chromium" not in machine.make("setup").stderr
    assert [line for line in machine.logged() if line.startswith("apt-get")] == asked


def test_make_alone_lists_what_it_can_do(machine):
    listed = machine.make().stdout
    goals = ("setup", "demo", "test", "quick", "lint", "soak", "bench", "reports", "clean")
    assert all(f"make {goal} " in listed for goal in goals)


def test_a_folder_of_data_named_by_the_user_is_kept(machine):
    (machine.folder / "GNUmakefile").write_text("include Makefile\nplace:\n\t@echo $$ASP_NEURO_DATA\n")
    assert machine.make("place").stdout == f"{machine.folder}/../shared/data\n"
    assert machine.make("place", "ASP_NEURO_DATA=/mine").stdout == "/mine\n"
