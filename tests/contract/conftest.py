"""Fixtures of the transport contract suite."""

from __future__ import annotations

import pytest

from tests.contract.kafka_transport import kafka_transport
from tests.contract.librdkafka_transport import librdkafka_transport
from tests.contract.transports import Transport, embedded_transport, memory_transport

__all__ = ["embedded_transport", "kafka_transport", "librdkafka_transport", "memory_transport"]


_SERVED = ("embedded", "kafka", "librdkafka")


@pytest.fixture(params=["memory", *(pytest.param(kind, marks=pytest.mark.services) for kind in _SERVED)])
def transport(request: pytest.FixtureRequest) -> Transport:
    """An empty log of each kind."""
    made = request.getfixturevalue(f"{request.param}_transport")
    assert isinstance(made, Transport)
    return made
