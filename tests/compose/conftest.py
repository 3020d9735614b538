"""The whole of docker-compose.yml, up for real, once for all tests."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator

import pytest

from tests.compose.engine import engine
from tests.compose.images import image_variables
from tests.compose.project import Project

_SERVICES = ("kafka", "redis", "prometheus")


@pytest.fixture(scope="session")
def project() -> Iterator[Project]:
    """Everything but Grafana, of which there is no stand-in, and the demo's producer at work."""
    started = time.monotonic()

    def took(what: str) -> None:
        print(f"{time.monotonic() - started:6.1f} s  {what}", flush=True)

    with engine() as found:
        took("engine")
        official = json.loads(Project(found, {}).compose("config", "--format", "json"))
        images = {
            **{f"{name.upper()}_IMAGE": official["services"][name]["image"] for name in _SERVICES},
            "PYTHON_IMAGE": official["services"]["topics"]["build"]["args"]["PYTHON_IMAGE"],
        }
        project = Project(found, image_variables(found, images))
        took("base images")
        project.compose("build", "--quiet", within_s=600)
        took("image")
        try:
            project.compose("up", "--detach", *_SERVICES, "calibrate", "monitor", "refit", "alert", "demo-producer")
            took("up")
            yield project
        finally:
            print(project.logs())
            project.compose("down", "--volumes", "--timeout", "5")
            if found.is_own:
                found.run("image", "prune", "--force")
                found.run("builder", "prune", "--force", "--keep-storage", "4GB")
            took("down")
