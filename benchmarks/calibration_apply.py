"""ServedMap.apply with groups and patches beside numpy.searchsorted of the same scores among 1,000 edges."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from dataclasses import replace

import numpy as np

from benchmarks.synthetic_world import ATTRIBUTES, SIGNATURES, SyntheticWorld
from stream_calib.calibration import GIRB, MapParts, PatchRound, ServedMap, fit_joint
from stream_calib.calibration.groups import families_up_to, make_family

PATCHES = (0, 20, 2_000)
"""(group, interval) pairs that are shifted."""
EDGES = 1_000
SINGLE_EVENTS = 2_000


def measure_apply(events: int, rounds: int, step: Callable[[str], None]) -> tuple[dict[str, float], dict[str, float]]:
    """Figures and ratios: medians over the rounds, in each of which everything is timed once, one after the other."""
    world = SyntheticWorld(1)
    step("a map to apply")
    parts = _fitted(world)
    maps = {patches: ServedMap(replace(parts, rounds=_rounds(patches))) for patches in PATCHES}
    sample = world.sample(events, 3)
    edges = np.sort(np.random.default_rng(4).random(EDGES))
    figures: dict[str, float] = {}
    for patches, served in maps.items():
        every = np.arange(len(SIGNATURES))
        started = time.process_time()
        served.apply(np.full(len(SIGNATURES), 0.5), every, SIGNATURES)
        figures[f"compile_us_per_signature_{patches}_patches"] = 1e6 * (time.process_time() - started) / len(SIGNATURES)
    rates: dict[str, list[float]] = {"searchsorted": [], **{f"apply_{patches}_patches": [] for patches in PATCHES}}
    for number in range(rounds):
        step(f"apply, {events:,} events, run {number + 1} of {rounds}")
        started = time.process_time()
        np.searchsorted(edges, sample.score)
        rates["searchsorted"].append(events / (time.process_time() - started))
        for patches, served in maps.items():
            started = time.process_time()
            served.apply(sample.score, sample.signature, SIGNATURES)
            rates[f"apply_{patches}_patches"].append(events / (time.process_time() - started))
    figures |= {f"{name}_per_second": statistics.median(found) for name, found in rates.items()}
    ratios = {
        f"apply_{patches}_patches_rate_of_searchsorted": statistics.median(
            ours / theirs for ours, theirs in zip(rates[f"apply_{patches}_patches"], rates["searchsorted"], strict=True)
        )
        for patches in PATCHES
    }
    singles = [_single_us(maps[PATCHES[-1]], sample.score, sample.signature.tolist()) for _ in range(rounds)]
    figures["apply_one_event_us"] = statistics.median(singles)
    return figures, ratios


def _single_us(served: ServedMap, score: np.ndarray[tuple[int], np.dtype[np.float64]], places: list[int]) -> float:
    """Microseconds a call with one event and its own signature, as a service in the request path makes it."""
    calls = [(score[i : i + 1], [SIGNATURES[places[i]]]) for i in range(min(SINGLE_EVENTS, len(score)))]
    place = np.zeros(1, dtype=np.intp)
    started = time.process_time()
    for own, signature in calls:
        served.apply(own, place, signature)
    return 1e6 * (time.process_time() - started) / len(calls)


def _fitted(world: SyntheticWorld) -> MapParts:
    """GIRB, offsets of every attribute and of pairs, slopes of contents."""
    cells = world.sample(200_000, 2).cells()
    base = GIRB().fit_cells(*cells.by_bin()).base_map()
    families = [make_family(rule, SIGNATURES) for rule in families_up_to(2, ATTRIBUTES)]
    joint = fit_joint(cells, base, families, slopes=[1])
    return MapParts(base=base, families=joint.shifts, slope_centre=joint.slope_centre)


def _rounds(patches: int) -> tuple[PatchRound, ...]:
    """Two rounds that together shift so many audit cells: of countries, and of country x content."""
    random = np.random.default_rng(6)
    made = []
    for rule, share in ((families_up_to(1, ATTRIBUTES)[0], 0.1), (families_up_to(2, ATTRIBUTES)[3], 0.9)):
        keys = make_family(rule, SIGNATURES).keys
        edges = (0.0, 0.05, 0.1, 0.2, 1.0)
        cells = len(edges) - 1
        chosen = keys[: int(np.ceil(patches * share / cells))]
        if chosen:
            shifts = {key: tuple(random.uniform(-0.01, 0.01, cells).tolist()) for key in chosen}
            made.append(PatchRound(rule, edges, shifts))
    return tuple(made)
