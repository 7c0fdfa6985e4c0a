"""More wrong answers than promised: told with the chance of it, by hand-computed numbers, and only then."""

from __future__ import annotations

import math

import pytest

from asp_neuro.certify import excess
from asp_neuro.cli.verbs.run import _run_text, above_promise


@pytest.mark.parametrize(
    ("errors", "accepted", "alpha"), [(1, 1, 0.05), (2, 3, 0.5), (43, 810, 0.05), (0, 10, 0.05), (7, 40, 0.1)]
)
def test_the_chance_is_the_binomial_tail(errors, accepted, alpha):
    tail = sum(math.comb(accepted, k) * alpha**k * (1 - alpha) ** (accepted - k) for k in range(errors, accepted + 1))
    assert excess.chance(errors, accepted, alpha) == pytest.approx(tail, rel=1e-9)


def test_at_or_below_the_promise_nothing_is_said():
    assert excess.sentence(5, 100, 0.05) is None
    assert excess.sentence(0, 100, 0.05) is None


def test_a_little_more_is_chance_and_much_more_is_other_data():
    little, much = excess.sentence(43, 810, 0.05), excess.sentence(90, 810, 0.05)
    assert little.startswith("43 of 810 certified answers are wrong, more than the promised 5 %.")
    assert "chance makes it that many in at most 37 % of such runs: no sign against it" in little
    assert "less than 0.01 % of such runs: these clouds are most likely not like those of the calibration" in much
    assert "docs/certificates.md" in much


def report(risk: float | None, promised: float | None) -> dict:
    return {
        "backend": "fast", "n": 100, "accuracy": 0.9, "mean_observations": 3.0, "budget": 16, "preserved_share": 1.0,
        "exits": {"certified": 80, "threshold": 0, "budget": 20}, "wrong_among_certified": risk, "certified_risk": risk,
        "promised_risk": promised, "short_share": 0.0, "unfamiliar_share": None,
        "equal_share": None, "recomputed": None, "seconds": 1.0, "sha256": "ab" * 32,
    }  # fmt: skip


def test_a_run_says_it_beside_the_share():
    told = report(0.1, 0.05)
    text = _run_text({**told, "above_promise": above_promise(told)})
    assert "10.00 %" in text
    assert "8 of 80 certified answers are wrong, more than the promised 5 %" in text
    for quiet in (report(0.05, 0.05), report(None, 0.05), report(0.1, None)):
        assert above_promise(quiet) is None
        assert "promised" not in _run_text({**quiet, "above_promise": None})


def test_a_report_carries_the_promise(cli):
    said = cli("run", "compact", "--limit", "30", "--json")
    assert (said.json["promised_risk"], said.json["above_promise"]) == (0.05, None)
    assert cli("run", "compact", "--limit", "3", "--no-exit", "--json").json["promised_risk"] is None
