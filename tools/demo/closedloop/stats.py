"""The few statistics that the demo and the evaluation print."""

import math
from collections.abc import Sequence


def percentile(values: Sequence[float], percent: float) -> float:
    """Nearest-rank percentile: a value that was measured. NaN if there is none."""
    if not values:
        return math.nan
    ordered = sorted(values)
    rank = math.ceil(percent / 100.0 * len(ordered))
    return ordered[min(max(rank, 1), len(ordered)) - 1]


def wilson(successes: int, trials: int, z: float = 1.959964) -> tuple[float, float]:
    """Wilson score interval of a proportion, 95 % by default (0..1)."""
    if trials <= 0:
        return 0.0, 1.0
    share = successes / trials
    scale = 1.0 + z * z / trials
    centre = (share + z * z / (2 * trials)) / scale
    half = z / scale * math.sqrt(share * (1 - share) / trials + z * z / (4 * trials * trials))
    return max(0.0, centre - half), min(1.0, centre + half)
