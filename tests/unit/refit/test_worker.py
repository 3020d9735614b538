from __future__ import annotations

from dataclasses import replace
from itertools import pairwise
from typing import Any

import numpy as np
import pytest

from stream_calib.calibration.maps.parts import MapParts, PatchRound
from stream_calib.calibration.multicalibration.audit import EVERYTHING
from stream_calib.refit.choice import Choice, choose
from stream_calib.snapshot.compiled import compile_snapshot
from stream_calib.snapshot.decision_log import Request
from stream_calib.snapshot.fit_documents import PatchesDocument
from stream_calib.windows.cells import MaturedCells
from stream_calib.windows.state_store import Commit
from tests.outbox import alarms
from tests.unit.refit.world import FIRST_PANE, KEY, World, config


@pytest.fixture(scope="module")
def world() -> World:
    made = World(config())
    made.run(100)
    return made


def requests(world: World) -> list[Request]:
    return [e for e in world.store.log().entries if isinstance(e, Request)]


def test_bootstrap_then_daily_refits_by_age(world: World) -> None:
    asked = requests(world)
    assert asked[0].reason == "bootstrap"
    assert {r.reason for r in asked[1:]} == {"age"}
    panes = [r.pane for r in asked]
    assert set(np.diff(panes)) == {24}
    # Not a pane earlier than the rows allow: 600 rows in 12 of 20 buckets, 50 rows a pane.
    assert 18 <= panes[0] - FIRST_PANE <= 24


def test_every_request_ends_in_a_report(world: World) -> None:
    reports = world.store.reports()
    assert [r.request_id for r in reports] == [r.id for r in requests(world)]
    assert all(r.gate is not None and r.gate.role_overlap == 0 for r in reports)


def test_the_published_map_repairs_the_group(world: World) -> None:
    version = world.store.current()
    assert version is not None
    served = compile_snapshot(world.store.load(version))
    south = served.apply(np.array([0.5]), np.array([0]), [("south",)])
    north = served.apply(np.array([0.5]), np.array([0]), [("north",)])
    assert south[0] == pytest.approx(0.25, abs=0.04)
    assert north[0] == pytest.approx(0.5, abs=0.04)


def test_snapshot_names_its_parent_and_its_cells(world: World) -> None:
    moves = world.store.history()
    assert len(moves) >= 2
    for before, after in pairwise(moves):
        assert after["before"] == before["version"]
        document = world.store.document(after["version"])
        assert document.parent == before["version"]
        assert document.cells_sha256 == world.chains[document.last_pane]


def test_two_runs_publish_the_same_bytes(world: World) -> None:
    again = World(config())
    again.now_ms = 777_000  # another wall time, and a worker that starts anew for every request
    for _ in range(100):
        again.run(1, refit=False)
        from_scratch = type(again.refitter)(again.state, again.store, KEY, again.config)
        while from_scratch.run_once(again.token) is not None or again.decide():
            pass
    first, second = world.store.history(), again.store.history()
    assert [m["version"] for m in first] == [m["version"] for m in second]
    assert len(first) > 2
    for move in first:
        name = f"snapshot:{move['version']}"
        assert world.state.blobs([name]) == again.state.blobs([name])


def test_other_bytes_than_those_requested_fail_the_request() -> None:
    world = World(config())
    while world.store.log().open_request is None:
        world.run(1, refit=False)
    pane = FIRST_PANE + 3
    world.state.commit(Commit(blobs={f"matured:{pane}": MaturedCells.merge([world.matured[pane]] * 2).pack()}))
    report = world.refitter.run_once(world.token)
    assert report is not None
    assert report.outcome == "failed"
    assert world.store.log().open_request is None
    (alert,) = alarms(world.state)
    assert (alert.kind, alert.state) == ("refit_failed", "open")


def test_a_missing_blob_fails_the_request_and_the_next_publication_closes_the_alert() -> None:
    world = World(config())
    while world.store.log().open_request is None:
        world.run(1, refit=False)
    pane = FIRST_PANE + 3
    world.state._blobs.pop(f"matured:{pane}")
    failed = world.refitter.run_once(world.token)
    assert failed is not None
    assert failed.outcome == "failed"
    world.state.commit(Commit(blobs={f"matured:{pane}": world.matured[pane].pack()}))
    world.run(30)
    assert requests(world)[1].pane - requests(world)[0].pane == 24  # a bootstrap that failed is tried again a day later
    alerts = alarms(world.state)
    assert [(a.kind, a.state) for a in alerts] == [("refit_failed", "open"), ("refit_failed", "close")]
    assert len({a.dedup_key for a in alerts}) == 1


def test_another_configuration_fails_the_request() -> None:
    world = World(config())
    while world.store.log().open_request is None:
        world.run(1, refit=False)
    other = type(world.refitter)(world.state, world.store, KEY, config(gate_margin=0.5))
    report = other.run_once(world.token)
    assert report is not None
    assert "configuration" in report.detail
    assert report.outcome == "failed"


def test_a_lost_lease_drops_the_work() -> None:
    world = World(config())
    while world.store.log().open_request is None:
        world.run(1, refit=False)
    world.now_ms += 2 * 10**9
    new_token = world.state.acquire_lease("refit", "other", 10**9)
    assert world.refitter.run_once(world.token) is None
    assert world.store.log().open_request is not None
    assert world.store.reports() == []
    assert new_token is not None
    report = world.refitter.run_once(new_token)
    assert report is not None
    assert report.outcome == "published"


def test_a_rollback_meanwhile_supersedes_the_candidate() -> None:
    world = World(config())
    world.run(60)
    first = world.store.history()[0]["version"]
    while world.store.log().open_request is None:
        world.run(1, refit=False)
    world.store.rollback(first, "ann", "worse")
    report = world.refitter.run_once(world.token)
    assert report is not None
    assert report.outcome == "superseded"
    assert world.store.current() == first
    world.run(25)
    assert world.store.reports()[-1].outcome == "published"


def test_while_pinned_candidates_are_judged_and_refused() -> None:
    world = World(config())
    world.run(60)
    pinned = world.store.pin(None, "ann", "audit week")
    published = len(world.store.reports())
    world.run(60)
    refused = world.store.reports()[published:]
    assert refused
    assert {report.outcome for report in refused} == {"refused"}
    passed = [report for report in refused if report.gate is not None and report.gate.passed]
    assert passed
    assert {report.refused_for for report in passed} == {("pinned",)}
    assert all("ann keeps" in report.detail for report in passed)
    assert world.store.current() == pinned
    world.store.unpin("ann", "audit over")
    world.run(25)
    assert world.store.reports()[-1].outcome == "published"


def test_manual_request_is_answered_and_age_counts_from_it() -> None:
    world = World(config())
    world.run(40)
    pane = world.store.request_manual("ann", "new campaign")
    world.run(30)
    asked = requests(world)
    manual = next(r for r in asked if r.reason == "manual")
    assert manual.pane == pane
    after = [r for r in asked if r.pane > pane]
    assert [r.reason for r in after] == ["age"]
    assert after[0].pane == pane + 24


def test_level_refits_are_small_and_resolve_to_their_structure() -> None:
    world = World(config(level_cadence="6h"))
    world.run(80)
    kinds = [r.kind for r in requests(world)]
    assert kinds.count("level") > kinds.count("structure")
    levels = [world.store.document(m["version"]) for m in world.store.history() if m["reason"] == "level"]
    assert levels
    (blob,) = world.state.blobs([f"snapshot:{world.store.history()[-1]['version']}"])
    assert blob is not None
    for level in levels:
        assert level.kind == "level"
        assert world.store.document(level.structure).kind == "structure"
        assert len(level.encode()) < 3_000


def test_a_map_with_patches_of_everything_is_published_and_read(monkeypatch: pytest.MonkeyPatch) -> None:
    def with_patches(parts: MapParts, *others: Any) -> tuple[MapParts, PatchesDocument]:
        everything = PatchRound(EVERYTHING, (0.0, 0.5, 1.0), {("all",): (0.001, -0.002)})
        return replace(parts, rounds=(everything,)), PatchesDocument(outcome="confirmed")

    def with_patches_chosen(*given: Any) -> Choice:
        choice = choose(*given)
        return replace(choice, document=choice.document.model_copy(update={"patches": True}))

    monkeypatch.setattr("stream_calib.refit.fit.patch_parts", with_patches)
    monkeypatch.setattr("stream_calib.refit.candidate.choose", with_patches_chosen)
    world = World(config())
    world.run(40)
    version = world.store.current()
    assert version is not None
    (patches,) = compile_snapshot(world.store.load(version)).parts.rounds
    assert (patches.rule, patches.shifts) == (EVERYTHING, {("all",): (0.001, -0.002)})
    assert {report.outcome for report in world.store.reports()} <= {"published", "refused"}
