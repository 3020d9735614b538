"""Events that were thinned before the stream: figures are of the events as they were, errors of the rows left."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from stream_calib.calibration.grid import locate
from stream_calib.calibration.groups import CellGroups, Signature, family_rule, make_family
from stream_calib.calibration.maps.served_map import ServedMap
from stream_calib.calibration.multicalibration.audit import audit
from stream_calib.config import Config
from stream_calib.drift.psi import PsiReference, ReferenceGroup
from stream_calib.drift.psi_window import PsiWindow
from stream_calib.events.identity import signature_hash
from stream_calib.refit.certificate import audit_target, audited_cells
from stream_calib.refit.choice import choose
from stream_calib.refit.configurations import variants
from stream_calib.refit.configured_fit import fit_base
from stream_calib.refit.evidence import Evidence
from stream_calib.refit.fit import fit_structure
from stream_calib.refit.gate import GateWindow, Z, judge_candidate
from stream_calib.refit.gate_evidence import JudgedMap, gate_cells
from stream_calib.refit.gate_rows import GateCells
from stream_calib.refit.labelled import fit_data, trailing_cells
from stream_calib.refit.reference import build_reference
from stream_calib.refit.row_weights import CellWeights, RowWeights
from stream_calib.refit.settings import config_hash
from stream_calib.windows.cells import MaturedCells, ScoredCells
from tests.unit.refit.world import IDENTITY

FIRST_PANE = 480_000


def config_of(*, keep_rate: bool = False, positives: float = 1.0, negatives: float = 1.0, **calibration: Any) -> Config:
    return Config.model_validate(
        {
            "model": {"name": "m"},
            "scores": {"attributes": {"region": "r"}} | ({"keep_rate": "rate"} if keep_rate else {}),
            "labels": {"keep_rate_positives": positives, "keep_rate_negatives": negatives},
            "windows": {"horizon": "2h"},
            "calibration": {"prior_strength": 0.0} | calibration,
            "refit": {"min_rows": 10, "min_positives": 5, "gate_min_rows": 10},
        }
    )


class Rows:
    """Cells of labelled rows given by class, all at one score."""

    def __init__(self) -> None:
        self.dictionary: dict[int, Signature] = {}
        self.parts: list[MaturedCells] = []

    def add(self, signature: Signature, bucket: int, labelled: int, positives: int, score: float = 0.6) -> None:
        number = signature_hash(signature)
        self.dictionary[number] = signature
        grid_bin, _ = locate(np.array([score]))
        self.parts.append(
            MaturedCells(
                np.array([bucket], np.uint8),
                np.array([number], np.uint64),
                grid_bin,
                np.array([labelled]),
                np.array([positives]),
                np.array([0]),
            )
        )

    def evidence(self, config: Config) -> Evidence:
        made = Evidence(FIRST_PANE, config)
        made.advance(FIRST_PANE, MaturedCells.merge(self.parts).pack())
        return made

    def signatures(self, hashes: Any) -> dict[int, Signature]:
        return {h: self.dictionary[h] for h in hashes}


def thinned(keep_rate: bool, buckets: Any = (0,)) -> tuple[Rows, Config]:
    """100 positives and 100 negatives, of which one in a hundred was kept, in each bucket."""
    rows = Rows()
    for bucket in buckets:
        if keep_rate:
            rows.add(("eu", "1.0"), bucket, 100, 100)
            rows.add(("eu", "0.01"), bucket, 100, 0)
        else:
            rows.add(("eu",), bucket, 200, 100)
    return rows, config_of(keep_rate=True) if keep_rate else config_of(negatives=0.01)


@pytest.mark.parametrize("keep_rate", [False, True])
def test_a_hundred_of_each_with_one_negative_kept_in_a_hundred_is_one_in_a_hundred_and_one(keep_rate: bool) -> None:
    rows, config = thinned(keep_rate)
    data = fit_data(rows.evidence(config).counts.cells(), rows.signatures, (), RowWeights.of(config))
    assert data.cells.signatures == [("eu",)]
    assert data.cells.labelled.tolist() == [100 / 1 + 100 / 0.01]
    assert data.cells.positives.tolist() == [100]
    base = fit_base("girb", data.cells, config)
    at = float(base.probability_at(np.array([math.log(0.6 / 0.4)]))[0])
    assert at == pytest.approx(100 / (100 + 10_000), rel=1e-3)
    assert f"{at:.4f}" == "0.0099"


@pytest.mark.parametrize("keep_rate", [False, True])
def test_the_whole_refit_serves_that_and_its_groups_have_no_residual(keep_rate: bool) -> None:
    rows, config = thinned(keep_rate, range(20))
    evidence = rows.evidence(config)
    fit = fit_structure(evidence, choose(variants(config), [], "", config), rows.signatures, config)
    served = ServedMap(fit.parts)
    grid_bin, _ = locate(np.array([0.6]))
    at = float(served.at_centres(grid_bin, np.array([0]), [("eu",)])[0])
    assert at == pytest.approx(0.0099, abs=2e-4)

    trailing = trailing_cells(evidence.audited_panes, rows.signatures, None, RowWeights.of(config)).cells
    (found,) = audit(
        trailing,
        np.full(len(trailing.labelled), 0.0099),
        [make_family(family_rule(("region",), ["region"]), trailing.signatures)],
        audit_target(config),
    )
    assert found.rows.sum() == pytest.approx(4 * 10_100)
    assert np.abs(found.residual).max() < 1e-5
    assert fit.certificate.rows == 2 * 10_100

    cells = gate_cells(evidence, rows.signatures, config, None, JudgedMap(served))
    report = judge_candidate(cells, WINDOW, config.refit)
    assert (report.rows, report.positives) == (800, 400)
    assert report.loss_candidate == pytest.approx(-(math.log(at) + 100 * math.log(1 - at)) / 101, rel=1e-5)
    assert report.loss_served == pytest.approx(-(math.log(0.6) + 100 * math.log(0.4)) / 101, rel=0.05)


def test_both_ways_of_saying_it_are_one() -> None:
    found = []
    for keep_rate in (False, True):
        rows, config = thinned(keep_rate, range(20))
        evidence = rows.evidence(config)
        fit = fit_structure(evidence, choose(variants(config), [], "", config), rows.signatures, config)
        audited = audited_cells(
            fit_data(evidence.counts.cells(), rows.signatures, (), RowWeights.of(config)).cells,
            evidence,
            (),
            rows.signatures,
            config,
        )
        cells = gate_cells(evidence, rows.signatures, config, None, JudgedMap(ServedMap(fit.parts)))
        gate = judge_candidate(cells, WINDOW, config.refit)
        base = np.array(fit.parts.base.to_lists()["value"])
        found.append((base, fit.parts.level, fit.certificate, audited.largest_weight, gate))
    assert np.allclose(found[0][0], found[1][0], rtol=1e-9)
    assert found[0][1] == pytest.approx(found[1][1], rel=1e-6)
    assert found[0][2] == found[1][2]
    assert found[0][3] == found[1][3] == 100
    one, other = (each.model_dump() for *_, each in found)
    for name in ("loss_served", "loss_candidate", "gain", "error_buckets", "auc_served", "rows", "positives", "passed"):
        assert one[name] == pytest.approx(other[name], rel=1e-6)


counts = st.lists(st.tuples(st.integers(0, 50), st.integers(0, 50)), min_size=1, max_size=6)


@settings(max_examples=25, deadline=None)
@given(counts, st.integers(1, 20), st.integers(1, 20))
def test_weights_of_whole_numbers_are_rows_so_often(
    classes: list[tuple[int, int]], of_positive: int, of_negative: int
) -> None:
    """Cells of rates 1 / m have the figures of cells in which every row stands m times."""
    plain, repeated = Rows(), Rows()
    for i, (positives, negatives) in enumerate(classes):
        if positives + negatives:
            signature, score = (f"g{i % 2}",), 0.1 + 0.1 * i
            plain.add(signature, 0, positives + negatives, positives, score)
            of_both = of_positive * positives + of_negative * negatives
            repeated.add(signature, 0, of_both, of_positive * positives, score)
    if not plain.parts:
        return
    config = config_of(positives=1 / of_positive, negatives=1 / of_negative)
    one = fit_data(plain.evidence(config).counts.cells(), plain.signatures, (), RowWeights.of(config))
    other = fit_data(repeated.evidence(config).counts.cells(), repeated.signatures)
    assert one.cells.signatures == other.cells.signatures
    assert np.allclose(one.cells.labelled, other.cells.labelled, rtol=1e-9)
    assert np.allclose(one.cells.positives, other.cells.positives, rtol=1e-9)
    assert np.allclose(one.level_labelled, other.level_labelled, rtol=1e-9)
    assert (one.cells.positives <= one.cells.labelled).all()
    assert other.design_effect == 1.0


@settings(max_examples=25, deadline=None)
@given(
    st.lists(st.tuples(st.sampled_from(["a", "b"]), st.sampled_from([1.0, 0.5, 0.013]), st.integers(1, 9)), min_size=1)
)
def test_cells_of_several_rates_are_one_cell_of_their_attributes(cells: list[tuple[str, float, int]]) -> None:
    rows, config = Rows(), config_of(keep_rate=True)
    weight: dict[str, float] = {}
    for region, rate, n in cells:
        rows.add((region, repr(rate)), 0, n, n // 2)
        weight[region] = weight.get(region, 0.0) + n / rate
    data = fit_data(rows.evidence(config).counts.cells(), rows.signatures, (), RowWeights.of(config))
    assert sorted(data.cells.signatures) == sorted((region,) for region in weight)
    assert len(data.cells.labelled) == len(weight)
    for i, place in enumerate(data.cells.signature.tolist()):
        (region,) = data.cells.signatures[place]
        assert data.cells.labelled[i] == pytest.approx(weight[region], rel=1e-9)


def test_the_design_effect_is_the_variance_that_thinning_adds() -> None:
    """Of the log-odds of many draws: one kind of positives, and two kinds of negatives that were thinned unequally."""
    rng = np.random.default_rng(5)
    events, keep = np.array([4_000, 30_000, 30_000]), np.array([0.9, 0.05, 0.01])
    positive = np.array([True, False, False])
    weights = CellWeights(1 / keep, 1 / keep)
    kept = rng.binomial(rng.poisson(events, (4_000, 3)), keep)
    log_odds = np.log((kept / keep)[:, positive].sum(axis=1) / (kept / keep)[:, ~positive].sum(axis=1))
    believed = weights.design_effect(events * keep, events * keep * positive) * (1 / 4_000 + 1 / 60_000)
    assert float(log_odds.var()) == pytest.approx(believed, rel=0.08)


def test_equal_weights_of_a_class_have_the_error_of_their_rows() -> None:
    weights = CellWeights(np.array([1.0]), np.array([100.0]))
    effect = weights.design_effect(np.array([200.0]), np.array([100.0]))
    assert effect == pytest.approx((1 / 100 + 1 / 100) / (1 / 100 + 1 / 10_000))
    assert CellWeights(np.ones(3), np.ones(3)).design_effect(np.array([0.1, 0.7, 3.3]), np.array([0.1, 0.2, 1.1])) == 1
    assert weights.design_effect(np.array([0.0]), np.array([0.0])) == 1


@settings(max_examples=300, deadline=None)
@given(
    st.floats(0.001, 0.999), st.floats(0.001, 0.999), st.floats(1e-4, 1.0), st.floats(1e-4, 1.0), st.integers(1, 1_000)
)
def test_bounds_from_weight_over_the_largest_weight_are_never_too_narrow(
    seen: float, truth: float, positive: float, negative: float, rows: int
) -> None:
    """What docs/theory.md says of certificates where labels decide the weight. `seen`, `truth`: shares of positives
    among the rows that were kept, as drawn and as they should be."""

    def divergence(x: float, y: float) -> float:
        return x * math.log(x / y) + (1 - x) * math.log((1 - x) / (1 - y))

    def before_thinning(share: float) -> float:
        return share * positive / (share * positive + (1 - share) * negative)

    weight = rows * (seen * positive + (1 - seen) * negative)
    bound = weight / max(positive, negative) * divergence(before_thinning(seen), before_thinning(truth))
    assert bound <= rows * divergence(seen, truth) * (1 + 1e-6) + 1e-9


WINDOW = GateWindow("structure", None, FIRST_PANE, FIRST_PANE, 0, 0.0)


def gate_of(n: int, seed: int, positive: float = 1.0, negative: float = 1.0) -> GateCells:
    rng = np.random.default_rng(seed)
    served = rng.uniform(0.05, 0.6, n)
    truth = served / (served + 1.6 * (1 - served))
    label = (rng.random(n) < truth).astype(np.int64)
    return GateCells(
        rng.integers(0, 7, n),
        rng.integers(16, 20, n).astype(np.uint8),
        np.ones(n, np.int64),
        label,
        served,
        truth,
        [CellGroups([f"g={i}" for i in range(4)], rng.integers(0, 4, n).astype(np.intp))],
        CellWeights(np.full(n, positive), np.full(n, negative)),
    )


@settings(max_examples=20, deadline=None)
@given(st.integers(0, 1_000), st.floats(1.0, 50.0))
def test_one_weight_for_all_changes_no_figure_of_the_gate(seed: int, weight: float) -> None:
    config = config_of().refit
    plain = judge_candidate(gate_of(600, seed), WINDOW, config).model_dump()
    same = judge_candidate(gate_of(600, seed, weight, weight), WINDOW, config).model_dump()
    for name, value in plain.items():
        assert same[name] == (pytest.approx(value, rel=1e-9, abs=1e-12) if isinstance(value, float) else value)


def test_a_single_day_and_bucket_have_the_error_that_thinned_labels_have() -> None:
    """There blocks say nothing, and the probabilities themselves give the error; beside it the spread of many draws."""
    rng = np.random.default_rng(3)
    served, candidate, keep = 0.3, 0.4, 0.1
    middle, events, draws = 0.35, 4_000, 3_000
    positives = rng.binomial(events, middle, draws)
    negatives = rng.binomial(events - positives, keep)
    of_positive, of_negative = math.log(candidate / served), math.log((1 - candidate) / (1 - served))
    gains = (positives * of_positive + negatives / keep * of_negative) / (positives + negatives / keep)

    n, k = round(events * (middle + keep * (1 - middle))), round(events * middle)
    one = np.zeros(1, np.int64)
    weights = RowWeights(negatives=1 / keep).of_cells(np.ones(1))
    family = CellGroups(["g"], np.zeros(1, np.intp))
    rows, positive_rows = np.array([n]), np.array([k])
    cells = GateCells(
        one, one.astype(np.uint8), rows, positive_rows, np.array([served]), np.array([candidate]), [family], weights
    )
    report = judge_candidate(cells, WINDOW, config_of().refit)
    assert report.error_days is report.error_buckets is None
    assert report.gain is not None
    assert report.gain_lower is not None
    assert (report.gain - report.gain_lower) / Z == pytest.approx(float(gains.std()), rel=0.06)


def test_the_gate_asks_for_rows_and_not_for_weight() -> None:
    report = judge_candidate(gate_of(9, 1, 100.0, 100.0), WINDOW, config_of().refit)
    assert not report.passed
    assert report.codes == ("too_few_rows", "too_few_of_a_class")
    assert report.rows == 9


def test_without_thinning_nothing_has_another_hash() -> None:
    assert config_hash(config_of()) == config_hash(config_of(positives=1.0))
    hashes = {config_hash(c) for c in (config_of(), config_of(keep_rate=True), config_of(positives=0.5))}
    assert len(hashes | {config_hash(config_of(negatives=0.5))}) == 4


# --- scores


def psi_counts(window: PsiWindow) -> NDArray[np.int64]:
    found = window.counts
    assert found is not None
    return found


@settings(max_examples=15, deadline=None)
@given(
    st.lists(
        st.lists(st.tuples(st.sampled_from(["eu", "us"]), st.sampled_from([1.0, 0.3, 0.01]), st.integers(1, 99))),
        min_size=1,
        max_size=6,
    )
)
def test_the_reference_and_the_window_count_a_score_by_its_rate(panes: list[list[tuple[str, float, int]]]) -> None:
    config, rows = config_of(keep_rate=True), Rows()
    for region, rate in (("eu", 1.0), ("us", 0.02)):
        rows.add((region, repr(rate)), 0, 50, 10, 0.3)
        rows.add((region, repr(rate)), 0, 50, 10, 0.6)
    reference_document = build_reference(rows.evidence(config), IDENTITY, rows.signatures, config)
    by_name = {(g.attribute, g.value): sum(g.rows) for g in reference_document.psi_groups}
    assert by_name == pytest.approx({(None, None): 5_100, ("region", "eu"): 100, ("region", "us"): 5_000})

    window = PsiWindow(3, ["region"], rows.signatures, RowWeights.of(config).of_score)
    window.use(PsiReference([ReferenceGroup(**group.model_dump()) for group in reference_document.psi_groups], 1.0))
    for pane, cells in enumerate(panes):
        columns = [ScoredCells.count(np.empty(0, np.uint64), np.empty(0, np.uint16))]
        for region, rate, n in cells:
            signature = (region, repr(rate))
            rows.dictionary[signature_hash(signature)] = signature
            grid_bin, _ = locate(np.array([0.6]))
            columns.append(ScoredCells(np.array([signature_hash(signature)], np.uint64), grid_bin, np.array([n])))
        merged = ScoredCells.merge(columns)
        window.push(pane, merged.signature, merged.grid_bin, merged.n)
    kept = [cell for pane in panes[-3:] for cell in pane]
    for i, group in enumerate(reference_document.psi_groups):
        expected = sum(n / rate for region, rate, n in kept if group.value in (None, region))
        assert psi_counts(window)[i].sum() == pytest.approx(expected, rel=1e-3, abs=2)
