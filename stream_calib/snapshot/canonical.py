"""Canonical JSON: the one byte form of a document, so that a hash of the bytes is a hash of the content.

Keys sorted, no spaces, UTF-8, floats by their shortest exact decimal form (`repr`), no NaN, no infinity. Equal
documents have equal bytes on every platform on which Python's float is an IEEE 754 double.
"""

from __future__ import annotations

import hashlib
import json
from typing import Any


def canonical_json(document: Any) -> bytes:
    """The canonical bytes of plain values (dict, list, str, int, float, bool, None).

    Raises ValueError for NaN and infinity, TypeError for any other type.
    """
    text = json.dumps(document, sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False)
    return text.encode()


def sha256_hex(data: bytes) -> str:
    """Lower-case hexadecimal SHA-256 of the bytes, 64 characters."""
    return hashlib.sha256(data).hexdigest()


def content_id(*parts: str | int | None) -> str:
    """16 hexadecimal characters that name something by its content (requests, alerts): never random, so replay
    agrees."""
    return sha256_hex(canonical_json(list(parts)))[:16]
