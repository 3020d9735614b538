"""What the closer does: it decides a pane, and asks for a refit with it."""

from __future__ import annotations

from stream_calib.snapshot.decision_log import Expired, Request, chain
from stream_calib.snapshot.log_reader import LogReader
from stream_calib.windows.state_store import Commit, StateStore
from tests.unit.snapshot.documents import request


def ask(state: StateStore, name: str, parent: str | None) -> Request:
    """Decides the next pane with a request; its parent is the version that is current there."""
    fields, log = LogReader(state).read(("decided",))
    pane = int(fields["decided"] or 0) + 1
    made = request(name, pane, parent)
    assert write(state, made, decided=pane), "somebody else was faster"
    assert log.open_request is None
    return made


_NOW = "as it is now"


def write(state: StateStore, entry: Request | Expired, decided: int, tip: str | None = _NOW) -> bool:
    """The closer's compare-and-set; False where the log has moved, since `tip` where it is given."""
    fields, log = LogReader(state).read(("decided",))
    if tip not in (_NOW, fields["tip"]):
        return False
    encoded = entry.encode()
    after = {
        "decided": str(decided),
        "tip": str(chain(log.tip, [encoded])),
        "log_length": str(log.length + 1),
        "open_request": entry.id if isinstance(entry, Request) else "",
    }
    expect = {name: fields[name] for name in ("decided", "tip")}
    return state.commit(Commit(expect, after, {"decisions": [encoded]}))
