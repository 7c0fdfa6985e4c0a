"""Learning where to look by score-function gradients: only the places that are looked at are ever encoded.

    loss = cross-entropy + w . mean over steps of -A_t log pi(a_t) + (R_t - V(b_t))^2 - entropy

R_t is the log-likelihood of the true class, mean over the steps still to come (to go); V foretells it from the belief,
A_t = R_t - V(b_t), scaled by its spread. With 49 places a Gumbel-softmax over all of them costs five times as much.
For a first share of the run (`train.guided`) images are read brightest place first, with noise, and the policy imitates
that: a model that knows nothing learns nothing from looking at random, for most places show nothing. A share of the
images is read in a random order.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import torch
import torch.nn.functional as F
from torch import Tensor

from asp_neuro.learn import losses
from asp_neuro.learn.grid import instead
from asp_neuro.learn.model import Episode, one_hot
from asp_neuro.learn.policy import gumbel
from asp_neuro.model.policy import VISITED
from asp_neuro.scenes.image import BRIGHTNESS

if TYPE_CHECKING:
    from asp_neuro.learn.image_model import Glimpses, ImageBatch, ImageModel
    from asp_neuro.learn.recipe import TrainRecipe

PULL = 4.0  # of brightness over noise, in standard deviations of an image's places
LEAST = 1e-3


def salience(descriptors: Tensor) -> Tensor:
    """[b, M, 8] -> [b, M]: how bright it is around each place, in standard deviations of its image."""
    bright = descriptors[:, :, BRIGHTNESS]
    apart = bright - bright.mean(dim=1, keepdim=True)
    return PULL * apart / bright.std(dim=1, keepdim=True).clamp_min(1e-6)


def batch_loss(
    model: ImageModel, how: TrainRecipe, batch: ImageBatch, share: float, noise: Tensor, random: Tensor, n_total: int
) -> tuple[Tensor, Tensor]:
    """Loss of a (part of a) batch, already divided by the whole batch's number of images, and the firing rate.

    `noise` [T, b, M] decides what is sampled; `random` [b, M + 1] an order per image and whether to take it.
    """
    scattered = gumbel(noise)
    orders, at_random = random[:, :-1].argsort(dim=1), random[:, -1] < how.random_share
    bright = salience(batch.descriptors) if share < how.guided else None
    scores: list[Tensor] = []
    beliefs: list[Tensor] = []

    def choose(episode: Episode) -> Tensor:
        own = episode.scores(model.policy, detach_belief=True)
        scores.append(own)
        beliefs.append(episode.belief)
        asked = own if bright is None else bright + episode.visited * VISITED
        place = (asked + scattered[episode.step]).argmax(dim=1)
        if bright is None:
            place = torch.where(at_random, orders[:, episode.step], place)
        return one_hot(place, noise.shape[2], own)

    sight = replace(model.look(batch), keep=True)
    with torch.no_grad():
        played = model.rollout(sight, choose, noise.shape[0])
    values, believed = torch.stack(scores), torch.stack(beliefs)  # [T, b, M], [T, b, H]
    again = model.again(sight, one_hot(played.order, noise.shape[2], values), played)
    logits = again.logits.to(noise.dtype)
    loss = losses.cross_entropy(
        logits, batch.labels, how.label_smoothing, n_total, step_weight_power=how.step_weight_power
    )
    if how.tet > 0.0:
        loss = loss + how.tet * losses.tet(logits, n_total)
    gained = _to_go(logits.detach(), batch.labels)
    foretold = model.value(believed.to(noise.dtype)).squeeze(2)
    log = F.log_softmax(_smooth_scores(model, sight, values, believed), dim=2)
    taken = log.gather(2, played.order.unsqueeze(2)).squeeze(2)
    if bright is not None:  # what was chosen is imitated
        ahead = torch.ones_like(gained)
    else:
        ahead = gained - foretold.detach()
        ahead = ahead / ahead.std().clamp_min(LEAST) * (~at_random).to(ahead.dtype)
    parts = n_total * len(logits)
    loss = loss - how.policy_gradient * (ahead * taken).sum() / parts
    loss = loss + (gained - foretold).square().sum() / parts
    entropy = -(log.exp() * log.clamp_min(-50.0)).sum() / parts
    loss = loss - how.entropy * (1.0 - share) * entropy
    if how.firing_rate_penalty > 0.0:
        loss = loss + how.firing_rate_penalty * losses.firing_rate_penalty(again.firing_rate, how.firing_rate_target)
    return loss, again.firing_rate.detach()


def _to_go(logits: Tensor, labels: Tensor) -> Tensor:
    """Logits [T, b, C] -> [T, b]: the log-likelihood of the true class over this step and those to come, of T."""
    index = labels.view(1, -1, 1).expand(len(logits), -1, 1)
    likelihood = F.log_softmax(logits, dim=2).gather(2, index).squeeze(2) / len(logits)
    return likelihood.flip(0).cumsum(0).flip(0)


def _smooth_scores(model: ImageModel, sight: Glimpses, values: Tensor, beliefs: Tensor) -> Tensor:
    """The scores [T, b, M] that were seen, with the policy's gradients, in float32."""
    own = model.policy.weight.dtype
    smooth = model.policy(beliefs.to(own), sight.geometry.to(own))
    if sight.first is not None:
        smooth = torch.cat([sight.first[None].to(own), smooth[1:]])
    return instead(smooth, values.to(own))
