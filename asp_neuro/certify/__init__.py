"""The certified exit: which threshold may promise a risk of at most alpha (paper Thm. S4, S19, J.1, put right).

    accepted(tau): Delta_t > tau at some t;    R(tau) = P(wrong at the first crossing | accepted)
    given n_acc accepted, the errors k are Bin(n_acc, R(tau)), so for the null "R(tau) > alpha"
        p(tau) = BinCDF(k; n_acc, alpha),   1 if none is accepted                             is a p-value
    plan     (from data independent of the calibration split; j = 1..G from strict to loose)
        r_j  = (errors_j + 1) / (accepted_j + 2);    s = argmax_j (alpha - r_j) sqrt(n coverage_j)
        share_j = 0.2 / G;    share_s += 0.8
    certify  level_j = delta share_j + (level_{j-1} if j-1 passed else 0);    j passes iff p_j <= level_j
        the certified tau is the loosest that passed

A true null has, before the first false pass, at most the sum of the shares since the true null before it; these are
fixed numbers that sum to delta at most. So with probability >= 1 - delta over the calibration draw nothing is
certified or R <= alpha: for any dependence between thresholds, any number of looks, and without monotonicity.

The paper takes min{tau : UCB(tau) <= alpha} and pays nothing for the search (`paper_rule`): that is not valid.
"""

from __future__ import annotations

from asp_neuro.certify.bounds import binomial_cdf, check_levels, clopper_pearson, percent
from asp_neuro.certify.certificate import (
    Certificate,
    Covered,
    Row,
    certify,
    certify_alone,
    check_disjoint,
    exit_rule,
    paper_rule,
    pilot_index,
    pilot_split,
    promise,
    why_void,
)
from asp_neuro.certify.plan import (
    N_GRID_MAX,
    START_SHARE,
    Condition,
    Plan,
    Walk,
    accepted_for_power,
    advice,
    make_plan,
    minimum_accepted,
    paper_walk,
    sizes,
    thresholds,
    walk,
    walk_all,
)
from asp_neuro.certify.recording import Recording, Tallies, Tally, at_exit, tallies, tally_at

__all__ = [
    "N_GRID_MAX", "START_SHARE", "Certificate", "Condition", "Covered", "Plan", "Recording", "Row", "Tallies",
    "Tally", "Walk", "accepted_for_power", "advice", "at_exit", "binomial_cdf", "certify", "certify_alone",
    "check_disjoint", "check_levels", "clopper_pearson", "exit_rule", "make_plan", "minimum_accepted", "paper_rule",
    "paper_walk", "percent", "pilot_index", "pilot_split", "promise", "sizes", "tallies", "tally_at", "thresholds",
    "walk", "walk_all", "why_void",
]  # fmt: skip
