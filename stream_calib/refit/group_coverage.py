"""How many scores of each group have a label: where only some ever have, what is fitted speaks of these alone."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from stream_calib.calibration.groups import make_family
from stream_calib.calibration.multicalibration.audit import EVERYTHING
from stream_calib.calibration.rounding import round_significant
from stream_calib.config import Config
from stream_calib.drift.psi_window import Signatures
from stream_calib.refit.evidence import PastPanes
from stream_calib.refit.groups import family_rules
from stream_calib.refit.labelled import signature_values
from stream_calib.refit.row_weights import RowWeights
from stream_calib.snapshot.figures import FIGURE_DIGITS, rounded_figure
from stream_calib.snapshot.report import GroupCoverage

MOST_GROUPS = 20


def group_coverage(evidence: PastPanes, signatures: Signatures, config: Config) -> tuple[GroupCoverage, ...]:
    """Everything first, then the groups of at least `drift.min_mass` of the scores that have the least coverage.

    Of the fit buckets, decayed by age. Scores count by their keep rate; the share of positives is by weight, of
    labelled rows alone. Labels that are missing for a time (an outage) are missing here too.
    """
    cells, weights = evidence.fit_cells(), RowWeights.of(config)
    values, place, inverse_rate = signature_values(cells.signature, signatures, weights)
    by_weight = weights.of_cells(inverse_rate).weighted(cells.labelled, cells.positives)
    columns = [
        np.bincount(place, column, len(values))
        for column in (cells.winners * inverse_rate, cells.labelled * inverse_rate, cells.labelled, *by_weight)
    ]
    everything: list[GroupCoverage] = []
    found: list[tuple[float, str, list[float]]] = []
    for rule in (EVERYTHING, *family_rules(config)):
        family = make_family(rule, values)
        sums = np.stack([np.bincount(family.group_of + 1, column, len(family.keys) + 1)[1:] for column in columns])
        least = config.drift.min_mass * everything[0].scores if everything else 0.0
        heavy = np.flatnonzero((sums[0] > 0) & (sums[0] >= least))
        names = [rule.group_name(family.keys[i]) for i in heavy.tolist()]
        coverage = round_significant(sums[1, heavy] / sums[0, heavy], FIGURE_DIGITS).tolist()
        of_rule = list(zip(coverage, names, sums[:, heavy].T.tolist(), strict=True))
        if rule == EVERYTHING:
            everything = [_line(*line) for line in of_rule]
        else:
            found += of_rule
    return (*everything, *(_line(*line) for line in sorted(found)[:MOST_GROUPS]))


def _line(coverage: float, name: str, sums: Sequence[float]) -> GroupCoverage:
    """`sums`: scores, and labelled rows, by keep rate; labelled rows; their weight and that of the positives."""
    scores, _, labelled, weight, positives = sums
    return GroupCoverage(
        name=name,
        scores=rounded_figure(scores),
        labelled=rounded_figure(labelled),
        coverage=coverage,
        positive_share=rounded_figure(positives / weight) if weight > 0 else None,
    )
