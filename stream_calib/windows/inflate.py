"""Inflating with a bound: a few deflated kilobytes may be gigabytes of zeros."""

from __future__ import annotations

import zlib


def inflate(deflated: bytes, most_bytes: int) -> bytes:
    """What was deflated, in memory for at most `most_bytes` (and a copy).

    Raises zlib.error where it is damaged, cut off, longer than that, or where more bytes follow.
    """
    reader = zlib.decompressobj()
    body = reader.decompress(deflated, most_bytes + 1)
    if len(body) > most_bytes:
        raise zlib.error(f"it inflates to more than the {most_bytes} bytes that its head tells of")
    if not reader.eof or reader.unused_data:
        raise zlib.error("it is cut off" if not reader.eof else f"{len(reader.unused_data)} bytes follow its end")
    return body
