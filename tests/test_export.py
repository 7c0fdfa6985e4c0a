"""export: copies the trained integers, refuses what does not fit, gives the same bytes twice."""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys

import numpy as np
import pytest

from asp_neuro import bundle as bundles
from asp_neuro.errors import InputError
from asp_neuro.learn import checkpoint
from asp_neuro.learn import exporter as export

COMPACT = checkpoint.find("compact")


def stored() -> dict:
    return {k: v for k, v in checkpoint.read(COMPACT).items() if k not in ("format", "version")}


@pytest.fixture(scope="module")
def exported():
    return export.export(COMPACT)


def test_the_bundle_holds_the_trained_integers(exported):
    from asp_neuro.learn.training import load_model

    model, *_ = load_model(COMPACT)
    for ours, theirs in zip(exported.bundle.head.layers, model.head.spec().layers, strict=True):
        assert np.array_equal(ours.weight_int, theirs.weight_int)
        assert np.array_equal(ours.theta_fire_int, theirs.theta_fire_int)
    assert not exported.bundle.record["discretised_at_export"]


def test_the_bundle_holds_the_recipe_under_the_names_it_was_trained_with(exported):
    """A newer name for a key would be another `model_sha256` for the same network."""
    assert exported.bundle.recipe == checkpoint.read(COMPACT)["recipe"]


def test_exporting_twice_gives_identical_bytes(exported, tmp_path):
    bundles.write(tmp_path / "a.net", exported.bundle)
    bundles.write(tmp_path / "b.net", export.export(COMPACT).bundle)
    assert (tmp_path / "a.net").read_bytes() == (tmp_path / "b.net").read_bytes()


def test_the_exported_network_loses_at_most_half_a_point(exported):
    assert exported.float_accuracy - exported.deploy_accuracy <= 0.005
    assert "validation clouds" in exported.text


def test_the_exported_network_looks_and_answers_as_the_trained_module_does(exported):
    assert exported.agreement == (1.0, 1.0, 1.0)
    assert "100.0 % of the whole orders" in exported.text


def test_export_copies_the_integers_of_the_checkpoint(exported, tmp_path, capsys):
    content = stored()
    assert exported.bundle.model.mixer.gates.weight.dtype == np.int8
    held = content["integers"]["asp/model/mixer/gates/weight"]
    np.testing.assert_array_equal(exported.bundle.model.mixer.gates.weight, held.numpy())
    held[3, 5] += 1 if held[3, 5] < 100 else -1
    checkpoint.save(tmp_path / "other.pt", content)
    made = export.export(tmp_path / "other.pt")
    assert (made.bundle.model.mixer.gates.weight != exported.bundle.model.mixer.gates.weight).sum() == 1
    assert "asp/model/mixer/gates/weight, 1 of 20480; these are copied" in capsys.readouterr().err
    assert made.agreement.order < 1.0  # one unit in one weight is seen


def test_integers_that_are_damaged_are_refused(tmp_path):
    content = stored()
    del content["integers"]["asp/model/mixer/gates/shift"]
    checkpoint.save(tmp_path / "other.pt", content)
    with pytest.raises(InputError, match="its integers cannot be read"):
        export.export(tmp_path / "other.pt")


def test_a_checkpoint_that_never_reached_the_grid_is_discretised_with_a_warning(tmp_path, capsys):
    content = stored()
    content["deploy"] = False
    content["model"] = {k: v for k, v in content["model"].items() if ".grid" not in f".{k}"}  # as before version 0.2
    del content["integers"]
    checkpoint.save(tmp_path / "float.pt", content)
    made = export.export(tmp_path / "float.pt")
    assert "never ran on the integer grid" in capsys.readouterr().err
    assert made.bundle.record["discretised_at_export"]
    assert made.deploy_accuracy > 0.85


def test_a_head_that_does_not_fit_is_refused_and_nothing_is_written(tmp_path, shell):
    content = stored()
    content["integers"]["layer/1/bias"] += 2**24
    checkpoint.save(tmp_path / "model.pt", content)
    said = shell("export", "model.pt", "--json")
    assert said.code == 2
    assert "layer 2: bias" in said.json["error"]["message"]
    assert not (tmp_path / "model.net").exists()


def test_a_missing_checkpoint_says_how_to_make_one(shell):
    said = shell("export")
    assert said.code == 2
    assert "asp-neuro train" in said.err


AGAIN = """
import functools, sys
threads, batch, out, checkpoint, moved = int(sys.argv[1]), int(sys.argv[2]), *sys.argv[3:]
import numpy as np
import torch
torch.set_num_threads(threads)
from asp_neuro import bundle
from asp_neuro.learn import evaluation, exporter
from asp_neuro.runtime import deployment, takes
exporter.BATCH = evaluation.BATCH = batch
deployment.fast_answers = functools.partial(deployment.fast_answers, batch=batch)
recorded = takes.Recording
def move(margins, *rest):
    return recorded(np.nextafter(margins, 2.0) if moved == "moved" else margins, *rest)
takes.Recording = move
bundle.write(out, exporter.export(checkpoint).bundle)
deployed = deployment.open_bundle(out)
deployment.store(deployed, deployment.certify(deployed))
"""


def exported_in_a_process(out, threads: int, batch: int, moved: str = "") -> str:
    """The hash of a bundle with its certificate; `moved`: every margin is off by its last bit."""
    limits = dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"), str(threads))
    words = [sys.executable, "-c", AGAIN, str(threads), str(batch), str(out), str(COMPACT), moved]
    done = subprocess.run(words, env={**os.environ, **limits}, capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stderr
    return hashlib.sha256(out.read_bytes()).hexdigest()


@pytest.mark.slow
def test_fresh_processes_export_the_same_bytes_whatever_the_threads_and_the_batch(tmp_path):
    """Accuracies, largest membranes, golden vectors and the certificate must not hang on the order of a sum."""
    made = [
        exported_in_a_process(tmp_path / f"{threads}_{batch}.net", threads, batch)
        for threads, batch in ((1, 256), (2, 256), (1, 17), (3, 5))
    ]
    assert len(set(made)) == 1, made
    assert exported_in_a_process(tmp_path / "moved.net", 1, 256, "moved") not in made  # planted: the last bit is seen
