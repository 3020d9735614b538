"""The shadow's figures, against loops over the cells; and publication by approval from request to snapshot."""

from __future__ import annotations

import math

import numpy as np
import pytest

from stream_calib.calibration.groups import family_rule, make_family
from stream_calib.calibration.metrics import worst_group_error_of_counts
from stream_calib.drift.coverage import CoverageState, judge
from stream_calib.refit.gate_evidence import judged
from stream_calib.refit.shadow_evaluation import ShadowEvaluation, ShadowFigures
from stream_calib.windows.cells import MaturedCells
from tests.unit.refit.world import FIRST_PANE, REGIONS, SIGNATURES, World, config


def figures_of(world: World) -> ShadowFigures:
    found = ShadowEvaluation(world.state, world.store, world.config).figures(world.store.log())
    assert found is not None
    return found


def by_hand(world: World, version: str) -> tuple[list[list[float]], int]:
    """[labelled, positives, p served, p of the shadow, region, day] of each cell; and panes that are incomplete."""
    log, signatures = world.store.log(), [SIGNATURES[h] for h in SIGNATURES]
    place = {h: i for i, h in enumerate(SIGNATURES)}
    coverage, incomplete, rows = CoverageState(), 0, []
    first = world.store.document(version).last_pane + 1
    decided = int(world.state.read(["decided"])["decided"] or 0)
    for pane in range(FIRST_PANE, decided + 1):
        cells = world.matured[pane]
        verdict = judge(coverage, pane, int(cells.labelled.sum()), int(cells.unlabelled.sum()))
        coverage = verdict.state
        if pane < first:
            continue
        if not verdict.complete:
            incomplete += 1
            continue
        served = log.current_at(pane)
        index = np.array([place[h] for h in cells.signature.tolist()], dtype=np.intp)
        values = [
            judged(world.store.load(v)).served.at_centres(cells.grid_bin, index, signatures)
            for v in (str(served), version)
        ]
        rows += [
            [float(n), float(k), p, q, float(region), float(pane // 24)]
            for n, k, p, q, region in zip(
                cells.labelled.tolist(),
                cells.positives.tolist(),
                values[0].tolist(),
                values[1].tolist(),
                index.tolist(),
                strict=True,
            )
            if n
        ]
    return rows, incomplete


def check(world: World, version: str) -> ShadowFigures:
    found = figures_of(world)
    rows, incomplete = by_hand(world, version)
    n = math.fsum(row[0] for row in rows)
    losses = [
        math.fsum(-k * math.log(row[i]) - (m - k) * math.log1p(-row[i]) for row in rows for m, k in [row[:2]])
        for i in (2, 3)
    ]
    assert (found.rows, found.positives, found.incomplete_panes) == (n, sum(row[1] for row in rows), incomplete)
    assert found.loss_served == pytest.approx(losses[0] / n, abs=1e-12)
    assert found.loss_shadow == pytest.approx(losses[1] / n, abs=1e-12)
    assert found.gain == pytest.approx((losses[0] - losses[1]) / n, abs=1e-12)
    columns = np.array(rows).T
    family = make_family(family_rule(("region",), ("region",)), [(r,) for r in REGIONS])
    groups = [family.group_of[columns[4].astype(np.intp)]]
    for value, worst in ((columns[2], found.worst_group_served), (columns[3], found.worst_group_shadow)):
        assert worst == pytest.approx(worst_group_error_of_counts(value, columns[0], columns[1], groups), abs=1e-9)
    return found


@pytest.fixture(scope="module")
def watched() -> tuple[World, str]:
    """A candidate is held and made the shadow; two days later it is still not approved."""
    world = World(config(max_age="1d", publish="approve"), rows_a_pane=60)
    world.run(24)
    (first,) = world.store.log().held
    world.store.approve(first, "ann", "the first one")
    world.run(24)
    candidate = next(iter(world.store.log().held))
    world.store.shadow(candidate, "ann", "is it better?")
    world.run(40)
    return world, candidate


def test_with_approval_nothing_is_published_by_itself(watched: tuple[World, str]) -> None:
    world, candidate = watched
    (published,) = world.store.history()[:1]
    assert (published["what"], published["actor"]) == ("publish", "ann")
    assert world.store.current() == published["version"]
    held = world.store.log().held
    assert candidate in held
    assert len(held) >= 2
    assert {h.parent for h in held.values()} == {published["version"]}
    assert {r.outcome for r in world.store.reports()} == {"held"}
    assert all(r.version is not None and r.gate is not None and r.gate.passed for r in world.store.reports())


def test_the_shadow_is_evaluated_beside_what_was_served(watched: tuple[World, str]) -> None:
    world, candidate = watched
    found = check(world, candidate)
    assert found.first_pane == world.store.document(candidate).last_pane + 1
    assert found.gain_error is not None
    assert found.gain_error > 0


def test_the_gains_error_has_days_as_blocks(watched: tuple[World, str]) -> None:
    world, candidate = watched
    rows, _ = by_hand(world, candidate)
    found = figures_of(world)
    assert found.gain is not None
    off: dict[float, float] = {}
    for n, k, p, q, _, day in rows:
        gain = k * (math.log(q) - math.log(p)) + (n - k) * (math.log1p(-q) - math.log1p(-p))
        off[day] = off.get(day, 0.0) + gain - found.gain * n
    expected = math.sqrt(len(off) / (len(off) - 1) * sum(d * d for d in off.values())) / found.rows
    assert found.gain_error == pytest.approx(expected, rel=1e-9)


def test_an_earlier_version_is_evaluated_beside_all_that_came_after_it() -> None:
    world = World(config(max_age="12h", level_cadence="4h", gate_margin=0.5), rows_a_pane=60)
    world.run(80)
    versions = [move["version"] for move in world.store.history()]
    assert len(versions) >= 3
    world.store.shadow(versions[0], "ann", "was it worth it?")
    going_on = ShadowEvaluation(world.state, world.store, world.config)
    for _ in range(3):
        world.run(4)
        assert going_on.figures(world.store.log()) == check(world, versions[0])
    world.store.unshadow("ann", "it was")
    assert going_on.figures(world.store.log()) is None


def test_panes_without_their_labels_are_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    world = World(config(max_age="1d", publish="approve"), rows_a_pane=60)
    world.run(24)
    (version,) = world.store.log().held
    world.store.shadow(version, "ann", "x")
    before = figures_of(world)
    assert before.last_pane >= before.first_pane - 1
    # Now nothing is current, so that the shadow stands beside the raw score.
    real = MaturedCells.count
    monkeypatch.setattr(MaturedCells, "count", lambda b, s, g, label: real(b, s, g, np.full_like(label, -1)))
    world.run(2)
    monkeypatch.undo()
    world.run(6)
    found = figures_of(world)
    assert found.incomplete_panes == 2
    assert found.loss_served is not None
    assert found.loss_shadow is not None
    assert found.loss_shadow < found.loss_served


def test_before_a_pane_is_decided_there_are_no_figures() -> None:
    world = World(config(publish="approve"), rows_a_pane=60)
    world.run(40, refit=False)
    world.refitter.run_once(world.token)
    (version,) = world.store.log().held
    world.store.shadow(version, "ann", "x")
    found = figures_of(world)
    assert (found.last_pane, found.rows, found.gain, found.worst_group_shadow) == (found.first_pane - 1, 0, None, None)
