"""What the runs have shown: fault x runs x mismatches."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from pathlib import Path

from stream_calib.fault_points import CALLS


@dataclass(frozen=True, slots=True)
class Outcome:
    """Of one run."""

    seed: int
    servers: str
    """Such as "kafka x1, single redis"."""
    happened: list[str]
    """Names of the faults."""
    mismatch: str
    """Empty where all was as it must be."""

    def write(self, file: Path) -> None:
        with file.open("a", encoding="utf-8") as stream:
            stream.write(json.dumps(asdict(self)) + "\n")


def read(files: Iterable[Path]) -> list[Outcome]:
    """Of all files, one outcome a line."""
    return [Outcome(**json.loads(line)) for file in files for line in file.read_text(encoding="utf-8").splitlines()]


def table(outcomes: Iterable[Outcome]) -> str:
    """Markdown: in how many runs each fault happened, and in how many of these something did not match."""
    runs, wrong, servers = Counter[str](), Counter[str](), Counter[str]()
    wrong_on = Counter[str]()
    for outcome in outcomes:
        servers[outcome.servers] += 1
        wrong_on[outcome.servers] += bool(outcome.mismatch)
        for name in set(outcome.happened):
            runs[name] += 1
            wrong[name] += bool(outcome.mismatch)
    lines = ["| servers | runs | mismatches |", "|---|---|---|"]
    lines += [f"| {name} | {count} | {wrong_on[name]} |" for name, count in sorted(servers.items())]
    lines += ["", "| stops at | before the call | after it | mismatches |", "|---|---|---|---|"]
    for call in CALLS:
        places = (f"{call}.before", f"{call}.after")
        if any(runs[place] for place in places):
            counts = " | ".join(str(runs[place]) for place in places)
            lines.append(f"| `{call}` | {counts} | {sum(wrong[place] for place in places)} |")
    lines += ["", "| fault | runs | mismatches |", "|---|---|---|"]
    others = sorted(name for name in runs if name.rpartition(".")[0] not in CALLS)
    lines += [f"| {name.replace('_', ' ')} | {runs[name]} | {wrong[name]} |" for name in others]
    return "\n".join(lines)
