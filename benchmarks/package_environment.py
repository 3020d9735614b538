"""An environment of its own for a package that is compared with, under the user's cache: made once, then kept."""

from __future__ import annotations

import subprocess
import venv
from pathlib import Path


def python_with(requirement: str, folder: Path | None = None) -> Path:
    """The interpreter of an environment that has `requirement`, NAME==VERSION; made where it is not there yet.

    `folder` is the environment's; by default one under the user's cache that is named for the requirement. Raises
    CalledProcessError where pip fails.
    """
    folder = folder or Path.home() / ".cache" / "stream-calib" / requirement.replace("==", "-")
    python = folder / "bin" / "python"
    if not _has(python, requirement):
        if not python.exists():
            venv.create(folder, with_pip=True)
        pip = [str(python), "-m", "pip", "install", "--quiet", "--disable-pip-version-check", requirement]
        subprocess.run(pip, check=True)
    return python


def _has(python: Path, requirement: str) -> bool:
    if not python.exists():
        return False
    name, _, version = requirement.partition("==")
    ask = f"from importlib.metadata import version; print(version({name!r}))"
    asked = subprocess.run([str(python), "-c", ask], capture_output=True, text=True, check=False)
    return asked.stdout.strip() == version
