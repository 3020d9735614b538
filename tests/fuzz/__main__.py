"""Looks for inputs that break a reader, led by the coverage of its code: `make fuzz SECONDS=600`.

python -m tests.fuzz --seconds 600 [--target NAME]... [--corpus FOLDER]

Each target runs in a process of its own for its share of the time. What is found is kept in the corpus, cut down to the
least that reaches the same code; an input that breaks a target is written beside it and ends the run with code 1.
"""

from __future__ import annotations

import argparse
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

LONGEST_INPUT_BYTES = 4_096
SLOWEST_INPUT_S = 20
MEMORY_LIMIT_MB = 2_048


def one_target(name: str, options: list[str]) -> None:
    """Never returns: libFuzzer ends the process."""
    import atheris

    with atheris.instrument_imports(include=["stream_calib", "workers"]):
        from tests.fuzz.targets import TARGETS

    # The first word is what libFuzzer starts again when it merges.
    atheris.Setup(options, TARGETS[name].run)
    atheris.Fuzz()


def survives(name: str, seconds: int, corpus: Path) -> bool:
    """Whether nothing broke the target. The corpus then holds the least that reaches what has been reached."""
    from tests.fuzz.targets import TARGETS

    print(f"{name}: {seconds} s", flush=True)
    folder = corpus / name
    folder.mkdir(parents=True, exist_ok=True)
    for i, seed in enumerate(TARGETS[name].seeds):
        (folder / f"seed-{i}").write_bytes(seed)
    starter = corpus / f"{name}.sh"
    starter.write_text(f'#!/bin/sh\nexec {shlex.quote(sys.executable)} -m tests.fuzz --run {name} "$0" "$@"\n')
    starter.chmod(0o755)
    limits = [
        f"-max_len={LONGEST_INPUT_BYTES}",
        f"-timeout={SLOWEST_INPUT_S}",
        f"-rss_limit_mb={MEMORY_LIMIT_MB}",
        f"-artifact_prefix={corpus}/{name}-",
        "-verbosity=0",
        "-print_final_stats=1",
    ]
    fuzzing = [str(starter), *limits, f"-max_total_time={seconds}", str(folder)]
    if subprocess.run(fuzzing, check=False).returncode:
        return False
    least = corpus / f"{name}.least"
    least.mkdir()
    subprocess.run([str(starter), *limits, "-merge=1", str(least), str(folder)], check=True, capture_output=True)
    shutil.rmtree(folder)
    least.rename(folder)
    starter.unlink()
    print(f"{name}: {len(list(folder.iterdir()))} inputs are kept", flush=True)
    return True


def all_targets(seconds: int, names: list[str], corpus: Path) -> int:
    """The exit code."""
    from tests.fuzz.targets import TARGETS

    unknown = [name for name in names if name not in TARGETS]
    if unknown:
        print(f"no target {', '.join(unknown)}; there are: {', '.join(TARGETS)}", file=sys.stderr)
        return 2
    share = max(1, seconds // len(names or TARGETS))
    broken = [name for name in names or TARGETS if not survives(name, share, corpus.resolve())]
    if broken:
        print(f"broken: {', '.join(broken)}; the inputs are in {corpus}", file=sys.stderr)
    return int(bool(broken))


def main() -> int:
    if sys.argv[1:2] == ["--run"]:
        one_target(sys.argv[2], sys.argv[3:])
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz", description=__doc__)
    parser.add_argument("--seconds", type=int, default=300, help="of all targets together")
    parser.add_argument("--target", action="append", default=[], help="only these")
    parser.add_argument("--corpus", type=Path, default=Path("fuzz-corpus"), help="folder of what has been found so far")
    given = parser.parse_args()
    return all_targets(given.seconds, given.target, given.corpus)


if __name__ == "__main__":
    sys.exit(main())
