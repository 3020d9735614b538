"""Tables as text, for people."""

from __future__ import annotations

from collections.abc import Sequence


def text_table(head: Sequence[str], body: Sequence[Sequence[str]]) -> list[str]:
    """Lines of a table, the head first: the first column to the left, the others to the right."""
    widths = [max(len(row[column]) for row in (head, *body)) for column in range(len(head))]
    first, others = widths[0], widths[1:]
    return [
        "  ".join([row[0].ljust(first), *(cell.rjust(width) for cell, width in zip(row[1:], others, strict=True))])
        for row in (head, *body)
    ]
