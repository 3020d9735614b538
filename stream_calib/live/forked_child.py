"""What a forked child does with what it inherits: threads are gone, locks may be held for ever, and connections are the
parent's."""

from __future__ import annotations

import os
import weakref
from collections.abc import Callable
from typing import Any

_start_afresh: list[weakref.WeakMethod[Callable[[], None]]] = []
_abandoned: list[object] = []


def in_a_forked_child(method: Callable[[], None]) -> None:
    """Calls the bound method in each child that this process forks, as long as its object lives."""
    _start_afresh[:] = [known for known in _start_afresh if known() is not None]
    _start_afresh.append(weakref.WeakMethod(method))


def abandon(*connections: Any) -> None:
    """Keeps the parent's connections for good: to close or collect them here could end them there."""
    _abandoned.extend(connections)


def _forked() -> None:
    for reference in _start_afresh:
        method = reference()
        if method is not None:
            method()


if hasattr(os, "register_at_fork"):  # where there is none, nothing forks
    os.register_at_fork(after_in_child=_forked)
