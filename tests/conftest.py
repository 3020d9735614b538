"""What all tests share: real servers, and the marker of the tests that need them."""

from __future__ import annotations

import pytest

from tests import services
from tests.services import own_redis, redis_server_url, redis_url

__all__ = ["own_redis", "redis_server_url", "redis_url"]


def pytest_report_header() -> str:
    return f"redis: {services.redis_description()}"


@pytest.hookimpl(tryfirst=True)  # before pytest deselects by marker
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if isinstance(item, pytest.Function) and services.SERVICE_FIXTURES.intersection(item.fixturenames):
            item.add_marker(pytest.mark.services)
