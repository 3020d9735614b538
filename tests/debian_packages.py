"""Programs out of Debian's packages, unpacked into a cache folder of the user's: nothing on the machine is changed."""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
from collections.abc import Sequence
from pathlib import Path

from stream_calib.errors import StreamCalibError

_ARCHIVE = "http://deb.debian.org/debian"
_KEYRING = Path("/usr/share/keyrings/debian-archive-keyring.gpg")
_WITHIN_S = 300


def cache_folder() -> Path:
    """Where the tests keep what they fetch, from one run to the next."""
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "stream-calib"


def unpacked(packages: Sequence[str], suite: str) -> Path:
    """Root folder of the packages (not of what they depend on) of that Debian release, fetched on first use.

    Raises StreamCalibError where they cannot be had.
    """
    folder = cache_folder() / "debian" / f"{suite}-{'-'.join(packages)}"
    if folder.is_dir():
        return folder
    if shutil.which("apt-get") is None or not _KEYRING.exists():
        raise StreamCalibError(f"{' and '.join(packages)}: not found, and without apt-get and {_KEYRING} not to be had")
    folder.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=folder.parent) as scratch:
        try:
            _download(packages, suite, Path(scratch))
            for package in Path(scratch).glob("*.deb"):
                _run("dpkg-deb", "-x", str(package), f"{scratch}/root")
        except (OSError, subprocess.SubprocessError) as error:
            said = getattr(error, "stderr", None) or ""
            raise StreamCalibError(
                f"{' and '.join(packages)} of Debian {suite} cannot be had: {error} {said}"
            ) from error
        Path(scratch, "root").replace(folder)  # whole or not at all
    return folder


def _download(packages: Sequence[str], suite: str, scratch: Path) -> None:
    """apt with a configuration of its own: the machine's releases and lists stay as they are."""
    for name in ("lists/partial", "cache/archives/partial", "none"):
        (scratch / name).mkdir(parents=True)
    sources = scratch / "sources.list"
    sources.write_text(f"deb [signed-by={_KEYRING}] {_ARCHIVE} {suite} main\n")
    options = [
        f"Dir::Etc::SourceList={sources}",
        f"Dir::Etc::SourceParts={scratch}/none",
        f"Dir::State::Lists={scratch}/lists",
        f"Dir::Cache={scratch}/cache",
        # apt would give up its rights to a user who may not write here.
        "APT::Sandbox::User=root",
    ]
    apt = ["apt-get", "-qq", *(argument for option in options for argument in ("-o", option))]
    _run(*apt, "update", folder=scratch)
    _run(*apt, "download", *packages, folder=scratch)


def _run(*command: str, folder: Path | None = None) -> None:
    subprocess.run(command, cwd=folder, check=True, capture_output=True, text=True, timeout=_WITHIN_S)
