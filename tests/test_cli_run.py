"""`asp-neuro run` on clouds in files and from standard input: what it says, what it writes, what it refuses."""

from __future__ import annotations

import io
import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from asp_neuro.data import load_clouds

KEYS = {
    *("id", "label", "class", "probability", "margin", "observations", "order", "exit", "preserved"),
    *("points", "dropped", "removed", "unfamiliar"),
}


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A working folder with clouds in files."""
    clouds = load_clouds("shapes", "test").points[:3].astype(np.float64)
    np.save(tmp_path / "a.npy", clouds[0])
    np.savetxt(tmp_path / "b.xyz", clouds[1])
    np.savetxt(tmp_path / "few.xyz", clouds[2][:300])
    holes = clouds[0].copy()
    holes[:200] = np.nan
    np.save(tmp_path / "holes.npy", holes)
    (tmp_path / "broken.xyz").write_text("1 2\n")
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture
def run(cli, folder):
    """`run("--input", "a.npy")`: of the compact bundle, at a margin of 0.5."""
    return lambda *words: cli("run", "compact", "--threshold", "0.5", *words)


def stdin(monkeypatch: pytest.MonkeyPatch, raw: bytes) -> None:
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(raw)))


def test_the_answer_for_a_file_is_in_the_json(run) -> None:
    [answer] = run("--input", "a.npy", "--json").json["answers"]
    assert set(answer) >= KEYS
    assert (answer["id"], answer["class"], answer["exit"]) == ("a.npy", "box", "threshold")
    assert (answer["points"], answer["dropped"], answer["removed"], answer["unfamiliar"]) == (1024, 0, 0, None)
    assert len(answer["order"]) == answer["observations"]


@pytest.mark.parametrize("words", [("--input", "a.npy", "b.xyz"), ("--input", "a.npy", "--input", "b.xyz")])
def test_several_files_are_answered_together_as_each_alone(run, words) -> None:
    both = run(*words, "--json").json
    assert both["n"] == 2
    alone = [run("--input", name, "--json").json["answers"][0] for name in ("a.npy", "b.xyz")]
    assert both["answers"] == alone


def test_several_files_have_a_line_each(run) -> None:
    lines = run("--input", "a.npy", "few.xyz").out.splitlines()
    assert lines[0].split()[:2] == ["file", "class"]
    assert lines[2].split()[:2] == ["a.npy", "box"]
    assert lines[3].startswith("few.xyz")
    assert "300 distinct points" in lines[3]
    assert lines[4:6] == [
        "",
        "-" * 28 + "  " + "-" * len(lines[5].split()[1]),
    ]  # one blank line, then the table of the run
    assert any(line.startswith("too few points for a promise  50.0 % of the clouds") for line in lines)


def test_a_data_set_has_no_answers_but_the_new_shares(run) -> None:
    report = run("--limit", "5", "--json").json
    assert "answers" not in report
    assert report["unfamiliar_share"] == 0.0
    assert report["wrong_among_certified"] == report["certified_risk"]


def test_a_broken_file_among_several_is_named_before_any_answer(run, folder) -> None:
    said = run("--input", "a.npy", "broken.xyz", "gone.ply", "--jsonl", "out.jsonl")
    assert said.code == 2
    assert "2 of 3 inputs cannot be used, so none was answered" in said.err
    assert "broken.xyz: 2 columns, expected 3" in said.err
    assert "gone.ply: no such file" in said.err
    assert said.out == ""
    assert not (folder / "out.jsonl").exists()


def test_a_single_broken_file_is_told_in_one_line(run) -> None:
    said = run("--input", "broken.xyz")
    assert said.code == 2
    assert said.err.splitlines()[-1].startswith("asp-neuro: error: broken.xyz: 2 columns")


def test_the_same_file_twice_is_refused(run) -> None:
    said = run("--input", "a.npy", "a.npy")
    assert (said.code, "names 'a.npy' twice" in said.err) == (2, True)


def test_a_bundle_behind_the_inputs_is_recognised(cli, folder) -> None:
    said = cli("run", "--input", "a.npy", "compact")
    assert said.code == 2
    assert "'compact' was taken for a cloud; put the bundle first: asp-neuro run compact --input" in said.err
    assert cli("run", "--threshold", "0.5", "--input", "a.npy", "--bundle", "compact").code == 0


# Standard input


def encoded(cloud: np.ndarray, kind: str) -> bytes:
    stream = io.BytesIO()
    if kind == "npy":
        np.save(stream, cloud)
    elif kind == "npz":
        np.savez(stream, points=cloud)
    elif kind == "ply":
        head = "ply\nformat ascii 1.0\nelement vertex 1024\n" + "".join(f"property double {a}\n" for a in "xyz")
        stream.write((head + "end_header\n").encode())
    if kind in ("xyz", "ply"):
        np.savetxt(stream, cloud)
    return stream.getvalue()


@pytest.mark.parametrize("kind", ["xyz", "npy", "npz", "ply"])
def test_a_cloud_comes_from_standard_input(run, folder, monkeypatch, kind) -> None:
    [known] = run("--input", "a.npy", "--json").json["answers"]
    stdin(monkeypatch, encoded(np.load(folder / "a.npy"), kind))
    [answer] = run("--input", "-", "--json").json["answers"]
    assert answer == {**known, "id": "-"}


def test_a_pipe_is_read_to_its_end(folder) -> None:
    command = [sys.executable, "-m", "asp_neuro", "run", "compact", "--threshold", "0.5", "--input", "-", "--json"]
    done = subprocess.run(command, input=Path("b.xyz").read_bytes(), capture_output=True, env=os.environ, timeout=120)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["answers"][0]["class"] == "box"


@pytest.mark.parametrize(
    ("raw", "why"),
    [(b"", "-: nothing came from standard input"), (b"\0\1\2", "-: binary content"), (b"hello\n", "-: not a table")],
)
def test_standard_input_without_a_cloud_is_refused(run, monkeypatch, raw, why) -> None:
    stdin(monkeypatch, raw)
    said = run("--input", "-")
    assert (said.code, why in said.err) == (2, True)


# JSON lines


def test_json_lines_go_to_standard_output_and_all_else_to_standard_error(run, folder) -> None:
    said = run("--input", "a.npy", "b.xyz", "--jsonl", "-")
    lines = [json.loads(line) for line in said.out.splitlines()]
    assert [line["id"] for line in lines] == ["a.npy", "b.xyz"]
    assert all(set(line) >= KEYS | {"truth"} for line in lines)
    assert "spikes proven" in said.err
    assert not (folder / "-").exists()


def test_json_lines_and_a_json_object_cannot_share_standard_output(run) -> None:
    said = run("--limit", "3", "--jsonl", "-", "--json")
    assert (said.code, said.json["error"]["kind"]) == (2, "usage")
    assert "both want stdout" in said.json["error"]["message"]


# Points without a return


def test_points_without_a_return_need_the_option_that_the_refusal_names(run) -> None:
    said = run("--input", "holes.npy")
    assert said.code == 2
    assert "200 of 1024 in all; leave such points out with drop_invalid=True (--drop-invalid)" in said.err
    [answer] = run("--input", "holes.npy", "--drop-invalid", "--json").json["answers"]
    assert (answer["points"], answer["dropped"]) == (824, 200)
    assert "Left out: 200 of the points" in run("--input", "holes.npy", "--drop-invalid").out


def test_dropping_is_for_files(run) -> None:
    said = run("--limit", "2", "--drop-invalid")
    assert (said.code, "--drop-invalid is for clouds of --input" in said.err) == (2, True)
