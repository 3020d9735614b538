"""The served map as `MapParts` defines it, one signature and one number at a time, in plain Python."""

from __future__ import annotations

import math

from stream_calib.calibration.grid import LOWER_LOG_ODDS, UPPER_LOG_ODDS
from stream_calib.calibration.groups import Signature
from stream_calib.calibration.maps.parts import MapParts

EDGE_PAIRS = list(zip(LOWER_LOG_ODDS.tolist(), UPPER_LOG_ODDS.tolist(), strict=True))


def reference_table(parts: MapParts, signature: Signature) -> list[tuple[float, float]]:
    """402 pairs of probabilities."""
    sigma = parts.base.strict_slope
    weight = [w for w in parts.bin_weight.tolist() for _ in range(2)]
    edges = [x for pair in EDGE_PAIRS for x in pair]
    limit = math.log((1 - parts.p_min) / parts.p_min) - 10 * sigma
    p = projected([expit(between(-limit, start(parts, signature, x), limit)) for x in edges], weight)
    p = [expit(math.log(q / (1 - q)) + sigma * x) for q, x in zip(p, edges, strict=True)]
    least = parts.p_min / (1 - 10 * sigma)
    for patches in parts.rounds:
        group = patches.rule.group(signature)
        if group is None or group not in patches.shifts:
            continue
        shifted = []
        for lower, upper in zip(p[::2], p[1::2], strict=True):
            centre = (lower + upper) / 2
            interval = max(j for j in range(len(patches.edges) - 1) if patches.edges[j] <= centre)
            shift = patches.shifts[group][interval]
            shifted += [between(least, lower + shift, 1 - least), between(least, upper + shift, 1 - least)]
        p = [q + sigma * x * q * (1 - q) for q, x in zip(projected(shifted, weight), edges, strict=True)]
    return list(zip(p[::2], p[1::2], strict=True))


def start(parts: MapParts, signature: Signature, x: float) -> float:
    """Step 1's u(x)."""
    p = between(parts.base.p_min, knots(parts, x), 1 - parts.base.p_min)
    total = math.log(p / (1 - p)) + parts.level
    for family in parts.families:
        group = family.rule.group(signature)
        if group is not None:
            total += family.offsets.get(group, 0.0) + family.slopes.get(group, 0.0) * (x - parts.slope_centre)
    return total


def knots(parts: MapParts, x: float) -> float:
    at, value = parts.base.log_odds.tolist(), parts.base.value.tolist()
    if x <= at[0]:
        return float(value[0])
    for left, right, low, high in zip(at, at[1:], value, value[1:], strict=False):
        if x <= right:
            return float(low + (high - low) * (x - left) / (right - left))
    return float(value[-1])


def projected(values: list[float], weight: list[float]) -> list[float]:
    """Pool adjacent violators."""
    blocks: list[list[float]] = []
    for value, w in zip(values, weight, strict=True):
        blocks.append([value, w, 1])
        while len(blocks) > 1 and blocks[-2][0] > blocks[-1][0]:
            (a, wa, na), (b, wb, nb) = blocks[-2:]
            blocks[-2:] = [[(a * wa + b * wb) / (wa + wb), wa + wb, na + nb]]
    return [value for value, _, count in blocks for _ in range(int(count))]


def between(low: float, value: float, high: float) -> float:
    return min(max(value, low), high)


def expit(x: float) -> float:
    return 1 / (1 + math.exp(-x))
