"""What is kept for others to use again, bounded in number."""

from __future__ import annotations

from typing import TypeVar

_Key = TypeVar("_Key")
_Value = TypeVar("_Value")


def make_room(known: dict[_Key, _Value], most: int) -> None:
    """For one more: drops those that were put there first while there are `most`."""
    while len(known) >= most:
        del known[next(iter(known))]
