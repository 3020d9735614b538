"""Dropping what is done with, over a state that is written by hand."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest

from stream_calib.config import Config
from stream_calib.errors import SnapshotError, StateError
from stream_calib.events.contracts import ModelKey
from stream_calib.refit import retention
from stream_calib.refit.carried import advance_checkpoint
from stream_calib.refit.retention import Retention
from stream_calib.snapshot.decision_log import DecisionLog, Request, Settled, chain
from stream_calib.snapshot.log_reader import LogReader, begun
from stream_calib.snapshot.operator_entries import Manual, Pin
from stream_calib.snapshot.store import SnapshotStore
from stream_calib.windows.cells import MaturedCells
from stream_calib.windows.kept_panes import kept_of
from stream_calib.windows.memory_state import MemoryState
from stream_calib.windows.pane_record import PaneNames, PaneRecord, chained
from stream_calib.windows.state_store import SIGNATURE_EPOCH_MS, Commit, StateStore
from workers.totals import pane_records

FIRST = 40_000
KEY = ModelKey("m", "1")


def config(**retention: object) -> Config:
    """Panes of half a day: 184 are kept, of which a refit looks at 63, and a checkpoint comes every 14."""
    return Config.model_validate(
        {
            "model": {"name": KEY.model, "version": KEY.version},
            "windows": {"horizon": "12h", "pane": "12h"},
            "retention": {"archive": "92d"} | retention,
        }
    )


class World:
    def __init__(self) -> None:
        self.state = MemoryState()
        self.state.commit(Commit(fields={"first_pane": str(FIRST), "decided": str(FIRST - 1)}))
        self.chain = ""
        self.next = FIRST
        self.counts = Counter[str]()

    def add(self, panes: int) -> None:
        for pane in range(self.next, self.next + panes):
            signature = pane // 100
            self.state.put_signatures({signature: (str(signature),)}, pane * 43_200_000)
            rows = np.full(3, signature, np.uint64), np.array([1, 2, 3], np.uint16), np.array([1, 0, -1], np.int8)
            blob = MaturedCells.count(np.zeros(3, np.uint8), *rows).pack()
            self.chain = chained(self.chain, blob)
            counts = {"accepted": pane - FIRST + 1, "labels": 2}
            record = PaneRecord(pane, counts, {}, {}, {}, 2, 1, 1, self.chain)
            names = PaneNames.of(pane)
            blobs = {names.matured: blob, names.record: record.encode(), names.scored: b""}
            fields = {"decided": str(pane), "matured": str(pane), "matured_chain": self.chain}
            self.state.commit(Commit(fields=fields, blobs=blobs))
            self.counts.update(counts | {"labelled": 2, "unlabelled": 1})
        self.next += panes

    def kept(self) -> int:
        found = kept_of(self.state.read(("kept", "first_pane")))
        assert found is not None
        return found.first_pane


def advance(world: World, made: Config, removed: int | None = 10**9) -> None:
    """Everything that can be."""
    while advance_checkpoint(world.state, made):
        pass
    retention = Retention(world.state, made)
    while retention.advance(removed):
        pass


def test_panes_go_when_neither_archive_nor_checkpoint_nor_a_shard_needs_them() -> None:
    world, made = World(), config()
    world.add(184)
    advance(world, made)
    assert world.kept() == FIRST
    world.add(200)
    advance(world, made, removed=None)
    assert world.kept() == FIRST
    advance(world, made, removed=FIRST + 49)
    assert world.kept() == FIRST + 50
    advance(world, made)
    # The archive; what is dropped at a time is at least a day's panes of an hour.
    assert FIRST + 200 - 24 <= world.kept() <= FIRST + 200
    assert world.state.blobs(PaneNames.of(world.kept() - 1)) == [None] * 3
    assert None not in world.state.blobs(PaneNames.of(world.kept()))


def test_what_panes_counted_stays_and_the_chain_goes_on() -> None:
    world, made = World(), config()
    for panes in (150, 117, 230):
        world.add(panes)
        advance(world, made)
    kept = kept_of(world.state.read(("kept", "first_pane")))
    assert kept is not None
    assert kept.first_pane > FIRST + 250
    counts, link = Counter(kept.counts), kept.chain
    for record in pane_records(world.state):
        counts.update(record.counts)
        counts.update({"labelled": record.labelled, "unlabelled": record.unlabelled})
        (blob,) = world.state.blobs([PaneNames.of(record.pane).matured])
        assert blob is not None
        link = chained(link, blob)
        assert link == record.chain
    assert counts == world.counts
    assert link == world.state.read(["matured_chain"])["matured_chain"]


def test_signatures_go_with_the_last_pane_that_names_them() -> None:
    world, made = World(), config()
    world.add(500)
    advance(world, made)
    oldest_ms = world.kept() * 43_200_000
    for signature in range(FIRST // 100, (FIRST + 500) // 100):
        last_ms = (signature * 100 + 99) * 43_200_000
        # Those of the checkpoint, which has them all, are kept by it.
        assert world.state.signatures([signature]) == {signature: (str(signature),)}
        epochs = [epoch for epoch, held in world.state._signatures.items() if signature in held]
        assert min(epochs) >= oldest_ms // SIGNATURE_EPOCH_MS
        assert max(epochs) >= last_ms // SIGNATURE_EPOCH_MS or last_ms < oldest_ms


def test_a_record_that_is_missing_stops_it() -> None:
    world, made = World(), config()
    world.add(400)
    world.state.commit(Commit(deletes=[f"pane:{FIRST + 5}"]))
    with pytest.raises(StateError, match=f"blob pane:{FIRST + 5} is missing"):
        advance(world, made)
    assert world.kept() == FIRST


def test_without_the_checkpoint_nothing_goes() -> None:
    world, made = World(), config()
    world.add(400)
    retention = Retention(world.state, made)
    assert not retention.advance(10**9)
    assert advance_checkpoint(world.state, made)
    assert advance_checkpoint(world.state, made)
    other = made.model_copy(update={"calibration": made.calibration.model_copy(update={"level_half_life_ms": 1})})
    assert not Retention(world.state, other).advance(10**9)
    assert retention.advance(10**9)
    assert world.kept() == FIRST + 28


# --- lists


class Log:
    """A decision log of requests and publications, as closer and refit write it."""

    def __init__(self) -> None:
        self.state = MemoryState()
        self.state.commit(Commit(fields={"first_pane": "0", "decided": "0"}))
        self.whole = DecisionLog()
        self.published: list[str] = []

    def write(self, *entries: bytes, decided: int, move: dict[str, object] | None = None) -> None:
        tip = chain(self.whole.tip, entries)
        self.whole.extend(entries)
        fields = {"tip": str(tip), "log_length": str(self.whole.length), "decided": str(decided)}
        appends: dict[str, list[bytes]] = {"decisions": list(entries)}
        blobs = {}
        if move is not None:
            fields["current"] = str(move["version"])
            appends |= {"history": [str(move).replace("'", '"').encode()], "reports": [b"{}"]}
            blobs = {f"snapshot:{move['version']}": b"x"}
        assert self.state.commit(Commit(fields=fields, appends=appends, blobs=blobs))

    def publish(self, structure: str | None = None) -> None:
        pane = self.whole.entries[-1].pane + 1 if self.whole.entries else 1
        request = Request(
            pane=pane,
            id=f"r{pane}",
            kind="structure",
            reason="age",
            first_pane=0,
            last_pane=pane,
            cells_sha256="",
            parent=self.whole.current,
            roles={},
            config_hash="",
        )
        version = f"{pane}-v"
        settled = Settled(pane=pane + 1, request_id=request.id, outcome="published", version=version, report_sha256="")
        move: dict[str, object] = {"what": "publish", "version": version}
        self.write(request.encode(), decided=pane)
        self.write(settled.encode(), decided=pane, move=move | ({} if structure is None else {"structure": structure}))
        self.published.append(version)


def test_the_decision_log_goes_on_from_what_was_folded() -> None:
    log, made = Log(), config(publications=20)
    stale = LogReader(log.state)
    for _ in range(30):
        log.publish()
    stale.read()
    pin = Pin(pane=61, version=log.published[-1], actor="a", reason="b", time_ms=1)
    log.write(pin.encode(), decided=60)
    for _ in range(40):
        log.publish()
        Retention(log.state, made).advance(None)
    dropped = int(log.state.read(["from:decisions"])["from:decisions"] or 0)
    assert dropped > 32
    assert log.state.entries("decisions", 0) == log.state.entries("decisions", dropped)
    for reader in (LogReader(log.state), stale):
        _, found = reader.read()
        assert (found.tip, found.length) == (log.whole.tip, log.whole.length)
        assert (found.current, found.pin) == (log.published[-1], pin)
        assert found.entries[-(log.whole.length - dropped) :] == log.whole.entries[dropped:]
        for pane in range(log.whole.entries[dropped].pane, log.whole.entries[-1].pane + 2):
            assert found.current_at(pane) == log.whole.current_at(pane)


def test_a_process_lets_go_of_entries_that_the_store_has_dropped() -> None:
    log, made = Log(), config(publications=20)
    reader, held = LogReader(log.state), []
    for _ in range(400):
        log.publish()
        Retention(log.state, made).advance(None)
        _, found = reader.read()
        assert (found.tip, found.length, found.current) == (log.whole.tip, log.whole.length, log.published[-1])
        held.append(len(found.entries))
    assert max(held) == max(held[:200]) < 200, "of 800"


def test_a_fold_that_was_overtaken_between_its_reads_changes_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    log, made = Log(), config(publications=20)
    for _ in range(30):
        log.publish()
    # The first entry that is kept means nothing without those before it.
    pin = Pin(pane=61, version=log.published[-1], actor="a", reason="b", time_ms=1)
    log.write(pin.encode(), decided=60)
    for _ in range(39):
        log.publish()
    log.write(Manual(pane=141, actor="a", reason="b", time_ms=1).encode(), decided=141)
    folded_by_another: list[str | None] = []

    def overtaken(state: StateStore) -> DecisionLog:
        found = begun(state)
        monkeypatch.setattr(retention, "begun", begun)
        Retention(state, made).advance(None)
        folded_by_another.append(state.read(["from:decisions"])["from:decisions"])
        return found

    monkeypatch.setattr(retention, "begun", overtaken)
    Retention(log.state, made).advance(None)
    assert folded_by_another == ["60"]
    _, found = LogReader(log.state).read()
    assert (found.tip, found.dropped, found.pin) == (log.whole.tip, 60, pin)


def test_an_open_request_and_what_has_yet_to_take_effect_stay() -> None:
    log, made = Log(), config(publications=20)
    for _ in range(20):
        log.publish()
    manual = [Manual(pane=50, actor="a", reason=str(i), time_ms=i) for i in range(200)]
    log.write(*(entry.encode() for entry in manual), decided=45)
    Retention(log.state, made).advance(None)
    _, found = LogReader(log.state).read()
    assert found.manual_at(50) == manual


def test_old_snapshots_go_with_their_moves_but_not_the_structures_of_kept_levels() -> None:
    log, made = Log(), config(publications=20)
    log.publish()
    first = log.published[0]
    for _ in range(60):
        log.publish(structure=first)
    Retention(log.state, made).advance(None)
    kept = log.published[-20:]
    assert log.state.blobs([f"snapshot:{v}" for v in (first, *kept)]) == [b"x"] * 21
    assert log.state.blobs([f"snapshot:{v}" for v in log.published[1:-20]]) == [None] * 40
    assert len(log.state.entries("history", 0)) == len(log.state.entries("reports", 0)) == 20
    for _ in range(60):
        log.publish()
    Retention(log.state, made).advance(None)
    assert log.state.blobs([f"snapshot:{first}"]) == [None]
    store = SnapshotStore(log.state, KEY, "g", 1, lambda: 1)
    with pytest.raises(SnapshotError, match="not in the state store"):
        store.rollback(first, "a", "b")
