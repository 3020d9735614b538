"""Who may import whom, as CONTRIBUTING.md says."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[2]
PACKAGE = ROOT / "stream_calib"


def imported(folder: Path) -> Iterator[tuple[str, str]]:
    """(module file, name of what it imports) of every import under the folder."""
    for path in sorted(folder.rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Import):
                yield from ((str(path.relative_to(ROOT)), alias.name) for alias in node.names)
            elif isinstance(node, ast.ImportFrom):
                yield str(path.relative_to(ROOT)), node.module or ""


def strays(folder: str, allowed: tuple[str, ...]) -> list[tuple[str, str]]:
    """Imports of ours, and of servers, under the folder that are not allowed."""
    watched = ("stream_calib", "workers", "redis", "kafka")
    return [
        (module, name)
        for module, name in imported(PACKAGE / folder)
        if name.split(".")[0] in watched and not name.startswith(allowed)
    ]


def test_the_library_does_not_know_the_workers() -> None:
    found = list(imported(PACKAGE))
    assert len(found) > 500
    assert [(module, name) for module, name in found if name.split(".")[0] == "workers"] == []


def test_numerics_see_no_server_and_only_errors() -> None:
    assert strays("calibration", ("stream_calib.calibration", "stream_calib.errors")) == []
    assert strays("drift", ("stream_calib.drift", "stream_calib.calibration", "stream_calib.errors")) == []


def test_redis_is_imported_where_the_name_says_so() -> None:
    modules = {module for module, name in imported(PACKAGE) if name.split(".")[0] == "redis"}
    assert "stream_calib/redis_connection.py" in modules
    named = ("stream_calib/redis_", "stream_calib/transport/embedded", "stream_calib/windows/redis_")
    assert [module for module in sorted(modules) if not module.startswith(named)] == []
