from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from stream_calib.errors import StateError
from stream_calib.events.identity import UNIT_BUCKETS
from stream_calib.refit.decay import MOST_ROWS_A_PANE, Decay
from stream_calib.refit.decayed_counts import DecayedCounts
from stream_calib.refit.evidence import Evidence
from stream_calib.refit.roles import IS_FIT, IS_GATE, ROLES, overlap
from stream_calib.windows.cells import EMPTY_MATURED, MaturedCells
from tests.unit.refit.world import FIRST_PANE, Rows, config


def test_roles_cover_every_bucket_once() -> None:
    assert sorted(b for buckets in ROLES.values() for b in buckets) == list(range(UNIT_BUCKETS))
    assert overlap() == 0
    assert not (IS_FIT & IS_GATE).any()
    assert (int(IS_FIT.sum()), int(IS_GATE.sum())) == (12, 4)


def cells(rows: list[tuple[int, int, int, int]]) -> MaturedCells:
    """Of (signature, grid bin, labelled, positives)."""
    signature, grid_bin, labelled, positives = ([r[i] for r in rows] for i in range(4))
    k = len(rows)
    return MaturedCells(
        np.zeros(k, np.uint8),
        np.array(signature, np.uint64),
        np.array(grid_bin, np.uint16),
        np.array(labelled, np.int64),
        np.minimum(np.array(positives, np.int64), np.array(labelled, np.int64)),
        np.ones(k, np.int64),
    )


panes = st.lists(
    st.lists(
        st.tuples(
            st.integers(0, 2**64 - 1) | st.integers(0, 3),
            st.integers(0, 401),
            st.integers(0, 90),
            st.integers(0, 90),
        ),
        max_size=6,
        unique_by=lambda r: r[:2],
    ),
    min_size=1,
    max_size=30,
)


@settings(max_examples=60, deadline=None)
@given(panes, st.integers(1, 7), st.integers(1, 4), st.sets(st.integers(0, 29)))
def test_decayed_counts_are_the_weighted_sums(
    rows: list[list[tuple[int, int, int, int]]], structure: int, level: int, incomplete: set[int]
) -> None:
    counts = DecayedCounts(structure, level)
    expected: dict[tuple[int, int], np.ndarray[tuple[int], np.dtype[np.float64]]] = {}
    for pane, pane_rows in enumerate(rows):
        counts.advance(cells(pane_rows), pane not in incomplete)
        age = len(rows) - 1 - pane
        w, v, use = 0.5 ** (age / structure), 0.5 ** (age / level), pane not in incomplete
        for s, b, n, k in pane_rows:
            k = min(k, n)
            total = expected.setdefault((s, b), np.zeros(5))
            total += [n * w * use, k * w * use, (n + 1) * w, n * v * use, k * v * use]
    found = counts.cells()
    kept = list(zip(found.signature.tolist(), found.grid_bin.tolist(), strict=True))
    assert kept == sorted(kept)
    spent = 1.01 / 1024  # what may be dropped when all is halved, of the winners and of the level's labelled rows
    assert all(expected[key][2] < spent and expected[key][3] < spent for key in expected.keys() - set(kept))
    columns = [found.labelled, found.positives, found.winners, found.level_labelled, found.level_positives]
    for place, key in enumerate(kept):
        # A cell that was dropped and comes again lacks what was dropped.
        assert [c[place] for c in columns] == pytest.approx(expected[key], rel=1e-6, abs=spent)
    assert (found.positives <= found.labelled).all()
    assert (found.labelled <= found.winners).all()


@pytest.mark.parametrize("half_life", [1, 72, 480, 28_800])
def test_a_billion_rows_a_pane_never_overflow(half_life: int) -> None:
    decay = Decay(half_life)
    total = 0
    for step in range(6 * half_life if half_life < 1_000 else 2 * half_life):
        if decay.halves_before(step):
            total = (total + 1) >> 1
        total += MOST_ROWS_A_PANE * decay.weight(step)
        assert total < 2**63
    # At the limit: the geometric sum, which two more half-lives would reach.
    assert 2 * MOST_ROWS_A_PANE * sum(map(decay.weight, range(half_life))) < 2**63


def test_weights_double_over_a_half_life() -> None:
    decay = Decay(480)
    assert decay.fraction_bits == 21
    assert decay.weight(0) == 2**21
    assert decay.weight(480) == 2**21
    assert decay.weight(240) / 2**21 == pytest.approx(2**0.5, abs=1e-6)


def test_a_half_life_without_room_is_refused() -> None:
    with pytest.raises(ValueError, match="half-life"):
        Decay(0)
    with pytest.raises(ValueError, match="fraction"):
        Decay(2**40)


# --- evidence


def test_evidence_keeps_what_fit_gate_and_reference_need() -> None:
    rng = np.random.default_rng(1)
    made = Evidence(FIRST_PANE, config(gate_window="1d"))
    all_rows: list[Rows] = []
    for pane in range(FIRST_PANE, FIRST_PANE + 60):
        rows = Rows(rng, 40)
        all_rows.append(rows)
        made.advance(pane, rows.cells()[1].pack())
    fit = [IS_FIT[r.bucket] for r in all_rows]
    assert made.fit_rows == sum(int(f.sum()) for f in fit)
    assert made.fit_positives == sum(int(r.label[f].sum()) for r, f in zip(all_rows, fit, strict=True))
    assert [g.pane for g in made.gate_panes] == list(range(FIRST_PANE + 36, FIRST_PANE + 60))
    gate_rows = sum(int(g.cells.labelled.sum()) for g in made.gate_panes)
    assert gate_rows == sum(int(IS_GATE[r.bucket].sum()) for r in all_rows[36:])
    assert [int(w.winners.n.sum()) for w in made.windows] == [960, 960]


def test_incomplete_panes_are_left_out_of_fit_and_marked_for_the_gate() -> None:
    rng = np.random.default_rng(1)
    made = Evidence(FIRST_PANE, config())
    for pane in range(FIRST_PANE, FIRST_PANE + 40):
        rows = Rows(rng, 50)
        if pane == FIRST_PANE + 30:
            rows.label[:] = -1
        before = made.fit_rows
        made.advance(pane, rows.cells()[1].pack())
        assert made.gate_panes[-1].complete == (pane != FIRST_PANE + 30)
        assert (made.fit_rows > before) == (pane != FIRST_PANE + 30)


@pytest.mark.parametrize("derived", [[], ["hour_of_day"]])
def test_past_windows_hold_the_outcomes_of_complete_panes_by_derived_values(derived: list[str]) -> None:
    rng = np.random.default_rng(3)
    made, settings_of = config(), {"derived": derived, "zone": "UTC"}
    made = made.model_copy(update={"scores": made.scores.model_copy(update=settings_of)})
    evidence, broken = Evidence(FIRST_PANE, made), FIRST_PANE + 30
    panes: dict[int, MaturedCells] = {}
    for pane in range(FIRST_PANE, FIRST_PANE + 60):
        rows = Rows(rng, 50)
        if pane == broken:
            rows.label[:] = -1
        panes[pane] = rows.cells()[1]
        evidence.advance(pane, panes[pane].pack())
    first, second = evidence.windows
    assert [g.pane for g in first.outcomes] == (list(range(FIRST_PANE, FIRST_PANE + 24)) if derived else [FIRST_PANE])
    assert len(second.outcomes) == (23 if derived else 1)
    for window, start in ((first, FIRST_PANE), (second, FIRST_PANE + 24)):
        found = MaturedCells.merge([g.cells for g in window.outcomes])
        kept = [
            replace(c, unit_bucket=c.unit_bucket * 0)
            for p, c in panes.items()
            if start <= p < start + 24 and p != broken
        ]
        whole = MaturedCells.merge(kept)
        assert found.pack() == whole.pack()
        assert sum(g.winners for g in window.outcomes) == 50 * len(kept)


def test_panes_come_in_order() -> None:
    made = Evidence(FIRST_PANE, config())
    with pytest.raises(ValueError, match="pane"):
        made.advance(FIRST_PANE + 1, EMPTY_MATURED.pack())
    with pytest.raises(StateError, match="packed"):
        made.advance(FIRST_PANE, b"nonsense")
    made.advance(FIRST_PANE, EMPTY_MATURED.pack())
    assert made.last_pane == FIRST_PANE
