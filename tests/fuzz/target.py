"""What a fuzzer needs to know of a reader of bytes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple


class Target(NamedTuple):
    """`run` reads the bytes and checks what came of them. It raises whatever the reader's contract does not name."""

    name: str
    run: Callable[[bytes], None]
    seeds: Sequence[bytes]
    """Good inputs, to begin from."""
    cost: int = 1
    """How many times fewer examples than usual."""


def told(error: Exception) -> None:
    """A refusal says something."""
    assert len(str(error)) > 10
