"""Fixtures of the transport contract suite."""

from __future__ import annotations

import pytest

from tests.contract.transports import Transport, embedded_transport, memory_transport

__all__ = ["embedded_transport", "memory_transport"]


@pytest.fixture(params=["memory", pytest.param("embedded", marks=pytest.mark.services)])
def transport(request: pytest.FixtureRequest) -> Transport:
    """An empty log of each kind."""
    made = request.getfixturevalue(f"{request.param}_transport")
    assert isinstance(made, Transport)
    return made
