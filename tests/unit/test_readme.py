"""What the README shows works as it stands there."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

from typer.testing import CliRunner

from stream_calib.config_file import load_config
from stream_calib.snapshot.served_models import Serving
from stream_calib.transport.embedded import EmbeddedLog
from stream_calib.transport.port import TopicPartition
from workers.calibrate_transform import Transform
from workers.cli import app
from workers.topic_setup import create_topics

ROOT = Path(__file__).parents[2]
README = (ROOT / "README.md").read_text(encoding="utf-8")
ADDRESS = "redis://127.0.0.1:6379/0"


def blocks(language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```", README, re.DOTALL | re.MULTILINE)


def run(script: str) -> str:
    return subprocess.run([sys.executable, "-c", script], check=True, capture_output=True, text=True).stdout


def test_the_library_is_used_without_any_service() -> None:
    (script,) = [block for block in blocks("python") if "GIRB" in block]
    low, middle, high = map(float, run(script).strip(" []\n").split())
    assert low < middle < high
    assert abs(middle - 0.25) < 0.03


def test_the_score_sent_is_served_as_shown(tmp_path: Path, redis_url: str) -> None:
    (toml,) = blocks("toml")
    path = tmp_path / "stream-calib.toml"
    path.write_text(toml, encoding="utf-8")
    config = load_config(path, {"STREAM_CALIB_LOG_URL": redis_url, "STREAM_CALIB_REDIS_URL": redis_url})
    send, read = (b.replace(ADDRESS, redis_url) for b in blocks("python") if ADDRESS in b)
    with EmbeddedLog(redis_url) as log:
        create_topics(log, config)
        run(send)
        records = [r for p in range(4) for r in log.read(TopicPartition("scores", p), 0, 10)]
        transform = Transform(config)
        decoded, batch = transform.decode(records)
        served = transform.calibrate(batch, lambda key: Serving(None, "identity"))
        outputs = transform.encode(records, decoded, served)
        log.produce(outputs)
        printed = run(read)

    assert decoded.rejects == []
    assert decoded.scores is not None
    assert decoded.scores.signatures == [("EU", "phone")]
    assert [printed] == blocks("json")


def test_every_command_shown_exists() -> None:
    shown = re.findall(r"^stream-calib ([a-z]+(?: [a-z]+)?)", "\n".join(blocks("bash")), re.MULTILINE)
    table = "\n".join(line.split("|")[1] for line in README.splitlines() if line.startswith("| `"))
    shown += re.findall(r"`([a-z]+(?: [a-z]+)?)", table)
    assert len(shown) >= 17
    for command in dict.fromkeys(shown):
        result = CliRunner().invoke(app, [*command.split(), "--help"])
        assert (result.exit_code, command in result.output) == (0, True)


def test_what_it_refers_to_is_there() -> None:
    pages = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").glob("*.md"))]
    targets = [
        (page, target)
        for page in pages
        for target in re.findall(r"\]\(([^)#]+)(?:#[^)]*)?\)", page.read_text(encoding="utf-8"))
        if not target.startswith("http")
    ]
    assert len(targets) > 10
    assert [(page.name, target) for page, target in targets if not (page.parent / target).exists()] == []
