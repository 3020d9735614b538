"""What is garbage in a cycle goes when memory is given back, however seldom Python looks for it by itself; and what is
free between things that stay goes back to the system."""

import ctypes
import gc
import resource
import weakref
from pathlib import Path

import pytest

from stream_calib.garbage_collection import give_back_freed_memory, give_back_memory

_PIECE, _PIECES = 64 * 1024, 1_000
"""Smaller than what the C library maps by itself, which goes back when it is freed."""


class Node:
    itself: object


def test_a_cycle_is_collected() -> None:
    gc.disable()
    try:
        node = Node()
        node.itself = node
        alive = weakref.ref(node)
        del node
        assert alive() is not None
        give_back_memory()
        assert alive() is None
    finally:
        gc.enable()


@pytest.mark.skipif(not hasattr(ctypes.CDLL(None), "malloc_trim"), reason="the C library gives nothing back")
def test_pages_between_what_stays_go_back() -> None:
    pairs = [(bytearray(_PIECE), bytearray(_PIECE)) for _ in range(_PIECES)]
    kept = [stays for stays, _ in pairs]
    del pairs
    before = resident_bytes()
    give_back_freed_memory()
    assert before - resident_bytes() > _PIECE * _PIECES / 2
    assert sum(map(len, kept)) == _PIECE * _PIECES


def resident_bytes() -> int:
    return int(Path("/proc/self/statm").read_text().split()[1]) * resource.getpagesize()
