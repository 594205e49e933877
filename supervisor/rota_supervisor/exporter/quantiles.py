"""Quantiles from the buckets of a histogram, as Prometheus's `histogram_quantile` computes them."""

from rota.telemetry.metrics import HistogramDefinition
from rota_supervisor.exporter.samples import Numbers


def quantile(definition: HistogramDefinition, numbers: Numbers, share: float) -> float | None:
    """The value that `share` of the observations do not exceed, interpolated inside its bucket.

    `numbers` as a record holds them, `share` from 0 to 1. None without observations; the highest bound
    when the quantile lies above it.
    """
    counts = numbers[:-1]
    wanted = share * sum(counts)
    if not wanted:
        return None
    below = 0.0
    lower = 0.0
    for bound, count in zip(definition.buckets, counts, strict=False):  # the last count has no upper bound
        if count and below + count >= wanted:
            return lower + (bound - lower) * (wanted - below) / count
        below += count
        lower = bound
    return lower
