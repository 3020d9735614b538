"""Environments for packages that are compared with: made once, then kept."""

from __future__ import annotations

import subprocess
import venv
from collections.abc import Sequence
from pathlib import Path


def environment_of(requirement: str) -> Path:
    """The folder of `requirement`, NAME==VERSION, under the user's cache."""
    return Path.home() / ".cache" / "stream-calib" / requirement.replace("==", "-")


def python_with(requirement: str, folder: Path, beside: Sequence[str] = ()) -> Path:
    """The interpreter of the environment in `folder`, which has `requirement`; made where it is not there yet.
    `beside`: what the package needs and does not ask for.

    Raises CalledProcessError where pip fails.
    """
    python = folder / "bin" / "python"
    if not _has(python, requirement):
        if not python.exists():
            venv.create(folder, with_pip=True)
        pip = [str(python), "-m", "pip", "install", "--quiet", "--disable-pip-version-check", requirement, *beside]
        subprocess.run(pip, check=True)
    return python


def _has(python: Path, requirement: str) -> bool:
    if not python.exists():
        return False
    name, _, version = requirement.partition("==")
    ask = f"from importlib.metadata import version; print(version({name!r}))"
    asked = subprocess.run([str(python), "-c", ask], capture_output=True, text=True, check=False)
    return asked.stdout.strip() == version
