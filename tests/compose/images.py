"""The images that docker-compose.yml names, or stand-ins for them where no registry can be reached.

Stand-ins have names of their own, so that none ever takes the place of a real image in somebody's engine.
"""

from __future__ import annotations

import shutil
import subprocess
import tempfile
from collections.abc import Mapping
from pathlib import Path

from stream_calib.errors import StreamCalibError
from tests.compose.engine import Engine
from tests.kafka_jars import kafka_jars

STANDINS = Path(__file__).with_name("standins")
_ROOT_WITHIN_S = 600
_RELEASE = "bookworm"  # its Python is 3.11, as in the image that stands there for real
_BASE = f"stream-calib-standin/debian:{_RELEASE}"
_CERTIFICATES = Path("/etc/ssl/certs/ca-certificates.crt")
_VARIABLES = {
    "python": "PYTHON_IMAGE",
    "kafka": "KAFKA_IMAGE",
    "redis": "REDIS_IMAGE",
    "prometheus": "PROMETHEUS_IMAGE",
}


def image_variables(engine: Engine, official: Mapping[str, str]) -> dict[str, str]:
    """Variables for docker-compose.yml, none where the official images (variable -> image) can be pulled."""
    if not engine.is_own:
        try:
            for image in official.values():
                engine.run("pull", "--quiet", image)
            return {}
        except StreamCalibError as error:
            print(f"stand-ins are used, since an image cannot be pulled: {error}")
    _make_base(engine)
    with tempfile.TemporaryDirectory() as context:
        shutil.copytree(STANDINS, context, dirs_exist_ok=True)
        (Path(context) / "jars").mkdir()
        for jar in kafka_jars():
            shutil.copy(jar, Path(context) / "jars")
        variables = {}
        for name, variable in _VARIABLES.items():
            variables[variable] = f"stream-calib-standin/{name}"
            engine.run(
                "build",
                "--build-arg",
                f"BASE={_BASE}",
                "--target",
                name,
                "--tag",
                variables[variable],
                context,
                within_s=600,
            )
        return variables


def _make_base(engine: Engine) -> None:
    """A minimal Debian, with the certificates that this machine trusts."""
    if engine.run("images", "--quiet", _BASE).strip():
        return
    with tempfile.TemporaryDirectory() as scratch:
        root = Path(scratch, "root")
        command = ("debootstrap", "--variant=minbase", "--include=ca-certificates", _RELEASE, str(root))
        done = subprocess.run(command, capture_output=True, text=True, timeout=_ROOT_WITHIN_S)
        if done.returncode:
            raise StreamCalibError(
                f"{' '.join(command)}: exit code {done.returncode}\n{done.stdout[-4000:]}{done.stderr}"
            )
        shutil.copy(_CERTIFICATES, root / str(_CERTIFICATES).lstrip("/"))
        archive = Path(scratch, "root.tar")
        subprocess.run(("tar", "-C", str(root), "--exclude=./var/cache/apt", "-cf", str(archive), "."), check=True)
        engine.run("import", str(archive), _BASE)
