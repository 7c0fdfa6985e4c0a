"""Linear probes: what a linear read-out could know of a class, in nats (predictive V-information).

    I_V(y; Z) = H_V(y) - H_V(y | Z)        H_V(y | Z): log loss of a probe on scenes that it was not fitted on

The probe is multinomial logistic regression on standardised features. Scenes fall into seeded folds; each is judged by
the probe of the other folds, so every scene counts once and none was seen by its judge. The ridge is chosen within
those folds: one that is the same for few and many features would make features that repeat each other look informative.
"""

from __future__ import annotations

import numpy as np

RIDGES = (100.0, 30.0, 10.0, 3.0, 1.0, 0.3, 0.1)  # on standardised features, against the summed log loss
STEPS = 100  # of L-BFGS at most
FOLDS = 2


def folds(n: int, seed: int) -> np.ndarray:
    """[n] number of each scene's fold."""
    return np.random.default_rng(seed).permutation(np.arange(n) % FOLDS)


def fitted(
    features: np.ndarray, classes: np.ndarray, n_classes: int, ridge: float, start: np.ndarray | None = None
) -> np.ndarray:
    """[n, d] standardised, [n] -> weights and bias of each class, [C, d + 1]."""
    from scipy.optimize import minimize

    ready, target = np.column_stack([features, np.ones(len(features))]), np.eye(n_classes)[classes]
    shape = (n_classes, ready.shape[1])
    price = np.append(np.full(features.shape[1], ridge), 0.0)  # the bias is free

    def loss(flat: np.ndarray) -> tuple[float, np.ndarray]:
        weight = flat.reshape(shape)
        told = ready @ weight.T
        shares, log_sum = softmax(told)
        value = (log_sum - (target * told).sum(axis=1)).sum() + (price * weight**2).sum() / 2
        return float(value), ((shares - target).T @ ready + price * weight).ravel()

    begin = np.zeros(shape[0] * shape[1]) if start is None else start.ravel()
    found = minimize(loss, begin, jac=True, method="L-BFGS-B", options={"maxiter": STEPS})
    return np.asarray(found.x.reshape(shape))


def chosen(features: np.ndarray, classes: np.ndarray, n_classes: int) -> np.ndarray:
    """The same with the ridge that does best on every other scene, fitted to the scenes between them."""
    here, there = slice(0, None, 2), slice(1, None, 2)
    losses, weight = [], None
    for ridge in RIDGES:  # from strong to weak, each from where the last one ended
        weight = fitted(features[here], classes[here], n_classes, ridge, weight)
        losses.append(log_loss(applied(weight, features[there]), classes[there]).mean())
    return fitted(features, classes, n_classes, RIDGES[int(np.argmin(losses))], weight)


def applied(weight: np.ndarray, features: np.ndarray) -> np.ndarray:
    """[C, d + 1] and [n, d] -> logits [n, C]."""
    return np.asarray(features @ weight[:, :-1].T + weight[:, -1])


def softmax(logits: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """[n, C] -> shares [n, C] and the log of the summed exponentials [n]."""
    top = logits.max(axis=1, keepdims=True)
    weights = np.exp(logits - top)
    total = weights.sum(axis=1, keepdims=True)
    return weights / total, (top + np.log(total))[:, 0]


def standardised(features: np.ndarray, by: np.ndarray) -> np.ndarray:
    """Mean 0 and spread 1 on the scenes `by`; what does not vary there becomes 0."""
    middle, spread = features[by].mean(axis=0), features[by].std(axis=0)
    return np.asarray((features - middle) * np.where(spread > 0, 1.0 / np.where(spread > 0, spread, 1.0), 0.0))


def logits(features: np.ndarray, classes: np.ndarray, n_classes: int, seed: int) -> np.ndarray:
    """[n, d] -> [n, C] of each scene, by the probe of the other folds."""
    fold, out = folds(len(classes), seed), np.zeros((len(classes), n_classes))
    for which in range(FOLDS):
        here, there = fold == which, fold != which
        ready = standardised(np.asarray(features, dtype=np.float64), there)
        out[here] = applied(chosen(ready[there], classes[there], n_classes), ready[here])
    return out


def log_loss(values: np.ndarray, classes: np.ndarray) -> np.ndarray:
    """Logits [n, C] -> [n] nats."""
    return np.asarray(softmax(values)[1] - values[np.arange(len(classes)), classes])


def prior_loss(classes: np.ndarray, n_classes: int, seed: int) -> np.ndarray:
    """[n] nats of one who knows how frequent the classes are in the other folds, and nothing else."""
    fold, out = folds(len(classes), seed), np.zeros(len(classes))
    for which in range(FOLDS):
        count = np.bincount(classes[fold != which], minlength=n_classes) + 1.0
        out[fold == which] = -np.log(count / count.sum())[classes[fold == which]]
    return out


def information(features: np.ndarray, classes: np.ndarray, n_classes: int, seed: int) -> np.ndarray:
    """[n] nats that a linear probe gains on each scene; the mean is I_V."""
    gained = prior_loss(classes, n_classes, seed) - log_loss(logits(features, classes, n_classes, seed), classes)
    return np.asarray(gained)
