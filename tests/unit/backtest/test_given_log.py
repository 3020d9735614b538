"""A decision log is made again from cells, with what people did and what refits could not answer as it was live."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace

import pytest

from stream_calib.backtest.exact.given_log import GivenReplay, LiveDecisions
from stream_calib.config import Config
from stream_calib.errors import HistoryError, StateError
from stream_calib.refit.worker import Refitter
from stream_calib.snapshot.decision_log import Expired, Request, Settled, chain, decode_entry
from stream_calib.windows.state_store import Commit
from tests.unit.backtest.made_up import history
from tests.unit.refit.world import FIRST_PANE, KEY, World, config

BY = {"actor": "ana", "reason": "was better"}
OFTEN = {"max_age": "5h", "cooldown": "1h"}


def made_again(live: World, panes: int) -> GivenReplay:
    """Compared with the live run."""
    decisions = LiveDecisions.of_state(live.state)
    given = GivenReplay(history(panes), live.config, decisions)
    seen: list[tuple[int, int]] = []
    given.run(lambda done, total: seen.append((done, total)))
    assert given.divergence is None
    assert given.same == len(decisions.entries) > 0
    assert given.decided == decisions.last_pane == FIRST_PANE + len(seen) - 1
    assert seen[-1] == (len(seen), len(seen))
    assert given.state.entries("decisions", 0, given.same) == decisions.entries
    assert list(given.outbox) == list(decisions.outbox)
    assert given.state.read(("detector",))["detector"] == decisions.detector
    versions = [str(move["version"]) for move in live.store.history()]
    names = [f"snapshot:{version}" for version in versions]
    assert given.state.blobs(names) == live.state.blobs(names)
    return given


def types(live: World) -> list[str]:
    return [decode_entry(raw).type for raw in live.state.entries("decisions", 0)]


def published(live: World) -> list[str]:
    return [str(move["version"]) for move in live.store.history() if move["what"] == "publish"]


def until_open(live: World) -> int:
    """Panes more until a request waits for its answer."""
    for n in range(1, 30):
        live.run(1, refit=False)
        if live.reader.read()[1].open_request is not None:
            return n
    raise AssertionError("nothing was asked for")


def test_nothing_but_refits() -> None:
    live = World(config(**OFTEN))
    live.run(40)
    assert types(live).count("settled") > 3
    made_again(live, 40)


def test_what_people_did_happens_at_its_pane() -> None:
    live = World(config(**OFTEN))
    live.run(30)
    live.store.request_manual("ana", "looks odd")
    live.run(6)
    first, last = published(live)[0], published(live)[-1]
    assert first != last
    live.store.rollback(first, "ana", "was better")
    live.run(1)
    live.store.pin(None, "ben", "stays")
    live.store.pin(last, "ben", "no, this one")  # a rollback and a pin in one step
    live.run(8)
    assert live.store.reports()[-1].outcome == "refused"  # for the pin
    live.store.unpin("ben", "done")
    live.store.shadow(first, "cid", "compare")
    live.run(2)
    live.store.unshadow("cid", "seen")
    live.run(6)
    assert {"manual", "rollback", "pin", "unpin", "shadow", "unshadow"} < set(types(live))
    made_again(live, 53)


def test_a_rollback_while_a_request_is_open_supersedes_its_candidate() -> None:
    live = World(config(**OFTEN))
    live.run(30)
    panes = 30 + until_open(live)
    live.store.request_manual("ana", "and then again")
    live.store.rollback(published(live)[0], "ana", "was better")
    live.run(8)
    entries = [decode_entry(raw) for raw in live.state.entries("decisions", 0)]
    assert [entry.outcome for entry in entries if isinstance(entry, Settled)].count("superseded") == 1
    made_again(live, panes + 8)


def test_candidates_that_wait_are_approved_or_rejected() -> None:
    live = World(config(**OFTEN, publish="approve"))
    live.run(30)
    first, *others = live.store.log().held
    live.store.approve(first, "ana", "good")
    live.run(8)
    candidate = next(iter(live.store.log().held))
    live.store.shadow(candidate, "ben", "let us see")
    live.run(1)
    live.store.reject(candidate, "ben", "no")
    live.run(7)
    assert {"approve", "reject", "shadow"} < set(types(live))
    assert first not in others
    made_again(live, 46)


def test_requests_that_failed_or_expired_are_not_answered_again() -> None:
    live = World(config(**OFTEN))
    live.run(24)
    panes = 24 + until_open(live)
    of_another = Refitter(live.state, live.store, KEY, config(**OFTEN, gate_margin=0.1))
    report = of_another.run_once(live.token)
    assert report is not None
    assert report.outcome == "failed"
    panes += until_open(live)
    fields, log = live.reader.read(("decided",))
    assert log.open_request is not None
    pane = int(fields["decided"] or 0) + 1
    raw = Expired(pane=pane, request_id=log.open_request.id).encode()
    change = {"open_request": "", "tip": str(chain(log.tip, [raw])), "log_length": str(log.length + 1)}
    told = live.decider.expired(log.open_request, pane)
    assert live.state.commit(Commit({"tip": fields["tip"]}, change, {"decisions": [raw], "outbox": told}))
    live.run(8)
    assert [types(live).count(name) for name in ("expired", "settled")] == [1, types(live).count("request") - 1]
    made_again(live, panes + 8)


def test_a_request_that_is_open_at_the_end_is_no_difference() -> None:
    live = World(config(**OFTEN))
    live.run(24)
    panes = 24 + until_open(live)
    given = made_again(live, panes)
    assert given.state.length("decisions") == given.same + 1  # here it was answered at once
    assert len(given.outbox) < given.state.length("outbox")


def test_what_people_asked_for_before_anything_was_decided() -> None:
    live = World(config())
    live.store.request_manual("ana", "at once")
    decisions = replace(LiveDecisions.of_state(live.state), last_pane=None)
    given = GivenReplay(history(5), live.config, decisions)
    given.run()
    assert (given.divergence, given.same) == (None, 1)


# --- where logs part


def parted(change: Callable[[list[bytes]], list[bytes]], configuration: Config | None = None) -> GivenReplay:
    live = World(config(**OFTEN))
    live.run(24)
    live.store.request_manual("ana", "looks odd")
    live.run(6)
    decisions = LiveDecisions.of_state(live.state)
    changed = replace(decisions, entries=change(list(decisions.entries)))
    given = GivenReplay(history(30), configuration or live.config, changed)
    given.run()
    assert given.divergence is not None
    return given


def manual_at(entries: list[bytes]) -> int:
    return next(i for i, raw in enumerate(entries) if decode_entry(raw).type == "manual")


def test_a_request_that_nobody_made() -> None:
    def without_manual(entries: list[bytes]) -> list[bytes]:
        del entries[manual_at(entries)]
        return entries

    given = parted(without_manual)
    assert given.divergence is not None
    assert given.divergence.entry == given.same
    assert '"reason":"manual"' in given.divergence.live
    assert given.divergence.replayed == "nothing" or '"reason":"manual"' not in given.divergence.replayed


def test_an_answer_that_was_another_one() -> None:
    def refused(entries: list[bytes]) -> list[bytes]:
        (place,) = [i for i, raw in enumerate(entries) if decode_entry(raw).type == "settled"][:1]
        settled = decode_entry(entries[place])
        assert isinstance(settled, Settled)
        entries[place] = settled.model_copy(update={"outcome": "refused", "version": None}).encode()
        return entries

    given = parted(refused)
    assert given.divergence is not None
    assert '"outcome":"refused"' in given.divergence.live
    assert '"outcome":"published"' in given.divergence.replayed
    assert given.decided == given.divergence.pane - 1


def test_an_act_that_is_not_possible_here() -> None:
    def of_unknown(entries: list[bytes]) -> list[bytes]:
        place = manual_at(entries)
        pane = decode_entry(entries[place]).pane
        entry = {"type": "rollback", "pane": pane, "version": "9-none", "left": "1-x", "time_ms": 5} | BY
        kept = entries[:place]
        return [*kept, decode_entry(json.dumps(entry).encode()).encode()]

    given = parted(of_unknown)
    assert given.divergence is not None
    assert "SnapshotError" in given.divergence.replayed
    assert "9-none" in given.divergence.live


def test_another_configuration_decides_otherwise() -> None:
    given = parted(lambda entries: entries, config(**OFTEN, gate_margin=0.3))
    assert given.divergence is not None
    entry = decode_entry(given.divergence.live.encode())
    assert isinstance(entry, Request)
    assert entry.config_hash not in given.divergence.replayed


# --- what cannot be made again


def test_a_log_without_its_beginning_is_refused() -> None:
    live = World(config(**OFTEN))
    live.run(24)
    live.state.commit(Commit(trims={"decisions": 2}))
    with pytest.raises(HistoryError, match=r"of the \d+ entries of the decision log the oldest 2 were dropped"):
        LiveDecisions.of_state(live.state)


def test_a_damaged_log_is_refused() -> None:
    live = World(config(**OFTEN))
    live.run(24)
    live.state.commit(Commit(fields={"tip": "0" * 64}))
    with pytest.raises(StateError, match="do not lead to its tip"):
        LiveDecisions.of_state(live.state)


def test_a_failed_answer_needs_its_report() -> None:
    live = World(config(**OFTEN))
    live.run(24)
    panes = 24 + until_open(live)
    assert Refitter(live.state, live.store, KEY, config(gate_margin=0.1)).run_once(live.token) is not None
    live.run(1)
    decisions = replace(LiveDecisions.of_state(live.state), reports=())
    given = GivenReplay(history(panes + 1), live.config, decisions)
    given.run()
    assert given.divergence is not None
    assert "which failed, is not kept any more" in given.divergence.replayed


def test_a_cold_history_is_refused() -> None:
    live = World(config())
    cold = replace(history(5), start="cold")
    with pytest.raises(HistoryError, match="this history is cold"):
        GivenReplay(cold, live.config, LiveDecisions.of_state(live.state))
