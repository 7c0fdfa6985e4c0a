"""More wrong answers than promised: chance, or clouds that the promise is not about?"""

from __future__ import annotations

from scipy import special

RARE = 0.05  # below this, chance is no good explanation


def chance(errors: int, accepted: int, alpha: float) -> float:
    """P(at least `errors` of `accepted` are wrong) where each is wrong with probability `alpha`, the most promised."""
    return float(special.bdtrc(errors - 1, accepted, alpha)) if errors else 1.0


def sentence(errors: int, accepted: int, alpha: float) -> str | None:
    """What it means that more than the promised share is wrong; None where it is not more."""
    if errors <= alpha * accepted:
        return None
    found = chance(errors, accepted, alpha)
    share = f"at most {100.0 * found:.2g} %" if found >= 1e-4 else "less than 0.01 %"
    told = (
        f"{errors} of {accepted} certified answers are wrong, more than the promised {100.0 * alpha:g} %. Where the "
        f"promise holds, chance makes it that many in {share} of such runs: "
    )
    if found >= RARE:
        rest = "It is about the long run, for clouds like those of the calibration (docs/certificates.md)."
        return f"{told}no sign against it. {rest}"
    return told + (
        "these clouds are most likely not like those of the calibration (another mix of classes, sensor or noise), and "
        "the promise does not cover them; see docs/certificates.md, and watch it with --feedback."
    )
