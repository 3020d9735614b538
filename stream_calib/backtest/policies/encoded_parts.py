"""Canonical bytes of documents that have most of their parts in common with others: each part is encoded once."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from stream_calib.backtest.policies.bounded import make_room
from stream_calib.snapshot.canonical import canonical_json
from stream_calib.snapshot.document import Document

_MOST_KEPT = 30_000
"""Parts, most of them below a kilobyte; beyond these the one that was of no use for the longest time is dropped."""


class EncodedParts:
    """Not thread-safe."""

    def __init__(self) -> None:
        self._known: dict[int, tuple[Document, bytes]] = {}
        """By `id`; the documents are frozen, and held so that no other one gets the number."""

    def encode(self, document: Document) -> bytes:
        """As `Document.encode`."""
        parts = sorted((name, self._encoded(getattr(document, name))) for name in document.written_fields())
        return _joined(b"{", (b'"%s":%s' % (name.encode(), value) for name, value in parts), b"}")

    def _encoded(self, value: Any) -> bytes:
        if isinstance(value, Document):
            return self._part(value)
        if isinstance(value, tuple) and value and isinstance(value[0], Document):
            return _joined(b"[", map(self._part, value), b"]")
        return canonical_json(value)

    def _part(self, part: Document) -> bytes:
        found = self._known.pop(id(part), None) or (part, part.encode())
        make_room(self._known, _MOST_KEPT)
        self._known[id(part)] = found
        return found[1]


def _joined(begin: bytes, values: Iterable[bytes], end: bytes) -> bytes:
    return begin + b",".join(values) + end
