"""When Python looks for cycles of objects, and when freed memory goes back to the system."""

from __future__ import annotations

import ctypes
import gc

COLLECT_EVERY_S = 60.0
_AFTER_OBJECTS = 50_000


def collect_seldom() -> None:
    """A batch is freed by its reference counts. By default the garbage collector looks through it again and again while
    it is made, and with it through all that was imported: 4 us a record of the 14 that calibrate takes."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(_AFTER_OBJECTS, 20, 20)


def give_back_memory() -> None:
    """To be called every COLLECT_EVERY_S: collected so seldom, the oldest generation would come to its turn after days.

    What is free is given back to the system: a process that has worked off a backlog would keep its size for ever.
    """
    gc.collect()
    give_back_freed_memory()


def give_back_freed_memory() -> None:
    """What is free, where the C library can (glibc). To be called after work that took much for a moment.

    What is kept, as the cells of panes are, lies between arrays that came and went; their pages would stay in memory,
    ever more of them as what is kept comes to lie further apart. This is cheap. That large arrays have pages of their
    own (M_MMAP_THRESHOLD) gives them back by itself, and costs a refit half of its CPU again.
    """
    if (trim := getattr(ctypes.CDLL(None), "malloc_trim", None)) is not None:
        trim(0)
