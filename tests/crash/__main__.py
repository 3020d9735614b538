"""The crash matrix from the command line (`make crash`)."""

from __future__ import annotations

import argparse
import random
import sys
import time
from pathlib import Path

from tests.crash.faults import Script, random_script
from tests.crash.matrix import Matrix
from tests.crash.table import Outcome, read, table


def main() -> int:
    asked = _arguments()
    if asked.table:
        print(table(read(asked.table)))
        return 0
    asked.kept.mkdir(parents=True, exist_ok=True)
    first = asked.seed if asked.seed is not None else random.SystemRandom().randrange(1_000_000)
    if asked.script:
        scripts = [Script.read(asked.script)]
    else:
        print(f"{asked.runs} runs from seed {first}", flush=True)
        scripts = [random_script(first + n, asked.redis, asked.brokers, asked.client) for n in range(asked.runs)]
    outcomes: list[Outcome] = []
    with Matrix(asked.kept, _say) as matrix:
        for n, script in enumerate(scripts):
            began_s = time.monotonic()
            outcome = matrix.perform(script)
            outcomes.append(outcome)
            outcome.write(asked.kept / "outcomes.jsonl")
            took = f"{time.monotonic() - began_s:.0f} s"
            _say(f"{n + 1}/{len(scripts)} seed {script.seed}, {took}: {', '.join(outcome.happened)}")
            if outcome.mismatch:
                _say(f"  MISMATCH: {outcome.mismatch.splitlines()[0]}")
                if not asked.script and asked.shorten:
                    short = matrix.shortened(script)
                    file = asked.kept / f"seed-{script.seed}.json"
                    file.write_text(short.text(), encoding="utf-8")
                    _say(f"  fails with (again: make crash SCRIPT={file}):\n{short.text()}")
    print(table(outcomes))
    return int(any(outcome.mismatch for outcome in outcomes))


def _say(text: str) -> None:
    print(text, flush=True)


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.crash", description=__doc__)
    parser.add_argument("--runs", type=int, default=20)
    parser.add_argument("--seed", type=int, help="of the first run; the next ones follow it")
    parser.add_argument("--redis", choices=("single", "replica", "cluster"), default="single")
    parser.add_argument("--brokers", type=int, choices=(1, 3), default=1, help="of three one is lost for good")
    parser.add_argument("--client", choices=("kafka", "librdkafka"), default="kafka")
    parser.add_argument("--script", type=Path, help="a script that was kept, instead of random ones")
    parser.add_argument("--kept", type=Path, default=Path(".crash"), help="folder for outcomes and failing runs")
    parser.add_argument("--no-shorten", dest="shorten", action="store_false", help="leave failing scripts as they are")
    parser.add_argument("--table", type=Path, nargs="+", help="only print the table of these outcomes.jsonl")
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
