from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from stream_calib.config import Config
from stream_calib.errors import StateError
from stream_calib.refit import checkpoint
from stream_calib.refit.carried import CarriedEvidence, advance_checkpoint
from stream_calib.refit.decayed_counts import DecayedCounts
from stream_calib.refit.worker import Refitter
from stream_calib.snapshot.canonical import sha256_hex
from stream_calib.windows.kept_panes import KeptPanes
from stream_calib.windows.state_store import Commit
from tests.unit.refit.test_evidence import cells, panes
from tests.unit.refit.world import FIRST_PANE, KEY, World


def config(**calibration: object) -> Config:
    """Panes of half a day and PSI windows of three: a refit looks at 88 panes, and a checkpoint comes every 14."""
    return Config.model_validate(
        {
            "model": {"name": KEY.model, "version": KEY.version},
            "scores": {"attributes": {"region": "r"}},
            "windows": {"horizon": "12h", "pane": "12h"},
            "refit": {"min_rows": 600, "min_positives": 20, "max_age": "25d"},
            "drift": {"psi_window": "36h"},
            "calibration": {"structure_half_life": "10d"} | calibration,
        }
    )


@pytest.fixture(scope="module")
def world() -> World:
    """All panes are kept, and there is no checkpoint."""
    made = World(config(), rows_a_pane=120)
    made.run(150)
    return made


@pytest.fixture(scope="module")
def again(world: World) -> World:
    """The same panes, with a worker that starts anew each time, and panes that go as soon as the checkpoint allows."""
    again = World(world.config, rows_a_pane=120)
    for _ in range(len(world.matured)):
        again.run(1, refit=False)
        while Refitter(again.state, again.store, KEY, again.config).run_once(again.token) or again.decide():
            pass
        if advance_checkpoint(again.state, again.config):
            named = checkpoint.named(again.state.read([checkpoint.FIELD])[checkpoint.FIELD])
            assert named is not None
            kept = KeptPanes(named.last_pane + 1, again.chains[named.last_pane])
            gone = [f"matured:{pane}" for pane in again.matured if pane <= named.last_pane]
            assert again.state.commit(Commit(fields={"kept": kept.encode()}, deletes=gone))
    return again


def test_what_is_published_does_not_depend_on_where_evidence_begins(world: World, again: World) -> None:
    named = checkpoint.named(again.state.read([checkpoint.FIELD])[checkpoint.FIELD])
    assert named is not None
    # Several checkpoints, each made from the one before.
    assert named.last_pane - FIRST_PANE + 1 == 14 * ((len(world.matured) - 1 - 88) // 14) == 56
    assert again.state.blobs([f"matured:{named.last_pane}"]) == [None]
    first, second = world.store.history(), again.store.history()
    assert [m["version"] for m in first] == [m["version"] for m in second]
    assert sum(move["pane"] > FIRST_PANE + 14 + 88 for move in first) > 0
    for move in first:
        assert world.state.blobs([f"snapshot:{move['version']}"]) == again.state.blobs([f"snapshot:{move['version']}"])

    whole = CarriedEvidence(world.state, FIRST_PANE, world.config)
    part = CarriedEvidence(again.state, FIRST_PANE, again.config)
    assert part.evidence.next_pane == named.last_pane + 1
    for carried in (whole, part):
        carried.advance(FIRST_PANE + 148)
    assert checkpoint.pack(part.evidence.sums()) == checkpoint.pack(whole.evidence.sums())
    assert part.forward.sha256 == whole.forward.sha256
    for mine, other in (
        (part.evidence.gate_panes, whole.evidence.gate_panes),
        (part.evidence.audited_panes, whole.evidence.audited_panes),
    ):
        assert [(p.pane, p.complete, p.winners, p.cells.pack()) for p in mine] == [
            (p.pane, p.complete, p.winners, p.cells.pack()) for p in other
        ]
    assert [(w.winners.pack(), w.labelled) for w in part.evidence.windows] == [
        (w.winners.pack(), w.labelled) for w in whole.evidence.windows
    ]


def test_a_checkpoint_keeps_its_signatures(world: World) -> None:
    state, made = world.state, world.config
    assert advance_checkpoint(state, made)
    named = checkpoint.named(state.read([checkpoint.FIELD])[checkpoint.FIELD])
    assert named is not None
    state.drop_signatures((named.last_pane + 1) * made.windows.pane_ms)
    (blob,) = state.blobs([checkpoint.NAME])
    assert blob is not None
    sums = checkpoint.unpack(blob, named.sha256)
    assert sorted(state.signatures(sums.counts.signature.tolist()).values()) == [("north",), ("south",), ("west",)]


def test_other_half_lives_begin_at_the_oldest_pane_that_is_kept(world: World, again: World) -> None:
    last, other = FIRST_PANE + 148, config(structure_half_life="5d")
    oldest = checkpoint_pane(again) + 1
    before = CarriedEvidence(again.state, FIRST_PANE, other)
    assert before.evidence.next_pane == oldest
    before.advance(last)
    assert before.evidence.cells_sha256 == world.chains[last]
    # The first checkpoint of theirs comes when there are panes enough, and they go on from it.
    assert not advance_checkpoint(again.state, other)
    again.state.commit(Commit(fields={"decided": str(oldest + 13 + 88)}))
    assert advance_checkpoint(again.state, other)
    after = CarriedEvidence(again.state, FIRST_PANE, other)
    assert after.evidence.next_pane == checkpoint_pane(again) + 1 == oldest + 14
    after.advance(last)
    assert checkpoint.pack(after.evidence.sums()) == checkpoint.pack(before.evidence.sums())


def checkpoint_pane(world: World) -> int:
    named = checkpoint.named(world.state.read([checkpoint.FIELD])[checkpoint.FIELD])
    assert named is not None
    return named.last_pane


@settings(max_examples=25, deadline=None)
@given(panes, panes, st.integers(1, 4), st.integers(1, 4), st.sets(st.integers(0, 59)))
def test_counts_go_on_from_a_checkpoint_to_the_same_bits(
    before: list[list[tuple[int, int, int, int]]],
    after: list[list[tuple[int, int, int, int]]],
    structure: int,
    level: int,
    incomplete: set[int],
) -> None:
    whole = DecayedCounts(structure, level)
    for pane, rows in enumerate(before):
        whole.advance(cells(rows), pane not in incomplete, (str(pane % 2),))
    part = DecayedCounts(structure, level).restored_from(whole.state())
    for pane, rows in enumerate(after, len(before)):
        for counts in (whole, part):
            counts.advance(cells(rows), pane not in incomplete, (str(pane % 2),))
    found, expected = part.state(), whole.state()
    assert (found.step, found.derived_values) == (expected.step, expected.derived_values)
    for name in ("signature", "derived", "grid_bin", "sums"):
        mine, its = getattr(found, name), getattr(expected, name)
        assert mine.dtype == its.dtype
        assert np.array_equal(mine, its), name


def test_what_is_damaged_is_refused(world: World) -> None:
    made = CarriedEvidence(world.state, FIRST_PANE, world.config)
    blob = checkpoint.pack(made.evidence.sums())
    assert checkpoint.pack(checkpoint.unpack(blob, sha256_hex(blob))) == blob
    with pytest.raises(StateError, match="has not the hash"):
        checkpoint.unpack(blob[:-1], sha256_hex(blob))
    other = b"SCE9" + blob[4:]
    with pytest.raises(StateError, match="format b'SCE9'"):
        checkpoint.unpack(other, sha256_hex(other))
    cut = blob[:-1]
    with pytest.raises(StateError, match="cells cannot be read"):
        checkpoint.unpack(cut, sha256_hex(cut))
    for field in ("", "12", "x:y:z", "1:2"):
        with pytest.raises(StateError, match="names no checkpoint"):
            checkpoint.named(field)
    fields = {checkpoint.FIELD: checkpoint.Named(FIRST_PANE, "0" * 64, checkpoint.identity(world.config)).encode()}
    lost = World(world.config)
    lost.state.commit(Commit(fields=fields))
    with pytest.raises(StateError, match="blob evidence is missing"):
        CarriedEvidence(lost.state, FIRST_PANE, world.config)
