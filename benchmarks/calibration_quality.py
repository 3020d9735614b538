"""How near each method comes to the truth of the synthetic world, and what a fit of MCGrad takes there."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from sklearn.isotonic import IsotonicRegression

from benchmarks.mcgrad_runs import How, Job, McGrad
from benchmarks.synthetic_world import ATTRIBUTES, N_CONTENTS, N_DEVICES, SIGNATURES, Sample, SyntheticWorld
from stream_calib.calibration import GIRB, MapParts, Multicalibrator, ServedMap, fit_joint
from stream_calib.calibration.five_folds import choose_by_folds
from stream_calib.calibration.groups import families_up_to, make_family
from stream_calib.calibration.ladder import make_rung

FOLDS = 5


@dataclass(frozen=True, slots=True, eq=False)
class Trial:
    """One world with its training and its test rows."""

    number: int
    train: Sample
    test: Sample

    @classmethod
    def draw(cls, number: int, rows: int) -> Trial:
        world = SyntheticWorld(number)
        return cls(number, world.sample(rows, 1_000 + number), world.sample(rows, 2_000 + number))

    def job(self) -> Job:
        """The same rows for MCGrad."""
        train, test = self.train, self.test
        return Job(train.score, train.label, codes(train), test.score, codes(test))


def codes(sample: Sample) -> dict[str, NDArray[np.intp]]:
    """Attribute values as numbers."""
    country, rest = np.divmod(sample.signature, N_CONTENTS * N_DEVICES)
    content, device = np.divmod(rest, N_DEVICES)
    return dict(zip(ATTRIBUTES, (country, content, device), strict=True))


def measure_own(trial: Trial, step: Callable[[str], None]) -> tuple[dict[str, float], dict[str, float]]:
    """RMSE to the truth, and seconds of the fit, by method."""
    train, test = trial.train, trial.test
    rmse, seconds = {"raw": test.rmse(test.score)}, {}
    step(f"world {trial.number}: isotonic, GIRB")
    for name, method in (("isotonic", IsotonicRegression(out_of_bounds="clip")), ("girb", GIRB())):
        started = time.process_time()
        method.fit(train.score, train.label)
        seconds[name] = time.process_time() - started
        rmse[name] = test.rmse(method.predict(test.score))
    step(f"world {trial.number}: Multicalibrator")
    attributes = train.attributes()
    started = time.process_time()
    multicalibrator = Multicalibrator(depth=2).fit(train.score, train.label, attributes)
    seconds["multicalibrator"] = time.process_time() - started
    rmse["multicalibrator"] = test.rmse(multicalibrator.map_.apply(test.score, test.signature, SIGNATURES))
    step(f"world {trial.number}: all rows fitted, none left to certify")
    started = time.process_time()
    served = fit_on_all(train)
    seconds["all_rows"] = time.process_time() - started
    rmse["all_rows"] = test.rmse(served.apply(test.score, test.signature, SIGNATURES))
    return rmse, seconds


def measure_mcgrad(trial: Trial, how: How, mcgrad: McGrad, step: Callable[[str], None]) -> tuple[float, float]:
    """RMSE to the truth, and seconds of the fit."""
    step(f"world {trial.number}: MCGrad, {how}")
    (outcome,) = mcgrad.run(how, [trial.job()])
    return trial.test.rmse(outcome.probability), outcome.seconds


def fit_on_all(train: Sample) -> ServedMap:
    """Chosen by five folds and fitted to all rows: what Multicalibrator does, without the parts it keeps untouched."""
    rules = families_up_to(2, ATTRIBUTES)
    fold = np.random.default_rng(9).integers(0, FOLDS, len(train.score))
    folds = [train.rows(fold == number).cells() for number in range(FOLDS)]
    chosen = choose_by_folds(folds, rules).configuration
    cells = train.cells()
    labelled, positives = cells.by_bin()
    rung = make_rung(chosen.rung, p_min=1e-6, n_groups=100, prior_strength=30.0)
    base = rung.fit_cells(labelled, positives).base_map()
    joint = fit_joint(
        cells,
        base,
        [make_family(rule, SIGNATURES) for rule in chosen.families],
        slopes=chosen.slope_places,
        firm=chosen.firm_places,
    )
    parts = MapParts(base=base, families=joint.shifts, slope_centre=joint.slope_centre, bin_weight=labelled + 1.0)
    return ServedMap(parts)
