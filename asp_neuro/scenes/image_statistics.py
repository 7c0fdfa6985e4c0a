"""What kind of image is this? Parameter-free statistics, for familiarity (`certify/familiarity.py`).

    light         mean and spread of the brightness, the shares of the pixels above five levels
    edges         how much neighbouring pixels differ, to the right and downwards
    places        the brightest and the middle one of what the fixation points have around them (descriptors)
    colour        of coloured images: how far the channels lie apart, and the mean of each

Sums are whole numbers; what follows is one division or square root each: neither batch nor machine changes a bit.
"""

from __future__ import annotations

import numpy as np

from asp_neuro.scenes.image import PIXEL_MAX, Gaze, Images, describe

LEVELS = (16, 64, 128, 192, 240)
AT_ONCE = 256  # images
PLACES = {3: "brightness near a place", 5: "brightness around a place", 6: "contrast around a place"}  # descriptors
ENDS = ("highest", "middle")


def words(how: Gaze) -> dict[str, str]:
    """Statistic -> what it is, for people."""
    found = {"mean": "the brightness", "spread": "the contrast"}
    found |= {f"above {level}": f"the share of pixels above {level}" for level in LEVELS}
    found |= {
        "across": "the difference of neighbours, left to right",
        "down": "the difference of neighbours, downwards",
    }
    found |= {f"{name} {end}": f"the {name} ({end})" for name in PLACES.values() for end in ENDS}
    if how.channels == 3:
        found |= {"colour": "how colourful it is"} | {name: f"the mean {name}" for name in ("red", "green", "blue")}
    return found


def statistics(scenes: Images, how: Gaze) -> np.ndarray:
    """[n, S], in the order of `words`."""
    parts = [scenes.pixels[start : start + AT_ONCE] for start in range(0, len(scenes), AT_ONCE)]
    return np.concatenate([_statistics(part, how) for part in parts])


def _statistics(pixels: np.ndarray, how: Gaze) -> np.ndarray:
    c = pixels.shape[1]
    light = pixels.sum(axis=1, dtype=np.int64)  # [n, y, x], up to c * 255
    n, brightest = how.size * how.size, c * PIXEL_MAX
    total, squares = light.sum(axis=(1, 2)), (light * light).sum(axis=(1, 2))
    found = [total / (n * brightest), np.sqrt((n * squares - total * total).astype(np.float64)) / (n * brightest)]
    found += [(light > c * level).sum(axis=(1, 2)) / n for level in LEVELS]
    for axis in (2, 1):
        step = np.abs(np.diff(light, axis=axis)).sum(axis=(1, 2))
        found.append(step / ((n - how.size) * brightest))
    described = describe(pixels, how)
    for number in PLACES:
        ordered = np.sort(described[..., number], axis=1)
        found += [ordered[:, -1], ordered[:, ordered.shape[1] // 2]]
    if c == 3:
        apart = pixels.max(axis=1).astype(np.int64) - pixels.min(axis=1)
        found.append(apart.sum(axis=(1, 2)) / (n * PIXEL_MAX))
        found += list((pixels.sum(axis=(2, 3), dtype=np.int64) / (n * PIXEL_MAX)).T)
    return np.stack(found, axis=1)
