"""Percentiles of values and of Prometheus histograms. Pure."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence


def percentile(values: Sequence[float], share: float) -> float:
    """The smallest value that at least *share* of *values* do not exceed; NaN if there are none."""
    if not values:
        return math.nan
    ordered = sorted(values)
    return ordered[max(0, math.ceil(share * len(ordered)) - 1)]


def bucket_quantile(cumulative: Mapping[float, float], share: float) -> float:
    """The value below which *share* of a histogram lies: {upper bound: cumulative count}, linear within a bucket.

    As Prometheus' histogram_quantile: what lies beyond the last finite bound counts as that bound; NaN without
    observations.
    """
    bounds = sorted(cumulative)
    total = cumulative[bounds[-1]] if bounds else 0.0
    if total <= 0:
        return math.nan
    wanted, below, lower = share * total, 0.0, 0.0
    for bound in bounds:
        count = cumulative[bound]
        if count >= wanted and count > below:
            if bound == math.inf:
                return lower
            return lower + (bound - lower) * (wanted - below) / (count - below)
        below, lower = count, bound
    return lower
