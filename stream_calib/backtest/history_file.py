"""A history of cells as a file, so that it is made once and policies are tried on it again and again.

A first line names the format and its number; behind it come frames (windows/frames.py): the head, the panes, the
signatures. Cells are packed as in the state, compressed. Nothing in it is executed.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import IO, TypeAlias

import msgspec

from stream_calib.backtest.history import CellHistory, PaneBlobs, Start
from stream_calib.errors import HistoryError
from stream_calib.events.contracts import ModelKey
from stream_calib.windows.frames import EndFrame, read_frames, write_frames

FORMAT = 1
_MAGIC = b"stream-calib history "
_SIGNATURES_A_FRAME = 10_000


class _Head(msgspec.Struct, frozen=True, array_like=True, tag="head", forbid_unknown_fields=True):
    model: str
    version: str
    generation: str
    pane_ms: int
    first_pane: int
    panes: int
    start: Start
    source: str
    counts: list[tuple[str, int]]
    label_delays: list[tuple[int, int]]


class _Pane(msgspec.Struct, frozen=True, array_like=True, tag="pane", forbid_unknown_fields=True):
    scored: bytes
    matured: bytes | None


class _Signatures(msgspec.Struct, frozen=True, array_like=True, tag="signatures", forbid_unknown_fields=True):
    values: list[tuple[int, tuple[str, ...]]]


_Frame: TypeAlias = _Head | _Pane | _Signatures
_ANY = msgspec.msgpack.Decoder(_Head | _Pane | _Signatures | EndFrame)


def save_history(history: CellHistory, path: Path) -> None:
    """Writes the file as a whole or not at all; equal histories are equal bytes. A file that is there is replaced, that
    of a link too and not the link; a folder that is not there is made.

    Raises HistoryError where it cannot be written.
    """
    real = Path(os.path.realpath(path))
    beside = real.with_name(real.name + ".part")
    try:
        real.parent.mkdir(parents=True, exist_ok=True)
        try:
            with beside.open("wb") as file:
                file.write(_MAGIC + b"%d\n" % FORMAT)
                write_frames(file.write, _frames(history))
                file.flush()
                os.fsync(file.fileno())
            beside.replace(real)
        finally:
            beside.unlink(missing_ok=True)
    except OSError as error:
        raise HistoryError(f"{path}: cannot be written: {error.strerror or error}") from error


def load_history(path: Path) -> CellHistory:
    """The history of the file. Raises HistoryError where it cannot be read, is of another format, or is damaged."""
    try:
        with path.open("rb") as file:
            _check_format(path, file.readline(100))
            return _history(path, file)
    except OSError as error:
        raise HistoryError(f"{path}: cannot be read: {error.strerror or error}") from error


def _frames(history: CellHistory) -> Iterator[_Frame]:
    yield _Head(
        history.key.model,
        history.key.version,
        history.generation,
        history.pane_ms,
        history.first_pane,
        len(history.panes),
        history.start,
        history.source,
        sorted(history.counts.items()),
        sorted(history.label_delays.items()),
    )
    for pane in history.panes:
        yield _Pane(pane.scored, pane.matured)
    values = sorted((h, tuple(values)) for h, values in history.signatures.items())
    for i in range(0, len(values), _SIGNATURES_A_FRAME):
        yield _Signatures(values[i : i + _SIGNATURES_A_FRAME])


def _history(path: Path, file: IO[bytes]) -> CellHistory:
    head: _Head | None = None
    panes: list[PaneBlobs] = []
    signatures: dict[int, tuple[str, ...]] = {}
    for frame in read_frames(file.read, _ANY.decode, lambda what: _damaged(path, what)):
        if isinstance(frame, _Head):
            if head is not None:
                raise _damaged(path, "it has two heads")
            head = frame
        elif isinstance(frame, _Pane):
            panes.append(PaneBlobs(frame.scored, frame.matured))
        else:
            signatures |= dict(frame.values)
    if head is None or len(panes) != head.panes:
        raise _damaged(
            path, f"it has {len(panes)} panes, and its head says {'nothing' if head is None else head.panes}"
        )
    try:
        key = ModelKey.of(head.model, head.version)
    except ValueError as error:
        raise _damaged(path, f"the model key {head.model!r}, {head.version!r} cannot be: {error}") from error
    return CellHistory(
        key,
        head.generation,
        head.pane_ms,
        head.first_pane,
        panes,
        signatures,
        head.start,
        head.source,
        dict(head.counts),
        dict(head.label_delays),
    )


def _check_format(path: Path, line: bytes) -> None:
    number = line.removeprefix(_MAGIC).strip()
    if not line.startswith(_MAGIC) or not number.isdigit():
        raise HistoryError(f"{path}: is no history of cells; `stream-calib backtest --save-cells` writes such files")
    if int(number) != FORMAT:
        raise HistoryError(
            f"{path}: is of format {int(number)}, this version reads format {FORMAT}: make it again from its source"
        )


def _damaged(path: Path, what: str) -> HistoryError:
    return HistoryError(f"{path}: {what}: the file is damaged; make it again from its source")
