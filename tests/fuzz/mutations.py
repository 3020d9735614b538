"""Good inputs with a few faults in them."""

from __future__ import annotations

from collections.abc import Sequence

from hypothesis import strategies as st

TOKENS = [
    *(b"", b"\x00", b"\xff", b"\xff\xff\xff\xff", b"\x00\x00\x00\x80", b"\xed\xa0\x80", "é".encode()),
    *(b"null", b"true", b"-1", b"0", b"1e999", b"1e-999", b"NaN", b"Infinity", b"-0.0", b"18446744073709551616"),
    *(b"9" * 30, b"9" * 5_000, b"1.7976931348623157e308", b"5e-324", b"[" * 100, b"{}", b"[]", b'"a":1,', b'""'),
    *(b'"', b"'", b"{", b"}", b"[", b"]", b",", b":", b"=", b"\n", b"\\ud800", b"\\u0000", b"__missing__"),
    *(b"--", b"--json", b"--model", b"--config", b"2024-05-01"),
]
_DOUBLED, _OTHERS = len(TOKENS), len(TOKENS) + 1


def mutated(seeds: Sequence[bytes]) -> st.SearchStrategy[bytes]:
    """One of the seeds after one to four edits: a piece of it is cut out and a token put there, or the piece twice, or
    a piece of another seed."""
    edit = st.tuples(st.integers(0, 10_000), st.integers(0, 12), st.integers(0, _OTHERS))
    return st.builds(
        lambda value, other, edits: _edited(value, other, edits),
        st.sampled_from(seeds),
        st.sampled_from(seeds),
        st.lists(edit, min_size=1, max_size=4),
    )


def _edited(value: bytes, other: bytes, edits: Sequence[tuple[int, int, int]]) -> bytes:
    for where, length, what in edits:
        start = where % (len(value) + 1)
        piece = value[start : start + length]
        if what == _DOUBLED:
            put = piece * 2
        elif what == _OTHERS:
            put = other[start : start + 40]
        else:
            put = TOKENS[what]
        value = value[:start] + put + value[start + length :]
    return value
