"""What a check found: one line a finding, with what to do about it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any, Literal, TypeAlias

from rich.box import SIMPLE_HEAD
from rich.table import Table
from rich.text import Text

Level: TypeAlias = Literal["ok", "warn", "fail"]
_STYLE: dict[Level, str] = {"ok": "green", "warn": "yellow", "fail": "bold red"}


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing that was looked at."""

    level: Level
    subject: str
    what: str
    todo: str = ""
    """What to do about it; empty where all is well."""

    def plain(self) -> dict[str, Any]:
        return asdict(self)


def failed(findings: Sequence[Finding]) -> bool:
    """Whether one of them keeps the deployment from working."""
    return any(finding.level == "fail" for finding in findings)


def finding_line(finding: Finding) -> Text:
    """The finding on one line, and what to do about it on the next."""
    line = Text(f"{finding.level:4} ", style=_STYLE[finding.level])
    line.append(f"{finding.subject}: {finding.what}", style="default")
    if finding.todo:
        line.append(f"\n     -> {finding.todo}", style="default")
    return line


def findings_table(findings: Sequence[Finding]) -> Table:
    """One row a finding, in their order."""
    table = Table(box=SIMPLE_HEAD, padding=(0, 1, 0, 0))
    table.add_column("", no_wrap=True, min_width=4)
    table.add_column("what", min_width=12)
    table.add_column("found")
    table.add_column("to do")
    for finding in findings:
        table.add_row(finding.level, finding.subject, finding.what, finding.todo, style=_STYLE[finding.level])
    return table
