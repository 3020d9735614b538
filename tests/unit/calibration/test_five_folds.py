from dataclasses import replace

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy.special import expit

from benchmarks.synthetic_world import ATTRIBUTES, SIGNATURES, SyntheticWorld
from stream_calib.calibration.configuration import RUNGS, Configuration
from stream_calib.calibration.five_folds import Chosen, cells_by_fold, choose_by_folds
from stream_calib.calibration.grid import CENTRE_LOG_ODDS, N_BINS
from stream_calib.calibration.groups import families_up_to, family_rule, make_family
from stream_calib.calibration.joint.fit import fit_joint
from stream_calib.calibration.labelled_cells import LabelledCells
from stream_calib.calibration.ladder import make_rung
from stream_calib.calibration.maps.parts import MapParts
from stream_calib.calibration.maps.served_map import ServedMap
from stream_calib.errors import FitError, LengthMismatchError, OneClassError

TWO = [(f"a{i}", f"b{j}") for i in range(6) for j in range(30)]
A, B = family_rule(["a"], ["a", "b"]), family_rule(["b"], ["a", "b"])


def folds_of(
    seed: int, rows: int, *, offset: float = 0.0, slope: float = 0.0, base: tuple[float, float] = (0.0, 1.0)
) -> list[LabelledCells]:
    """Five folds of a world where a has offsets and slopes of these sizes and b has no effect; base: Platt's a, b."""
    random = np.random.default_rng(seed)
    signature = random.integers(0, len(TWO), rows)
    grid_bin = np.clip(random.normal(190, 25, rows).astype(np.intp), 1, N_BINS - 2)
    x = CENTRE_LOG_ODDS[grid_bin]
    sign = np.array([-1.0, 1.0] * 3)[signature // 30]
    label = random.random(rows) < expit(base[0] + base[1] * x + sign * (offset + slope * x))
    cells = LabelledCells(TWO, signature, grid_bin, np.ones(rows), label.astype(np.float64))
    return cells_by_fold(cells, random.integers(0, 5, rows), 5)


def test_a_family_without_effect_goes_and_one_with_stays() -> None:
    chosen = choose_by_folds(folds_of(1, 40_000, offset=0.5), [A, B]).configuration
    assert chosen.families == (A,)
    assert chosen.slopes == ()


def test_slopes_come_on_where_they_are_there() -> None:
    chosen = choose_by_folds(folds_of(2, 40_000, offset=0.3, slope=0.4), [A, B]).configuration
    assert chosen.slopes == (A,)


def test_the_rung_is_the_simplest_that_does() -> None:
    assert choose_by_folds(folds_of(3, 40_000), [A]).configuration.rung == "identity"
    assert choose_by_folds(folds_of(3, 40_000, base=(-0.5, 0.5)), [A]).configuration.rung == "platt"


def test_a_rung_that_cannot_be_fitted_is_left_out_and_told() -> None:
    """Labels that fall with the score: a Platt fit would decrease."""
    chosen = choose_by_folds(folds_of(4, 5_000, base=(0.0, -1.0)), [A])
    assert "platt" in chosen.refused
    assert "platt" not in {configuration.rung for configuration in chosen.losses}
    assert chosen.configuration.rung not in chosen.refused


def test_losses_are_those_of_fits_to_the_other_folds() -> None:
    folds = folds_of(5, 4_000, offset=0.5)
    chosen = choose_by_folds(folds, [A, B])
    full = Configuration("girb", (A, B))
    for i, held_out in enumerate(folds):
        rest = [fold for j, fold in enumerate(folds) if j != i]
        columns = ("signature", "grid_bin", "labelled", "positives")
        cells = LabelledCells(TWO, *(np.concatenate([getattr(fold, name) for fold in rest]) for name in columns))
        counts = (np.bincount(cells.grid_bin, column, N_BINS) for column in (cells.labelled, cells.positives))
        base = make_rung("girb", p_min=1e-6, n_groups=100, prior_strength=30.0).fit_cells(*counts).base_map()
        fit = fit_joint(cells, base, [make_family(rule, TWO) for rule in (A, B)])
        p = expit(fit.log_odds(held_out, base))
        loss = -np.log(np.where(held_out.positives > 0, p, 1 - p)).sum()
        assert chosen.losses[full][i] == pytest.approx(loss, abs=1e-3)
    np.testing.assert_array_equal(chosen.rows, [len(fold.signature) for fold in folds])


def test_the_choice_follows_the_rules_from_full_to_chosen() -> None:
    chosen = choose_by_folds(folds_of(6, 20_000, offset=0.5), [A, B])
    tried = list(chosen.losses)
    assert tried[: len(RUNGS)] == [Configuration(rung, (A, B)) for rung in RUNGS]
    on_rung = Configuration(chosen.configuration.rung, (A, B))
    assert {on_rung.with_slope(A), on_rung.with_slope(B), on_rung.with_firm(A)} <= set(tried)
    assert chosen.configuration in chosen.losses


def test_neither_the_order_of_cells_nor_how_folds_are_split_into_cells_changes_the_choice() -> None:
    folds = folds_of(7, 10_000, offset=0.5)
    shuffled = [fold.rows(np.random.default_rng(1).permutation(len(fold.signature))) for fold in folds]
    once, again = choose_by_folds(folds, [A, B]), choose_by_folds(shuffled, [A, B])
    assert again.configuration == once.configuration
    assert [each.tobytes() for each in again.losses.values()] == [each.tobytes() for each in once.losses.values()]


def test_no_families() -> None:
    assert choose_by_folds(folds_of(8, 2_000), []).configuration.families == ()


def test_text_has_a_line_for_all_that_was_tried_and_marks_the_chosen() -> None:
    rows = np.array([10.0, 10.0])
    one, other = Configuration("platt", (A,)), Configuration("girb", (A,))
    text = Chosen(one, {one: np.array([5.0, 5.0]), other: np.array([5.5, 5.9])}, rows, {}).text()
    # Differences .5 and .9 in 20 rows: mean .07, error sqrt(2 x 2 x .2^2) / 20 = .02.
    assert text.splitlines() == [
        "* 0.500000 +0.000000 +- 0.000000  platt + a",
        "  0.570000 +0.070000 +- 0.020000  girb + a",
    ]


def test_what_cannot_be_chosen_from_is_refused() -> None:
    folds = folds_of(9, 1_000)
    with pytest.raises(FitError, match="1 folds; at least 2 are needed"):
        choose_by_folds(folds[:1], [A])
    with pytest.raises(FitError, match="none may be empty: give more units or fewer folds"):
        choose_by_folds([*folds, folds[0].rows(np.zeros(0, dtype=np.intp))], [A])
    with pytest.raises(LengthMismatchError, match="folds have different signatures"):
        choose_by_folds([folds[0], replace(folds[1], signatures=TWO[::-1])], [A])
    with pytest.raises(LengthMismatchError, match="give one fold a cell"):
        cells_by_fold(folds[0], np.zeros(3, dtype=np.intp), 5)
    one_class = [replace(fold, positives=np.zeros(len(fold.positives))) for fold in folds]
    with pytest.raises(OneClassError):
        choose_by_folds(one_class, [A])


@pytest.fixture(scope="module")
def folded_world() -> tuple[Chosen, float]:
    """What is chosen on a synthetic world's 800,000 rows, as many as `Multicalibrator` fits to of a million, and the
    RMSE of its served map on 200,000 others."""
    world = SyntheticWorld(1)
    train, test = world.sample(800_000, 101), world.sample(200_000, 201)
    fold: NDArray[np.intp] = np.arange(800_000) % 5
    rules = families_up_to(2, ATTRIBUTES)
    chosen = choose_by_folds([train.rows(fold == i).cells() for i in range(5)], rules)
    c, cells = chosen.configuration, train.cells()
    counts = (np.bincount(cells.grid_bin, column, N_BINS) for column in (cells.labelled, cells.positives))
    base = make_rung(c.rung, p_min=1e-6, n_groups=100, prior_strength=30.0).fit_cells(*counts).base_map()
    families = [make_family(rule, SIGNATURES) for rule in c.families]
    fit = fit_joint(cells, base, families, slopes=c.slope_places, firm=c.firm_places)
    served = ServedMap(MapParts(base, fit.shifts, slope_centre=fit.slope_centre))
    return chosen, test.rmse(served.apply(test.score, test.signature, SIGNATURES))


def test_the_synthetic_worlds_structure_is_found(folded_world: tuple[Chosen, float]) -> None:
    country, content, device, pair, *_ = families_up_to(2, ATTRIBUTES)
    chosen = folded_world[0].configuration
    assert chosen.families == (country, content, device, pair)
    assert chosen.slopes == (content,)
    assert chosen.firm == (pair,)


def test_the_synthetic_worlds_truth_is_found_to_one_hundredth(folded_world: tuple[Chosen, float]) -> None:
    assert folded_world[1] <= 0.0100
