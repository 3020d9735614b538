"""The estimator: base map, joint offsets and slopes chosen on folds, confirmed patches, a certificate."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.base import BaseEstimator
from sklearn.utils.validation import check_is_fitted

from stream_calib.calibration.configuration import Configuration
from stream_calib.calibration.family_parameters import family_rules
from stream_calib.calibration.five_folds import Chosen, choose_by_folds
from stream_calib.calibration.groups import FamilyRule, make_family
from stream_calib.calibration.input_checks import checked_scores
from stream_calib.calibration.joint.fit import fit_joint
from stream_calib.calibration.labelled_cells import LabelledCells
from stream_calib.calibration.labelled_rows import Columns, LabelledRows, checked_attributes, signatures_of
from stream_calib.calibration.ladder import fit_rung
from stream_calib.calibration.maps.explanation import Explanation, explain
from stream_calib.calibration.maps.parts import MapParts
from stream_calib.calibration.maps.served_map import ServedMap
from stream_calib.calibration.multicalibration.finite import MIN_ROWS, MulticalibrationResult, multicalibrate_cells
from stream_calib.calibration.multicalibration.held_out import HeldOut, hold_out
from stream_calib.calibration.multicalibration.summary import summary_text
from stream_calib.calibration.multicalibration.target import AuditTarget
from stream_calib.calibration.parameter_checks import check_real, check_whole
from stream_calib.calibration.unit_roles import (
    AUDIT_BUCKETS,
    CERTIFICATE_BUCKETS,
    FIT_BUCKETS,
    FOLDS,
    UNIT_BUCKETS,
    check_folds,
    in_buckets,
    unit_parts,
)
from stream_calib.errors import (
    ConfigurationError,
    OneClassError,
    TooFewPositivesError,
    TooFewRowsError,
)

if TYPE_CHECKING:
    from typing_extensions import Self


class Multicalibrator(BaseEstimator):  # type: ignore[misc]  # scikit-learn ships no types
    """Calibrates scores overall and within overlapping groups, and says how well, from rows that it did not use.

    | parameter | meaning |
    |---|---|
    | `depth` | all intersections of up to so many attributes are families |
    | `intersections` | further families: each the attributes that are crossed |
    | `predicates` | further groups by name: for each attribute the values that it admits |
    | `gamma` | share of the rows from which an audit cell (group, interval of probability) counts |
    | `alpha_abs`, `alpha_rel` | how far a cell may be off: max(alpha_abs, alpha_rel x the interval's middle) |
    | `delta` | error probability of the confirmations together, and of the certificate |
    | `kappa` | smallest fall of the mean squared error for which a round of patches is accepted |
    | `ridge` | of offsets and slopes: rows' worth of shrinkage to 0 |
    | `n_groups`, `prior_strength` | of GIRB, where it is the base map |
    | `min_rows`, `min_positives` | of the fit buckets, below which `fit` refuses; rows are also counted by weight |
    | `p_min` | probabilities lie within [p_min, 1 - p_min] |
    | `seed` | of the hash that deals units into 20 buckets |

    Of the buckets 16 are for the fit, 2 audit patches, 2 are for the certificate; no unit is in two. Which base map,
    which families, and which of them with slopes or firm: by losses on five folds of the fit buckets
    (`choose_by_folds`). Patches and certificate: `multicalibrate_cells`. So each confirmation and the certificate speak
    of the very map that is served, from rows that had no part in it.

    After a fit: `parts_` (MapParts), `map_` (ServedMap), `chosen_` (what the folds said), `result_` (rounds of
    patches), `certificate_`, `held_out_` (losses before and after, on the rows of the certificate).
    """

    def __init__(
        self,
        *,
        depth: int = 1,
        intersections: Sequence[Sequence[str]] = (),
        predicates: Mapping[str, Mapping[str, Sequence[str]]] | None = None,
        gamma: float = 0.01,
        alpha_abs: float = 0.02,
        alpha_rel: float = 0.1,
        delta: float = 0.05,
        kappa: float = 1e-6,
        ridge: float = 20.0,
        n_groups: int = 100,
        prior_strength: float = 30.0,
        min_rows: int = 200,
        min_positives: int = 10,
        p_min: float = 1e-6,
        seed: int = 0,
    ) -> None:
        self.depth = depth
        self.intersections = intersections
        self.predicates = predicates
        self.gamma = gamma
        self.alpha_abs = alpha_abs
        self.alpha_rel = alpha_rel
        self.delta = delta
        self.kappa = kappa
        self.ridge = ridge
        self.n_groups = n_groups
        self.prior_strength = prior_strength
        self.min_rows = min_rows
        self.min_positives = min_positives
        self.p_min = p_min
        self.seed = seed

    def fit(
        self,
        scores: ArrayLike,
        labels: ArrayLike,
        attributes: Columns,
        *,
        unit_ids: ArrayLike | None = None,
        sample_weight: ArrayLike | None = None,
    ) -> Self:
        """Fits to scores (n,) in [0, 1], labels (n,) of 0 and 1, and columns (n,) of text by attribute.

        `unit_ids` (n,), text or whole numbers: rows of one unit may depend on each other and share its bucket; None:
        every row is a unit. A unit is the text of its id, so 1 and "1" are one. The bounds of confirmations and
        certificate then are those of as many units as rows / the largest number of rows (or weight) of one unit there.

        `sample_weight` (n,) >= 0: a weight of 2 counts as two rows of one unit, everywhere. Weights that only say how
        rows compare should have a mean of 1.

        Raises the FitError family: LengthMismatchError, NonFiniteInputError, ScoreRangeError, WeightError,
        OneClassError, TooFewRowsError (too few units too), TooFewPositivesError; FitError for labels, attributes or ids
        of another kind; ConfigurationError for parameters that make no sense.
        """
        self._check_parameters()
        target = AuditTarget(self.gamma, self.alpha_abs, self.alpha_rel)
        attributes = checked_attributes(attributes)
        rules = self._rules(list(attributes))
        rows = LabelledRows.checked(scores, labels, attributes, sample_weight)
        unit, bucket, fold = unit_parts(unit_ids, len(rows.score), self.seed)
        in_fit = in_buckets(bucket, FIT_BUCKETS)
        self._check_enough(rows, in_fit)
        check_folds(unit, fold, in_fit & (rows.weight > 0))

        cells = rows.cells(in_fit)
        folds = [rows.cells(in_fit & (fold == place)) for place in range(FOLDS)]
        chosen = choose_by_folds(
            folds,
            rules,
            ridge=self.ridge,
            slope_ridge=self.ridge,
            p_min=self.p_min,
            n_groups=self.n_groups,
            prior_strength=self.prior_strength,
        )
        result = self._finish(rows, unit, bucket, cells, self._fitted(cells, chosen.configuration), rules, target)

        self.attributes_ = tuple(attributes)
        self.chosen_: Chosen = chosen
        self.result_ = result
        self.certificate_ = result.certificate
        self.parts_ = result.parts
        self.map_ = ServedMap(result.parts)
        self.held_out_: HeldOut | None = hold_out(rows, in_buckets(bucket, CERTIFICATE_BUCKETS), self.map_)
        return self

    def predict(self, scores: ArrayLike, attributes: Columns) -> NDArray[np.float64]:
        """Calibrated probabilities (n,) of scores (n,). Values that no fit has seen are served by the other groups.

        Raises NonFiniteInputError, ScoreRangeError, LengthMismatchError, FitError (attributes of another kind),
        ConfigurationError (other attributes).
        """
        check_is_fitted(self, "map_")
        score = checked_scores(scores)
        attributes = checked_attributes(attributes)
        self._check_attributes(attributes)
        signatures, place = signatures_of({name: attributes[name] for name in self.attributes_}, len(score))
        served: ServedMap = self.map_
        return served.apply(score, place, signatures)

    def explain(self, score: float, attributes: Mapping[str, str]) -> Explanation:
        """Every part of the map that moved one event's probability, and by how much, as data and (`str`) as text.

        Raises NonFiniteInputError, ScoreRangeError, FitError (a score or values of another kind), ConfigurationError
        (other attributes).
        """
        check_is_fitted(self, "map_")
        self._check_attributes(attributes)
        parts: MapParts = self.parts_
        return explain(parts, score, tuple(attributes[name] for name in self.attributes_))

    def summary(self) -> str:
        """What was chosen, what patches were confirmed, what is certified, and the losses of held-out rows, as text."""
        check_is_fitted(self, "map_")
        return summary_text(self.chosen_, self.result_, self.held_out_)

    def _check_attributes(self, attributes: Iterable[str]) -> None:
        if set(attributes) != set(self.attributes_):
            raise ConfigurationError(f"attributes {list(attributes)}; the map was fitted with {list(self.attributes_)}")

    def _rules(self, names: Sequence[str]) -> list[FamilyRule]:
        if not names:
            raise ConfigurationError("no attributes; give at least one column, or use GIRB where there are no groups")
        return family_rules(self.depth, self.intersections, self.predicates, names)

    def _check_parameters(self) -> None:
        for name, least in (("depth", 1), ("n_groups", 1), ("min_rows", 0), ("min_positives", 0)):
            check_whole(name, getattr(self, name), least)
        for name in ("gamma", "alpha_abs", "alpha_rel", "delta", "kappa", "ridge", "prior_strength", "p_min"):
            check_real(name, getattr(self, name))
        for name in ("kappa", "ridge"):
            if not getattr(self, name) > 0:
                raise ConfigurationError(f"{name} = {getattr(self, name)}; it must be above 0")
        if not 0 < self.delta < 1:
            raise ConfigurationError(f"delta = {self.delta}; it is an error probability, in (0, 1)")

    def _check_enough(self, rows: LabelledRows, in_fit: NDArray[np.bool_]) -> None:
        used = in_fit & (rows.weight > 0)
        n, positives = int(used.sum()), int(rows.label[used].sum())
        needed, weight = max(self.min_rows, MIN_ROWS), float(rows.weight[used].sum())
        where = f"in the {len(FIT_BUCKETS)} fit buckets of {UNIT_BUCKETS}"
        if n < needed:
            raise TooFewRowsError(f"{n} rows {where}; {needed} are needed: give more rows")
        if weight < needed:
            raise TooFewRowsError(
                f"{n} rows {where} weigh {weight:.3g} together; weights count as rows, and {needed} are needed: scale "
                "the weights to a mean of 1, or give more rows"
            )
        if positives in (0, n):
            raise OneClassError(f"all {n} labels in the fit buckets are {int(positives > 0)}; both classes are needed")
        if min(positives, n - positives) < self.min_positives:
            raise TooFewPositivesError(
                f"{positives} positives of {n} rows in the fit buckets; {self.min_positives} of each class are needed"
            )

    def _fitted(self, cells: LabelledCells, configuration: Configuration) -> MapParts:
        base = fit_rung(
            configuration.rung, cells, p_min=self.p_min, n_groups=self.n_groups, prior_strength=self.prior_strength
        )
        families = [make_family(rule, cells.signatures) for rule in configuration.families]
        joint = fit_joint(
            cells,
            base,
            families,
            slopes=configuration.slope_places,
            firm=configuration.firm_places,
            ridge=self.ridge,
            slope_ridge=self.ridge,
        )
        return MapParts(
            base=base,
            families=joint.shifts,
            p_min=self.p_min,
            slope_centre=joint.slope_centre,
            # Bins without rows count a little too: a weight must be above 0.
            bin_weight=cells.by_bin()[0] + 1.0,
        )

    def _finish(
        self,
        rows: LabelledRows,
        unit: NDArray[np.intp],
        bucket: NDArray[np.uint8],
        cells: LabelledCells,
        parts: MapParts,
        rules: Sequence[FamilyRule],
        target: AuditTarget,
    ) -> MulticalibrationResult:
        checked = in_buckets(bucket, (*AUDIT_BUCKETS, *CERTIFICATE_BUCKETS))
        of_unit = np.bincount(unit[checked], rows.weight[checked], 1)
        return multicalibrate_cells(
            cells,
            [rows.cells(bucket == audit) for audit in AUDIT_BUCKETS],
            rows.cells(in_buckets(bucket, CERTIFICATE_BUCKETS)),
            [make_family(rule, cells.signatures) for rule in rules],
            parts,
            target=target,
            delta=self.delta,
            kappa=self.kappa,
            # Without any weight there nothing is confirmed or certified, whatever a unit counts for.
            largest_unit=float(of_unit.max()) or 1.0,
        )
