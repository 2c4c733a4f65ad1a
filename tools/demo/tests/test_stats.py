"""Percentiles and the Wilson interval."""

import math

import pytest
from closedloop.stats import percentile, wilson


def test_a_percentile_is_a_measured_value():
    values = [float(v) for v in range(1, 101)]
    assert (percentile(values, 50), percentile(values, 99), percentile(values, 100)) == (50.0, 99.0, 100.0)
    assert percentile([7.0], 99) == 7.0
    assert math.isnan(percentile([], 50))


@pytest.mark.parametrize(
    ("solved", "total", "low", "high"),
    # Wilson's formula by hand for 0 and n of n: z²/(n+z²) and n/(n+z²); 85 of 100 from published tables.
    [(0, 100, 0.0, 0.03699), (100, 100, 0.96301, 1.0), (85, 100, 0.76717, 0.90692)],
)
def test_the_wilson_interval_has_known_values(solved, total, low, high):
    assert wilson(solved, total) == pytest.approx((low, high), abs=2e-4)


def test_no_trials_say_nothing():
    assert wilson(0, 0) == (0.0, 1.0)
