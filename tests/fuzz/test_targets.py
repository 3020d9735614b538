"""Readers of bytes that come from outside: nothing but what their contracts name ever comes out of them.

The examples are the same in every run; `make fuzz` looks for others.
"""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.fuzz.mutations import mutated
from tests.fuzz.targets import TARGETS

EXAMPLES = 240


@pytest.mark.parametrize("name", TARGETS)
def test_what_is_good_is_read(name: str) -> None:
    for seed in TARGETS[name].seeds:
        TARGETS[name].run(seed)


def test_a_name_that_is_no_text_can_be_told_of() -> None:
    """Found by `make fuzz`."""
    TARGETS["command_line"].run(b"doctor\n--rate\n1e3\n--config\nG\xbbOD")


@pytest.mark.parametrize("name", TARGETS)
def test_any_bytes(name: str) -> None:
    target = TARGETS[name]

    @settings(max_examples=EXAMPLES // 3 // target.cost, derandomize=True, database=None)
    @given(st.binary(max_size=200))
    def check(value: bytes) -> None:
        target.run(value)

    check()


@pytest.mark.parametrize("name", TARGETS)
def test_good_bytes_with_faults(name: str) -> None:
    target = TARGETS[name]

    @settings(max_examples=EXAMPLES // target.cost, derandomize=True, database=None)
    @given(mutated(target.seeds))
    def check(value: bytes) -> None:
        target.run(value)

    check()
