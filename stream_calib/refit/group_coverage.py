"""How many scores of each group have a label: where only some ever have, what is fitted speaks of these alone."""

from __future__ import annotations

import numpy as np

from stream_calib.calibration.groups import make_family
from stream_calib.calibration.multicalibration.audit import EVERYTHING
from stream_calib.config import Config
from stream_calib.drift.psi_window import Signatures
from stream_calib.refit.evidence import PastPanes
from stream_calib.refit.groups import family_rules
from stream_calib.refit.labelled import signature_values
from stream_calib.refit.row_weights import RowWeights
from stream_calib.snapshot.figures import rounded_figure
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
    found: list[GroupCoverage] = []
    for rule in (EVERYTHING, *family_rules(config)):
        family = make_family(rule, values)
        sums = [np.bincount(family.group_of + 1, column, len(family.keys) + 1)[1:] for column in columns]
        for name, winners, known, rows, weight, positives in zip(
            family.names, *(s.tolist() for s in sums), strict=True
        ):
            if winners > 0 and (rule == EVERYTHING or winners >= config.drift.min_mass * found[0].scores):
                found.append(
                    GroupCoverage(
                        name=name,
                        scores=rounded_figure(winners),
                        labelled=rounded_figure(rows),
                        coverage=rounded_figure(known / winners),
                        positive_share=rounded_figure(positives / weight) if weight > 0 else None,
                    )
                )
    return (*found[:1], *sorted(found[1:], key=lambda group: (group.coverage, group.name))[:MOST_GROUPS])
