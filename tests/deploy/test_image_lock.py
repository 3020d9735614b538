"""The image has the versions that the tests ran with."""

from __future__ import annotations

import importlib
import re
import sys
from pathlib import Path

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

CHECKOUT = Path(__file__).parents[2]
_EXTRAS = ("fast", "otel")

# By name, because each Python has only one of the two, and a type checker looks for both.
tomllib = importlib.import_module("tomllib" if sys.version_info >= (3, 11) else "tomli")


def _locked(file: str) -> dict[str, set[str]]:
    """Package -> its versions, of which there are several where they differ by Python."""
    found: dict[str, set[str]] = {}
    for name, version in re.findall(r"^([\w.-]+)==([^ ;\\]+)", (CHECKOUT / file).read_text(), re.MULTILINE):
        found.setdefault(canonicalize_name(name), set()).add(version)
    return found


def test_versions_are_those_of_the_development_lock() -> None:
    image, tested = _locked("deploy/requirements.lock"), _locked("requirements.lock")
    both = image.keys() & tested.keys()
    assert {"numpy", "redis", "kafka-python", "pydantic"} <= both
    assert {name: image[name] for name in both} == {name: tested[name] for name in both}, "run `make lock`"


def test_everything_that_the_project_needs_is_in_the_image() -> None:
    project = tomllib.loads((CHECKOUT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    wanted = list(project["dependencies"])
    for extra in _EXTRAS:
        wanted += project["optional-dependencies"][extra]
    names = {canonicalize_name(Requirement(requirement).name) for requirement in wanted}
    assert names <= _locked("deploy/requirements.lock").keys(), "run `make lock`"


def test_development_tools_are_not_in_the_image() -> None:
    assert (
        not {"pytest", "mypy", "ruff", "hypothesis", "testcontainers", "uv"}
        & _locked("deploy/requirements.lock").keys()
    )


def test_every_package_has_hashes() -> None:
    lines = (CHECKOUT / "deploy/requirements.lock").read_text(encoding="utf-8")
    packages = re.findall(r"^[\w.-]+==[^\n]*\n(?:    --hash=sha256:[0-9a-f]{64}[^\n]*\n)+", lines, re.MULTILINE)
    assert len(packages) == sum(len(versions) for versions in _locked("deploy/requirements.lock").values())
