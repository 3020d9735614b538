"""What detectors are frozen with, and what they make of a pane, against the same from rows one by one."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from functools import cache
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from stream_calib.calibration.grid import CENTRE_LOG_ODDS, LOWER_LOG_ODDS, UPPER_LOG_ODDS, locate
from stream_calib.calibration.groups import OTHER, Signature, family_rule
from stream_calib.calibration.maps.parts import FamilyShift
from stream_calib.calibration.maps.served_map import ServedMap
from stream_calib.calibration.time_attributes import TimeAttributes
from stream_calib.config import Config
from stream_calib.drift.overdispersion import overdispersion
from stream_calib.errors import DamagedSnapshotError
from stream_calib.events.identity import signature_hash
from stream_calib.refit.evidence import Evidence
from stream_calib.refit.gate_evidence import JudgedMap
from stream_calib.refit.outcome_watch import OutcomeWatch
from stream_calib.refit.residual_reference import watched
from stream_calib.refit.row_weights import RowWeights
from stream_calib.snapshot.compiled import map_document
from stream_calib.snapshot.fit_documents import DerivedDocument
from stream_calib.snapshot.model import (
    ReferenceDocument,
    ResolvedSnapshot,
    StructureSnapshot,
    WatchedCellDocument,
    WatchedDocument,
)
from stream_calib.windows.cells import MaturedCells
from tests.unit.refit.world import FIRST_PANE, IDENTITY, KEY, World
from tests.unit.refit.world import config as world_config

PANES = 24 * 5
VALUES: list[Signature] = [(r, d) for r in ("eu", "us", "rare", OTHER) for d in ("tv", "pc")]
SHARE = np.array([0.3, 0.25, 0.25, 0.15, 0.003, 0.002, 0.03, 0.015])


def config_of(**changes: Any) -> Config:
    sections: dict[str, Any] = {
        "model": {"name": KEY.model, "version": KEY.version},
        "scores": {"attributes": {"region": "r", "device": "d"}, "intersections": [["region", "device"]]},
        "windows": {"horizon": "2h"},
    }
    for name, value in changes.items():
        sections[name] = sections.get(name, {}) | value
    return Config.model_validate(sections)


def signatures(hashes: Iterable[int]) -> dict[int, Signature]:
    known = {signature_hash(values): values for values in VALUES}
    return {h: known[h] for h in hashes}


@dataclass
class Traffic:
    """Winners of PANES panes; `pane` counts from FIRST_PANE."""

    rows_a_pane: int = 60
    seed: int = 1
    pane: NDArray[np.int64] = field(init=False)
    value: NDArray[np.int64] = field(init=False)
    grid_bin: NDArray[np.uint16] = field(init=False)
    label: NDArray[np.int8] = field(init=False)
    bucket: NDArray[np.uint8] = field(init=False)

    def __post_init__(self) -> None:
        rng = np.random.default_rng(self.seed)
        n = PANES * self.rows_a_pane
        self.pane = np.repeat(np.arange(PANES), self.rows_a_pane)
        self.value = rng.choice(len(VALUES), n, p=SHARE)
        score = rng.beta(2, 4, n)
        self.grid_bin = locate(score)[0]
        shock = np.repeat(rng.normal(0, 0.5, PANES // 24), 24 * self.rows_a_pane)
        odds = score / (1 - score) * np.exp(shock)
        self.label = (rng.random(n) < odds / (1 + odds)).astype(np.int8)
        self.label[rng.random(n) < np.where(self.value == 2, 0.5, 0.1)] = -1
        self.bucket = rng.integers(0, 20, n).astype(np.uint8)

    def cells(self, pane: int) -> MaturedCells:
        own = self.pane == pane
        hashes = np.array([signature_hash(v) for v in VALUES], dtype=np.uint64)[self.value[own]]
        return MaturedCells.count(self.bucket[own], hashes, self.grid_bin[own], self.label[own])

    def evidence(self, config: Config, panes: int = PANES) -> Evidence:
        made = Evidence(FIRST_PANE, config)
        for pane in range(panes):
            made.advance(FIRST_PANE + pane, self.cells(pane).pack())
        return made

    @property
    def p(self) -> NDArray[np.float64]:
        """What IDENTITY serves at the middle of each row's bin."""
        low, high = (1 / (1 + np.exp(-x)) for x in (LOWER_LOG_ODDS, UPPER_LOG_ODDS))
        return np.asarray(((low + high) / 2)[self.grid_bin])

    def cells_of(self, by_interval: bool = True) -> dict[str, NDArray[np.bool_]]:
        """Name -> (n,) rows of every cell of at least one row that could be watched."""
        found: dict[str, list[NDArray[np.bool_]]] = defaultdict(list)
        edges = [0.0, *(float(f"{1 / (1 + math.exp(-x)):.12g}") for x in range(-7, 8)), 1.0]
        low = np.searchsorted(np.array(edges[1:-1]), self.p, side="right")

        def add(name: str, rows: NDArray[np.bool_], intervals: bool) -> None:
            found[name].append(rows)
            for i in range(16) if intervals else ():
                close = "]" if i == 15 else ")"
                found[f"{name}, [{edges[i]:.3g}, {edges[i + 1]:.3g}{close}"].append(rows & (low == i))

        add("all", np.ones(len(self.p), dtype=bool), True)
        region, device = (np.array([v[i] for v in VALUES])[self.value] for i in (0, 1))
        for name in ("eu", "us", "rare"):
            add(f"region={name}", region == name, by_interval)
            for other in ("tv", "pc"):
                add(f"region={name} & device={other}", (region == name) & (device == other), False)
        for name in ("tv", "pc"):
            add(f"device={name}", device == name, by_interval)
        return {name: np.logical_or.reduce(rows) for name, rows in found.items()}


@pytest.fixture(scope="module")
def traffic() -> Traffic:
    return Traffic()


@cache
def some_snapshot() -> StructureSnapshot:
    world = World(world_config(), rows_a_pane=150)
    world.run(12)
    return world.store.load(world.store.current() or "").structure


def resolved(
    residual: WatchedDocument | None, selection: WatchedDocument | None, config: Config, labelled: float = 1.0
) -> ResolvedSnapshot:
    """A snapshot that serves every score as it is."""
    made = some_snapshot()
    identity = StructureSnapshot.model_validate(
        made.model_dump()
        | {
            "families": (),
            "level": 0.0,
            "base": {
                "log_odds": tuple(float(x) for x in np.linspace(-10, 10, 401).round(2)),
                "value": tuple(float(v) for v in 1 / (1 + np.exp(-np.linspace(-10, 10, 401).round(2)))),
                "p_min": 1e-6,
                "strict_slope": 0.0,
            },
            "attributes": tuple(config.scores.attributes),
            "reference": ReferenceDocument(
                scored_per_pane=60.0,
                labelled_per_pane=labelled,
                psi_groups=(),
                residual=residual,
                selection=selection,
            ).model_dump(),
        }
    )
    return ResolvedSnapshot("000001-0123456789ab", 1, "000001-0123456789ab", identity, 0.0)


def frozen(traffic: Traffic, config: Config) -> tuple[OutcomeWatch, WatchedDocument, WatchedDocument]:
    evidence = traffic.evidence(config)
    residual, selection = watched(evidence, IDENTITY, signatures, config)
    assert residual is not None
    assert selection is not None
    return OutcomeWatch(resolved(residual, selection, config), RowWeights.of(config), signatures), residual, selection


def test_cells_are_those_of_mass_enough_and_their_phi_and_epsilon_are_as_defined(traffic: Traffic) -> None:
    config = config_of()
    watch, document, _ = frozen(traffic, config)
    assert watch.residual is not None
    watched = watch.residual.watched
    labelled, y, p = traffic.label >= 0, (traffic.label == 1).astype(float), traffic.p
    expected = {
        name: rows for name, rows in traffic.cells_of().items() if (rows & labelled).sum() >= 0.01 * labelled.sum()
    }
    assert set(watched.names) == set(expected)
    assert not any("rare" in name or OTHER in name for name in watched.names)
    assert len(document.families) == 7  # everything, region, device, region & device; three of them by interval
    # phi: over days, per family.
    day = traffic.pane // 24
    for number, phi in enumerate(watched.phi.tolist()):
        names = [name for name, f in zip(watched.names, watched.family, strict=True) if f == number]
        sums = np.zeros((2, PANES // 24, len(names)))
        for i, name in enumerate(names):
            rows = expected[name] & labelled
            np.add.at(sums[0, :, i], day[rows], (y - p)[rows])
            np.add.at(sums[1, :, i], day[rows], (p * (1 - p))[rows])
        assert phi == pytest.approx(overdispersion(*sums), rel=1e-9)
    assert watched.phi[0] > 5, "days have shocks of their own"
    # epsilon: audits and certificate are untouched, as there are no patches.
    untouched = labelled & np.isin(traffic.bucket, (12, 13, 14, 15))
    share = 0.05 / (2 * len(watched.names))
    half = (1 / (1 + np.exp(-UPPER_LOG_ODDS)) - 1 / (1 + np.exp(-LOWER_LOG_ODDS)))[traffic.grid_bin] / 2
    for name, epsilon in zip(watched.names, watched.epsilon.tolist(), strict=True):
        rows = expected[name] & untouched
        n, rate, mean = int(rows.sum()), y[rows].mean(), p[rows].mean()
        above = limit(rate, math.log(1 / share) / n) - mean
        below = mean - (1 - limit(1 - rate, math.log(1 / share) / n))
        assert epsilon == pytest.approx(max(above, below, half[expected[name] & labelled].mean()), abs=1e-9), name


def limit(q: float, allowed: float) -> float:
    """Largest p >= q with KL(q, p) <= allowed."""
    low, high = q, 1.0
    for _ in range(60):
        p = (low + high) / 2
        kl = (q * math.log(q / p) if q else 0.0) + ((1 - q) * math.log((1 - q) / (1 - p)) if q < 1 else 0.0)
        low, high = (p, high) if kl <= allowed else (low, p)
    return high


def test_the_tolerance_is_the_least_epsilon(traffic: Traffic) -> None:
    document, _ = watched(traffic.evidence(config_of()), IDENTITY, signatures, config_of(drift={"tolerance": 0.9}))
    assert document is not None
    p = traffic.p[traffic.label >= 0]
    assert document.families[0].cells[0].epsilon == pytest.approx(np.maximum(1 - p, p).clip(0, 0.9).max(), rel=1e-9)


def test_what_is_watched_of_labels_is_their_share_in_groups_and_bands(traffic: Traffic) -> None:
    watch, _, _ = frozen(traffic, config_of())
    assert watch.selection is not None
    cells = traffic.cells_of(by_interval=False)
    expected = {name: rows for name, rows in cells.items() if rows.sum() >= 0.01 * len(rows)}
    assert set(watch.selection.watched.names) == set(expected)
    for name, share, epsilon in zip(
        watch.selection.watched.names, watch.selection.coverage, watch.selection.watched.epsilon, strict=True
    ):
        rows = expected[name]
        assert share == pytest.approx(((traffic.label[rows] >= 0).sum() + 0.5) / (rows.sum() + 1), rel=1e-9)
        assert epsilon == pytest.approx(max(0.1 * share, 0.01), rel=1e-9)
    negative = config_of(windows={"missing_label": "negative_at_horizon"})
    assert watched(traffic.evidence(config_of()), IDENTITY, signatures, negative)[1] is None


def test_a_pane_is_summed_as_its_rows_are(traffic: Traffic) -> None:
    watch, _, _ = frozen(traffic, config_of())
    assert watch.residual is not None
    assert watch.selection is not None
    for pane in (0, 77):
        own = traffic.pane == pane
        outcomes, scores = watch.sums(FIRST_PANE + pane, traffic.cells(pane))
        assert outcomes is not None
        assert scores is not None
        for name, rows in traffic.cells_of().items():
            mine = rows & own & (traffic.label >= 0)
            if name in watch.residual.watched.names:
                inside = outcomes.cell == watch.residual.watched.names.index(name)
                assert outcomes.labelled[inside].sum() == mine.sum()
                assert outcomes.positives[inside].sum() == (traffic.label[mine] == 1).sum()
                served = (outcomes.labelled * outcomes.served)[inside].sum()
                assert served == pytest.approx(traffic.p[mine].sum(), abs=1e-6)
            if name in watch.selection.watched.names:
                inside = scores.cell == (place := watch.selection.watched.names.index(name))
                assert scores.labelled[inside].sum() == (rows & own).sum()
                assert scores.positives[inside].sum() == mine.sum()
                assert set(scores.served[inside].tolist()) <= {watch.selection.coverage[place]}


def test_where_negatives_are_thinned_outcomes_are_compared_with_what_a_kept_row_is(traffic: Traffic) -> None:
    config = config_of(labels={"keep_rate_negatives": 0.2})
    document, _ = watched(traffic.evidence(config), IDENTITY, signatures, config)
    watch = OutcomeWatch(resolved(document, None, config), RowWeights.of(config), signatures)
    outcomes, scores = watch.sums(FIRST_PANE, traffic.cells(0))
    assert outcomes is not None
    assert scores is None
    mine = (traffic.pane == 0) & (traffic.label >= 0)
    kept = traffic.p / (traffic.p + 0.2 * (1 - traffic.p))
    inside = outcomes.cell == 0
    assert (outcomes.labelled * outcomes.served)[inside].sum() == pytest.approx(kept[mine].sum(), abs=1e-6)
    # A cell's interval is that of the probability before the thinning.
    assert watch.residual is not None
    for name, rows in traffic.cells_of().items():
        if name in watch.residual.watched.names:
            inside = outcomes.cell == watch.residual.watched.names.index(name)
            assert outcomes.labelled[inside].sum() == (rows & mine).sum()


def test_events_of_several_keep_rates_are_counted_as_they_are(traffic: Traffic) -> None:
    config = config_of(scores={"attributes": {"region": "r", "device": "d"}, "keep_rate": "k"})
    rates = ("1.0", "0.25")

    def with_rates(hashes: Iterable[int]) -> dict[int, Signature]:
        known = {signature_hash((*values, rate)): (*values, rate) for values in VALUES for rate in rates}
        return {h: known[h] for h in hashes}

    document, _ = watched(traffic.evidence(config_of()), IDENTITY, signatures, config_of())
    plain = OutcomeWatch(resolved(document, None, config), RowWeights(), signatures)
    watch = OutcomeWatch(resolved(document, None, config), RowWeights.of(config), with_rates)
    cells, again = traffic.cells(3), traffic.cells(3)
    half = np.arange(len(cells.signature)) % 2
    own = [signatures([h])[h] for h in cells.signature.tolist()]
    hashes = np.array([signature_hash((*v, rates[i])) for v, i in zip(own, half, strict=True)], dtype=np.uint64)
    found, _ = watch.sums(FIRST_PANE, MaturedCells.merge([replace(again, signature=hashes)]))
    expected, _ = plain.sums(FIRST_PANE, cells)
    assert found is not None
    assert expected is not None
    for name in ("cell", "served", "labelled", "positives"):
        assert np.array_equal(getattr(found, name), getattr(expected, name))


def test_probabilities_are_those_of_the_panes_hour_where_the_map_has_hours(traffic: Traffic) -> None:
    config = config_of(scores={"attributes": {"region": "r", "device": "d"}, "derived": ["hour_of_day"]})
    hours = family_rule(("hour_of_day",), ("region", "device", "hour_of_day"))
    offsets: dict[tuple[str, ...], float] = {(f"{hour:02d}",): hour / 10 - 1.2 for hour in range(24)}
    parts = replace(IDENTITY.served.parts, families=(FamilyShift(hours, offsets),))
    candidate = JudgedMap(ServedMap(parts), TimeAttributes(("hour_of_day",), "UTC", 3_600_000))
    document, _ = watched(traffic.evidence(config), candidate, signatures, config)
    assert document is not None
    snapshot = resolved(document, None, config)
    structure = snapshot.structure.model_copy(
        update={
            "derived": DerivedDocument(names=("hour_of_day",), zone="UTC"),
            "families": map_document(parts).families,
        }
    )
    watch = OutcomeWatch(replace(snapshot, structure=structure), RowWeights(), signatures)
    hour = (FIRST_PANE + traffic.pane) % 24

    def at(x: NDArray[np.float64]) -> NDArray[np.float64]:
        return np.asarray(1 / (1 + np.exp(-(x[traffic.grid_bin] + hour / 10 - 1.2))))

    p, labelled = (at(LOWER_LOG_ODDS) + at(UPPER_LOG_ODDS)) / 2, traffic.label >= 0
    for pane in (0, 5, 29):
        outcomes, _ = watch.sums(FIRST_PANE + pane, traffic.cells(pane))
        assert outcomes is not None
        served = (outcomes.labelled * outcomes.served)[outcomes.cell == 0].sum()
        assert served == pytest.approx(p[labelled & (traffic.pane == pane)].sum(), rel=1e-4)
    # The bound of everything, over the rows that nothing was fitted to, each at its hour.
    rows = labelled & np.isin(traffic.bucket, (12, 13, 14, 15))
    share = 0.05 / (2 * sum(len(family.cells) for family in document.families))
    rate, mean, allowed = (traffic.label[rows] == 1).mean(), p[rows].mean(), math.log(1 / share) / rows.sum()
    bound = max(limit(rate, allowed) - mean, mean - (1 - limit(1 - rate, allowed)))
    assert document.families[0].cells[0].epsilon == pytest.approx(bound, rel=1e-3)


def test_before_three_windows_nothing_is_known(traffic: Traffic) -> None:
    evidence = traffic.evidence(config_of(), panes=71)
    assert watched(evidence, IDENTITY, signatures, config_of()) == (None, None)
    nothing = ReferenceDocument(scored_per_pane=1.0, labelled_per_pane=1.0, psi_groups=())
    assert nothing.model_dump(mode="json") == {"scored_per_pane": 1.0, "labelled_per_pane": 1.0, "psi_groups": []}
    watch = OutcomeWatch(resolved(None, None, config_of()), RowWeights(), signatures)
    assert watch.sums(FIRST_PANE, traffic.cells(0)) == (None, None)


def test_a_family_that_is_new_is_left_out_and_everything_else_is_watched(traffic: Traffic) -> None:
    config = config_of(
        scores={
            "attributes": {"region": "r", "device": "d"},
            "predicates": {"eu tv": {"region": ["eu"], "device": ["tv"]}},
        }
    )
    late = replace(traffic)
    eu_tv = late.value == 0
    late.value[eu_tv & (late.pane < 72)] = 1
    evidence = late.evidence(config)
    for document in watched(evidence, IDENTITY, signatures, config):
        assert document is not None
        assert {f.attributes for f in document.families} == {(), ("region",), ("device",), ("region", "device")}
        assert {f.predicate.name for f in document.families if f.predicate is not None} == {"all"}


def test_labels_that_never_come_are_no_reference(traffic: Traffic) -> None:
    silent = replace(traffic)
    silent.label[:] = -1
    assert watched(silent.evidence(config_of()), IDENTITY, signatures, config_of())[0] is None


def test_detectors_that_do_not_fit_their_snapshot_are_damage() -> None:
    cell = WatchedCellDocument(values=("eu",), epsilon=0.1)
    family = {"attributes": ("nowhere",), "phi": 1.0, "cells": (cell.model_dump(),)}
    document = WatchedDocument.model_validate({"edges": (0.0, 1.0), "families": (family,)})
    with pytest.raises(DamagedSnapshotError, match=r"detectors of snapshot \S+ cannot be used"):
        OutcomeWatch(resolved(document, None, config_of()), RowWeights(), signatures)


def test_a_value_that_reads_like_another_cells_name_has_a_detector_of_its_own() -> None:
    families = (
        {"attributes": ("region",), "phi": 1.0, "cells": ({"values": ("eu & device=web",), "epsilon": 0.1},)},
        {"attributes": ("region", "device"), "phi": 1.0, "cells": ({"values": ("eu", "web"), "epsilon": 0.1},)},
    )
    document = WatchedDocument.model_validate({"edges": (0.0, 1.0), "families": families})
    watch = OutcomeWatch(resolved(document, None, config_of()), RowWeights(), signatures)
    assert watch.residual is not None
    assert list(watch.residual.watched.names) == ["region=eu & device=web", "region=eu & device=web (2)"]


def test_the_middle_of_a_bin_is_near_its_centre() -> None:
    low, high, middle = (1 / (1 + np.exp(-x)) for x in (LOWER_LOG_ODDS, UPPER_LOG_ODDS, CENTRE_LOG_ODDS))
    assert np.abs((low + high) / 2 - middle).max() < 1e-4
