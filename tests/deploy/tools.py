"""Programs that check what is in deploy/: those on the PATH, else fetched once into a cache folder of the user's."""

from __future__ import annotations

import os
import shutil
import subprocess
from functools import cache
from pathlib import Path

from stream_calib.errors import StreamCalibError
from tests.debian_packages import cache_folder, unpacked

_HELM = "helm.sh/helm/v3/cmd/helm@v3.22.0"
_KUBERNETES = "1.30.0"
"""What the chart is rendered for: a helm built from its module says 1.20 by itself."""
_PROMETHEUS_RELEASE = "bookworm"
_BUILD_WITHIN_S = 900


@cache
def promtool() -> Path:
    """Raises StreamCalibError where it cannot be had."""
    if found := shutil.which("promtool"):
        return Path(found)
    return unpacked(["prometheus"], _PROMETHEUS_RELEASE) / "usr/bin/promtool"


@cache
def helm() -> Path:
    """Raises StreamCalibError where it cannot be had."""
    if found := shutil.which("helm"):
        return Path(found)
    folder = cache_folder() / "bin"
    if (built := folder / "helm").exists():
        return built
    go = shutil.which("go", path=f"{os.environ.get('PATH', '')}:/usr/local/go/bin")
    if go is None:
        raise StreamCalibError("helm: not found, and without go it cannot be built; install helm 3, or go")
    command = (go, "install", _HELM)
    done = subprocess.run(
        command, env={**os.environ, "GOBIN": str(folder)}, capture_output=True, text=True, timeout=_BUILD_WITHIN_S
    )
    if done.returncode:
        raise StreamCalibError(f"{' '.join(command)}: exit code {done.returncode}\n{done.stderr[-4000:]}")
    return built


def render(chart: Path, *arguments: str) -> str:
    """What `helm template` makes of the chart. Raises StreamCalibError with helm's words where it refuses."""
    command = (str(helm()), "template", "release", str(chart), "--kube-version", _KUBERNETES, *arguments)
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode:
        raise StreamCalibError(done.stderr)
    return done.stdout
