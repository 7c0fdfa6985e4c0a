"""Promises for points (J.1 leaves them open): do they hold on these shapes, at the thresholds that the bundle has?

The unit is the shape: its points depend on each other. Both promises are about shapes like those of the calibration.
"""

from __future__ import annotations

from fractions import Fraction

import numpy as np

from asp_neuro.certify.part_promise import PartPromise
from asp_neuro.certify.points import POINTS, PointCertificate, PointRecording, ShapePromise
from asp_neuro.certify.points import shares as shares_at
from asp_neuro.studies.audits import intervals
from asp_neuro.studies.audits.row import UNCLEAR, Row, at_most

OF = "J.1, points"
NOTHING = "nothing is promised: no threshold passed"


def rows(recording: PointRecording, promise: PartPromise) -> list[Row]:
    """Of the points of n shapes at the exit."""
    return [mean(recording, promise.mean), each(recording, promise.each)]


def mean(recording: PointRecording, promise: PointCertificate) -> Row:
    """Promise A: wrong points among a shape's accepted ones, on average over shapes (or over all points)."""
    claim, predicted = "few of the accepted points are wrong, on average", f"at most {promise.alpha:g}"
    if promise.threshold is None:
        return Row(claim, OF, predicted, None, None, None, None, None, UNCLEAR, recording.n, NOTHING)
    found = shares_at(recording, np.array([promise.threshold]))
    accepted, wrong, loss = found.accepted[0], found.wrong[0], found.loss()[0]
    some = accepted > 0.0
    note = f"{100.0 * accepted.mean():.1f} % of a shape's points accepted, {int((~some).sum())} shapes without any"
    if not some.any():
        return Row(claim, OF, predicted, None, None, None, None, None, UNCLEAR, recording.n, note)
    measured = intervals.ratio(wrong, accepted) if promise.risk_of == POINTS else intervals.mean(loss[some])
    verdict = at_most(measured.low, measured.high, promise.alpha)
    return Row(claim, OF, predicted, *measured, None, None, verdict, int(some.sum()), note)


def each(recording: PointRecording, promise: ShapePromise) -> Row:
    """Promise B: shapes of which more than a share `most` of the accepted points is wrong."""
    claim, predicted = f"a shape has at most {promise.most:g} wrong points among accepted ones", "but for a share of "
    predicted += f"{promise.alpha:g}"
    if promise.holds_nothing:
        return Row(claim, OF, predicted, None, None, None, None, None, UNCLEAR, recording.n, NOTHING)
    most, accepted = Fraction(str(promise.most)), recording.there & (recording.margins > promise.threshold)
    n_wrong, n_accepted = (recording.wrong & accepted).sum(axis=1), accepted.sum(axis=1)
    broken = n_wrong * most.denominator > n_accepted * most.numerator
    measured = intervals.share(int(broken.sum()), recording.n)
    verdict = at_most(measured.low, measured.high, promise.alpha)
    note = f"{100.0 * (n_accepted / recording.there.sum(axis=1)).mean():.1f} % of a shape's points accepted"
    return Row(claim, OF, predicted, *measured, None, None, verdict, recording.n, note)
