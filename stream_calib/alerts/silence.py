"""Silences: alerts of a model, of a kind, or of both, are not told for a while. They are kept and shown all the same,
and what is open still when the silence ends is told then."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import msgspec

from stream_calib.alerts.model import Alert
from stream_calib.alerts.refusal import read_or_refuse
from stream_calib.errors import StateError
from stream_calib.windows.state_store import Commit, StateStore

_FIELD = "silences"
_ATTEMPTS = 100


class Silence(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """It ends by itself."""

    id: int
    until_ms: int
    """When it ends, wall time."""
    time_ms: int
    """When it began, wall time."""
    actor: str
    reason: str
    model: str | None = None
    """As `name` or `name/version`; None: all."""
    kind: str | None = None
    """None: all."""

    def covers(self, alert: Alert) -> bool:
        """Whether it is one of its alerts; whether it has ended does not matter."""
        models = (None, alert.model, f"{alert.model}/{alert.model_version}")
        return self.model in models and self.kind in (None, alert.kind)


class _Document(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    next_id: int = 1
    silences: tuple[Silence, ...] = ()


class _Stored(msgspec.Struct, frozen=True):
    next_id: int
    silences: tuple[msgspec.Raw, ...]


_STORED, _SILENCE = msgspec.json.Decoder(_Stored), msgspec.json.Decoder(Silence)


class Silences:
    """Those of a deployment. One that cannot be read is refused, and silences nothing; the next change drops it. Raises
    StateUnavailableError when the store is away."""

    def __init__(self, state: StateStore) -> None:
        """`state`: of the deployment (windows/model_registry.py)."""
        self._state = state

    def at(self, now_ms: int) -> list[Silence]:
        """Those that have not ended, oldest first."""
        return [silence for silence in self._read(now_ms)[1].silences if silence.until_ms > now_ms]

    def add(self, model: str | None, kind: str | None, until_ms: int, actor: str, reason: str, now_ms: int) -> Silence:
        """Begins one, with a number that none had before: the next, or where that cannot be read, the time."""

        def added(found: _Document) -> _Document:
            silence = Silence(found.next_id, until_ms, now_ms, actor, reason, model, kind)
            return _Document(found.next_id + 1, (*found.silences, silence))

        return self._change(now_ms, added).silences[-1]

    def end(self, number: int, now_ms: int) -> Silence | None:
        """Ends the one of the number now; what it was, None where there is none."""
        found = next((silence for silence in self.at(now_ms) if silence.id == number), None)
        if found is not None:
            self._change(now_ms, lambda d: _Document(d.next_id, tuple(s for s in d.silences if s.id != number)))
        return found

    def _change(self, now_ms: int, change: Callable[[_Document], _Document]) -> _Document:
        """By compare-and-set; those that have ended are dropped on the way."""
        for _ in range(_ATTEMPTS):
            field, found = self._read(now_ms)
            lasting = tuple(silence for silence in found.silences if silence.until_ms > now_ms)
            wanted = change(_Document(found.next_id, lasting))
            if self._state.commit(Commit({_FIELD: field}, {_FIELD: msgspec.json.encode(wanted).decode()})):
                return wanted
        raise StateError(f"the silences could not be changed in {_ATTEMPTS} attempts; is the store being wiped?")

    def _read(self, now_ms: int) -> tuple[str | None, _Document]:
        field = self._state.read([_FIELD])[_FIELD]
        if not field:
            return field, _Document()
        stored = read_or_refuse("silence", field, _STORED.decode)
        if stored is None:
            # Which numbers were given is not known any more; as many as milliseconds since 1970 were not.
            return field, _Document(max(1, now_ms))
        read = (read_or_refuse("silence", bytes(raw), _SILENCE.decode) for raw in stored.silences)
        return field, _Document(stored.next_id, tuple(filter(None, read)))


def silence_of(alert: Alert, silences: Sequence[Silence]) -> Silence | None:
    """The one that keeps the alert from being told and ends last."""
    return max((s for s in silences if s.covers(alert)), key=lambda s: s.until_ms, default=None)
