"""Audits: sums over (group, interval) as the definition says."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from stream_calib.calibration.groups import OTHER, family_rule, make_family, predicate_rule
from stream_calib.calibration.labelled_cells import LabelledCells
from stream_calib.calibration.multicalibration.audit import EVERYTHING, audit
from stream_calib.calibration.multicalibration.target import AuditTarget
from stream_calib.errors import ConfigurationError, LengthMismatchError

NAMES = ("country", "device")
SIGNATURES = [("a", "x"), ("a", "y"), ("b", "x"), (OTHER, "y")]
RULES = [
    EVERYTHING,
    family_rule(("country",), NAMES),
    family_rule(("country", "device"), NAMES),
    predicate_rule("known", {"country": ["a", "b"], "device": ["x"]}, NAMES),
]
FAMILIES = [make_family(rule, SIGNATURES) for rule in RULES]
TARGET = AuditTarget(gamma=0.1, edges=(0.0, 0.25, 0.5, 1.0))


@settings(max_examples=60, deadline=None)
@given(st.lists(st.tuples(st.integers(0, 3), st.integers(0, 20), st.floats(0, 1), st.floats(0, 1)), max_size=30))
def test_sums_are_those_of_the_definition(rows: list[tuple[int, int, float, float]]) -> None:
    signature = np.array([row[0] for row in rows], dtype=np.intp)
    labelled = np.array([float(row[1]) for row in rows])
    positives = np.floor(labelled * np.array([row[2] for row in rows]))
    f = np.array([row[3] for row in rows])
    cells = LabelledCells(SIGNATURES, signature, np.zeros(len(rows), dtype=int), labelled, positives)

    for found, rule in zip(audit(cells, f, FAMILIES, TARGET), RULES, strict=True):
        assert found.rows.shape == (len(found.family.keys), 3)
        for g, key in enumerate(found.family.keys):
            for j in range(3):
                upper = f <= 1.0 if j == 2 else f < TARGET.edges[j + 1]
                member = np.array([rule.group(SIGNATURES[s]) == key for s in signature], dtype=bool)
                inside = member & (f >= TARGET.edges[j]) & upper
                n, k = labelled[inside], positives[inside]
                assert found.rows[g, j] == pytest.approx(n.sum())
                assert found.positives[g, j] == pytest.approx(k.sum())
                assert found.expected[g, j] == pytest.approx((n * f[inside]).sum())
                assert found.variance[g, j] == pytest.approx((n * f[inside] * (1 - f[inside])).sum())
                if n.sum() > 0:
                    assert found.residual[g, j] == pytest.approx((k.sum() - (n * f[inside]).sum()) / n.sum())
                else:
                    assert found.residual[g, j] == 0.0


def test_everything_is_one_group_which_other_is_in_too() -> None:
    assert FAMILIES[0].names == ["all"]
    assert FAMILIES[0].group_of.tolist() == [0, 0, 0, 0]
    assert FAMILIES[1].group_of.tolist() == [0, 0, 1, -1]


def test_columns_that_do_not_belong_together_are_refused() -> None:
    cells = LabelledCells(SIGNATURES, np.zeros(2, dtype=np.intp), np.zeros(2, dtype=int), np.ones(2), np.ones(2))
    with pytest.raises(LengthMismatchError, match=r"probabilities \(3,\) for cells \(2,\)"):
        audit(cells, np.zeros(3), FAMILIES, TARGET)
    with pytest.raises(LengthMismatchError, match="is of 3 signatures, the cells of 4"):
        audit(cells, np.zeros(2), [make_family(RULES[1], SIGNATURES[:3])], TARGET)


def test_targets() -> None:
    target = AuditTarget(gamma=0.02, alpha_abs=0.02, alpha_rel=0.1, edges=(0.0, 0.1, 0.5, 1.0))
    assert target.alpha.tolist() == pytest.approx([0.02, 0.03, 0.075])
    assert target.interval_of(np.array([0.0, 0.1, 0.4999, 0.5, 1.0])).tolist() == [0, 1, 1, 2, 2]
    assert [target.interval_name(j) for j in range(3)] == ["[0, 0.1)", "[0.1, 0.5)", "[0.5, 1]"]
    with pytest.raises(ConfigurationError, match="gamma = 0; it is a share of the rows"):
        AuditTarget(gamma=0)
    with pytest.raises(ConfigurationError, match="alpha_abs = 0"):
        AuditTarget(alpha_abs=0)
