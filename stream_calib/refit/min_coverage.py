"""Groups of which too few scores have a label (`calibration.min_coverage`).

The few may say nothing of the others, so no offset, slope or patch is fitted to them: what the group is served is of
everything and of its scores' other groups.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from stream_calib.calibration.groups import Family, FamilyRule, GroupKey, Signature, make_family
from stream_calib.config import Config
from stream_calib.drift.psi_window import Signatures
from stream_calib.refit.decayed_counts import FitCells
from stream_calib.refit.labelled import extended_signatures, signature_values
from stream_calib.refit.row_weights import RowWeights
from stream_calib.snapshot.figures import rounded_figure
from stream_calib.snapshot.report import GroupCoverage


@dataclass(frozen=True, slots=True)
class Uncovered:
    """The groups that have labelled rows, and too few; none by default."""

    by_rule: Mapping[FamilyRule, Mapping[GroupKey, GroupCoverage]] = field(default_factory=dict)

    def family(self, rule: FamilyRule, signatures: Sequence[Signature]) -> Family:
        """The family's groups among s signatures, but for the uncovered ones."""
        family = make_family(rule, signatures)
        return family.without(self.by_rule[rule]) if self.by_rule.get(rule) else family

    @property
    def groups(self) -> list[GroupCoverage]:
        """Those of the most scores first."""
        found = [group for groups in self.by_rule.values() for group in groups.values()]
        return sorted(found, key=lambda group: (-group.scores, group.name))


ALL_COVERED = Uncovered()


def uncovered_groups(
    cells: FitCells, signatures: Signatures, rules: Sequence[FamilyRule], derived: Sequence[int], config: Config
) -> Uncovered:
    """The groups of these families of whose scores in complete panes a smaller share than `calibration.min_coverage`
    has a label, decayed by age.

    `derived`: as for `fit_data`. Scores count by their keep rate. An outage makes no group uncovered: its panes are
    incomplete, and left out on both sides.
    """
    least = config.calibration.min_coverage
    if not least:
        return ALL_COVERED
    weights = RowWeights.of(config)
    values, place, inverse_rate = signature_values(cells.signature, signatures, weights)
    if derived:
        values, place = extended_signatures(values, place, cells.derived, cells.derived_values, derived)
    by_weight = weights.of_cells(inverse_rate).weighted(cells.labelled, cells.positives)
    known = cells.winners - cells.missing
    columns = [
        np.bincount(place, column, len(values))
        for column in (known * inverse_rate, cells.labelled * inverse_rate, cells.labelled, *by_weight)
    ]
    found: dict[FamilyRule, dict[GroupKey, GroupCoverage]] = {}
    for rule in rules:
        family = make_family(rule, values)
        sums = [np.bincount(family.group_of + 1, column, len(family.keys) + 1)[1:] for column in columns]
        for key, name, scores, labelled, rows, weight, positives in zip(
            family.keys, family.names, *(s.tolist() for s in sums), strict=True
        ):
            if rows > 0 and labelled < least * scores:
                found.setdefault(rule, {})[key] = GroupCoverage(
                    name=name,
                    scores=rounded_figure(scores),
                    labelled=rounded_figure(rows),
                    coverage=rounded_figure(labelled / scores),
                    positive_share=rounded_figure(positives / weight),
                )
    return Uncovered(found)
