"""The state of one model key after everything that people do to it, as one version wrote it: entries of the decision
log, history, reports, shadow, alerts, what hooks are owed and what was given up, acknowledgements; and silences.

A sample is a JSON file: the state's fields, lists and blobs, and what this version makes of them.
"""

from __future__ import annotations

import base64
import json
from collections import defaultdict
from typing import Any

import msgspec

from stream_calib.alerts.acknowledgement import FIELD, Acknowledged, acknowledge, acknowledged
from stream_calib.alerts.delivery_ledger import Ledger
from stream_calib.alerts.delivery_record import given_up_of, owed_of
from stream_calib.alerts.outbox import DROPPED, PASSED, SENT, open_alerts
from stream_calib.alerts.silence import Silences
from stream_calib.events.contracts import ModelKey
from stream_calib.snapshot.fate import fate
from stream_calib.snapshot.store import SnapshotStore
from stream_calib.windows.memory_state import MemoryState
from stream_calib.windows.state_store import Commit
from tests.unit.snapshot.asking import ask
from tests.unit.snapshot.documents import level, report, structure

KEY = ModelKey("m", "1")
NOW_MS = 1_700_000_000_000


def acted() -> MemoryState:
    """Every act, and what follows from each, with the code as it is."""
    state = MemoryState(lambda: 0)
    state.commit(Commit(fields={"first_pane": "1", "decided": "9"}))
    assert state.acquire_lease("refit", "w", 1_000) == "1"
    store = _store(state)

    def hold(name: str, rows: int) -> str:
        parent = store.current()
        return store.hold(structure(name, parent, rows=rows), report(name, pane=ask(state, name, parent).pane), "1")

    first, rejected = hold("r1", 1), hold("r2", 2)
    store.shadow(rejected, "ann", "is it better?")
    store.unshadow("ann", "it is not")
    store.reject(rejected, "ann", "declines too many in EWR")
    store.approve(first, "bo", "reviewed with risk")
    asked = ask(state, "r3", first)
    second = store.publish(structure("r3", first, rows=3), report("r3", pane=asked.pane), "1")
    asked = ask(state, "r4", second)
    store.publish(level(second, "r4", second), report("r4", pane=asked.pane), "1")
    store.request_manual("ann", "new fares since Monday")
    ask(state, "r5", store.current())
    store.settle(report("r5", "refused", 13), "1")
    store.rollback(first, "bo", "declines went up")
    store.pin(None, "bo", "audit until Friday")
    store.unpin("bo", "audit is over")
    store.shadow(hold("r6", 4), "ann", "the next one?")
    store.pin(None, "bo", "audit once more")
    _hooks(state)
    Silences(state).add("m", "psi", NOW_MS + 1, "ann", "load test", NOW_MS)
    return state


def _hooks(state: MemoryState) -> None:
    ledger = Ledger(state, "ops", lambda alert: True)
    ledger.refresh(state.read([SENT, DROPPED, PASSED, "hook:ops"]), NOW_MS)
    ledger.take([*open_alerts(state).values()], Acknowledged.decode(state.read([FIELD])[FIELD]), NOW_MS)
    assert len(ledger.owed) > 1
    ledger.rejected(ledger.owed[:1], "404", NOW_MS)
    ledger.failed(ledger.owed[:1], 0, "503", NOW_MS)
    alert = ledger.owed[0].alert
    acknowledge(state, alert, state.length("outbox"), "ann", "on it", NOW_MS)


def read(state: MemoryState) -> dict[str, Any]:
    """What the code as it is makes of it, in plain values."""
    log = _store(state).log()
    return {
        "current": [log.current_at(pane) for pane in range(1, 20)],
        "decisions": [json.loads(entry) for entry in state.entries("decisions", 0)],
        "pin": None if log.pin is None else log.pin.model_dump(mode="json"),
        "shadow": None if log.shadow is None else log.shadow.model_dump(mode="json"),
        "held": {version: held.model_dump(mode="json") for version, held in log.held.items()},
        "fates": {entry.version: fate(log, entry.version) for entry in _store(state).reports() if entry.version},
        "history": _store(state).history(),
        "reports": [one.model_dump(mode="json") for one in _store(state).reports()],
        "alerts": [alert.model_dump(mode="json") for alert in open_alerts(state).values()],
        "owed": [owed.alert.id for owed in owed_of(state, "ops")],
        "given_up": [msgspec.to_builtins(record) for record in given_up_of(state)[1]],
        "acknowledged": {key: given.actor for key, given in acknowledged(state).items()},
        "silences": [msgspec.to_builtins(silence) for silence in Silences(state).at(NOW_MS)],
    }


def text_of(state: MemoryState) -> str:
    """The sample."""
    stored = {
        "fields": dict(sorted(state._fields.items())),
        "lists": {name: [_text(entry) for entry in entries] for name, entries in sorted(state._lists.items())},
        "blobs": {name: _text(blob) for name, blob in sorted(state._blobs.items())},
    }
    return json.dumps({"state": stored, "read": read(state)}, indent=1, ensure_ascii=False) + "\n"


def state_of(sample: dict[str, Any]) -> MemoryState:
    """What was stored, in a store of this version."""
    state, stored = MemoryState(lambda: 0), sample["state"]
    state._fields.update(stored["fields"])
    state._lists = defaultdict(list, {name: [_bytes(e) for e in entries] for name, entries in stored["lists"].items()})
    state._blobs.update({name: _bytes(blob) for name, blob in stored["blobs"].items()})
    return state


def _store(state: MemoryState) -> SnapshotStore:
    return SnapshotStore(state, KEY, "g", 1_000, lambda: NOW_MS)


def _text(raw: bytes) -> str:
    try:
        return "text:" + raw.decode()
    except UnicodeDecodeError:
        return "base64:" + base64.b64encode(raw).decode()


def _bytes(text: str) -> bytes:
    form, _, content = text.partition(":")
    return content.encode() if form == "text" else base64.b64decode(content)
