"""A Docker engine with compose: the one that answers, else one of our own out of Debian's packages, ended after use."""

from __future__ import annotations

import os
import shutil
import subprocess
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from stream_calib.errors import StreamCalibError
from tests.debian_packages import cache_folder, unpacked

_INSTALL_WITHIN_S = 300
_START_WITHIN_S = 60.0
_STOP_WITHIN_S = 30.0
_LOOK_AGAIN_S = 0.1
_PLUGINS = ("docker-compose", "docker-buildx")
_PLUGINS_RELEASE = "trixie"  # the first Debian that has them


@dataclass(frozen=True, slots=True)
class Engine:
    """How the docker command line reaches it."""

    environ: Mapping[str, str]
    is_own: bool
    """It was started here, so nothing in it is anybody else's, and no registry can be reached."""

    def run(self, *arguments: str, within_s: float = 300, environ: Mapping[str, str] | None = None) -> str:
        """What `docker <arguments>` prints. Raises StreamCalibError with its errors where it fails."""
        command = ("docker", *arguments)
        try:
            done = subprocess.run(
                command, env={**self.environ, **(environ or {})}, capture_output=True, text=True, timeout=within_s
            )
        except subprocess.TimeoutExpired as error:
            raise StreamCalibError(f"{' '.join(command)}: took longer than {within_s:.0f} s") from error
        if done.returncode:
            raise StreamCalibError(
                f"{' '.join(command)}: exit code {done.returncode}\n{done.stdout[-4000:]}{done.stderr[-4000:]}"
            )
        return done.stdout


@contextmanager
def engine() -> Iterator[Engine]:
    """Raises StreamCalibError that says what is missing, where there is none and none can be started."""
    if _answers(os.environ, "version"):
        environ = os.environ if _answers(os.environ, "compose", "version") else _with_plugins(os.environ)
        yield Engine(environ, is_own=False)
        return
    _install()
    folder = cache_folder() / "engine"
    environ = _with_plugins({**os.environ, "DOCKER_HOST": f"unix://{folder}/docker.sock"})
    if _answers(environ, "version"):  # another run's, which ends it
        yield Engine(environ, is_own=True)
        return
    process = _start(folder, environ)
    try:
        yield Engine(environ, is_own=True)
    finally:
        process.terminate()
        try:
            process.wait(_STOP_WITHIN_S)
        except subprocess.TimeoutExpired:
            process.kill()


def _answers(environ: Mapping[str, str], *arguments: str) -> bool:
    if shutil.which("docker") is None:
        return False
    return subprocess.run(("docker", *arguments), env=environ, capture_output=True).returncode == 0


def _install() -> None:
    missing = [
        package
        for command, package in (("dockerd", "docker.io"), ("debootstrap", "debootstrap"))
        if not shutil.which(command)
    ]
    if not missing and os.geteuid() == 0:
        return
    if shutil.which("apt-get") is None or os.geteuid() != 0:
        raise StreamCalibError(
            "no Docker engine answers, and without root and apt-get none can be started here. Start one that has the"
            " compose plugin, or set DOCKER_HOST to where one listens"
        )
    apt = ("apt-get", "-qq", "-o", "DPkg::Lock::Timeout=120")
    install = (*apt, "install", "-y", "--no-install-recommends", *missing)
    for command in ((*apt, "update"), install):
        done = subprocess.run(
            command,
            env={**os.environ, "DEBIAN_FRONTEND": "noninteractive"},
            capture_output=True,
            text=True,
            timeout=_INSTALL_WITHIN_S,
        )
        if done.returncode:
            raise StreamCalibError(f"{' '.join(command)}: exit code {done.returncode}\n{done.stdout}{done.stderr}")


def _with_plugins(environ: Mapping[str, str]) -> dict[str, str]:
    """The environment in which docker finds compose and buildx."""
    found = unpacked(_PLUGINS, _PLUGINS_RELEASE) / "usr/libexec/docker/cli-plugins"
    config = cache_folder() / "docker-config"
    config.mkdir(parents=True, exist_ok=True)
    link = config / "cli-plugins"
    if not link.exists():
        link.symlink_to(found)
    return {**environ, "DOCKER_CONFIG": str(config)}


def _start(folder: Path, environ: Mapping[str, str]) -> subprocess.Popen[bytes]:
    folder.mkdir(parents=True, exist_ok=True)
    log = folder / "dockerd.log"
    with log.open("wb") as output:
        process = subprocess.Popen(
            [
                # So that it ends also when the tests are killed.
                *("setpriv", "--pdeathsig", "TERM", "--"),
                *("dockerd", "--host", environ["DOCKER_HOST"], "--data-root", f"{folder}/data"),
                *("--exec-root", f"{folder}/exec", "--pidfile", f"{folder}/dockerd.pid", "--mtu", "1400"),
            ],
            stdout=output,
            stderr=output,
            start_new_session=True,
        )
    give_up = time.monotonic() + _START_WITHIN_S
    while not _answers(environ, "version"):
        if process.poll() is not None or time.monotonic() > give_up:
            process.kill()
            raise StreamCalibError(f"dockerd does not start; the end of {log}:\n{log.read_text()[-4000:]}")
        time.sleep(_LOOK_AGAIN_S)
    return process
