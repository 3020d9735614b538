"""Many runs, one after the other; those that fail are shortened: `python -m tests.crash --runs 300 --seed 7`."""

from __future__ import annotations

import shutil
import tempfile
import traceback
from collections.abc import Callable
from pathlib import Path

from stream_calib.errors import StreamCalibError
from tests.crash.brokers import Brokers
from tests.crash.faults import Fault, Script
from tests.crash.oracle import SameDecisions, check
from tests.crash.run import Run
from tests.crash.table import Outcome

_RUNS_A_BROKER = 20
"""A small broker gets slow with what topics leave behind."""
_TRIES = 2
"""What fails may go well the next time: a fault falls at another moment."""


class Matrix:
    """Context manager; performs scripts, each over topics of its own."""

    def __init__(self, kept: Path, say: Callable[[str], None] = print) -> None:
        """`kept`: folder for what failing runs leave behind."""
        self._kept, self._say = kept, say
        self._same = SameDecisions()
        self._brokers: Brokers | None = None
        self._count = self._used = 0

    def __enter__(self) -> Matrix:
        return self

    def __exit__(self, *_: object) -> None:
        self._close()

    def perform(self, script: Script) -> Outcome:
        """One run and its check."""
        folder = Path(tempfile.mkdtemp(prefix=f"crash-{script.seed}-"))
        run = Run(script, folder, self._brokers_for(script))
        mismatch = ""
        try:
            found, deployed = run.perform()
            check(found, deployed.config, run.told)
            self._same.check(found)
        except (AssertionError, StreamCalibError) as error:
            where = traceback.extract_tb(error.__traceback__)[-1]
            mismatch = f"{type(error).__name__} at {where.name}, {where.line}: {error}"
            self._keep(script, mismatch, folder)
        finally:
            shutil.rmtree(folder, ignore_errors=True)
        servers = f"{script.client}, {script.brokers} broker{'s' * (script.brokers > 1)}, {script.redis} Redis"
        return Outcome(script.seed, servers, sorted({fault.name for fault in run.happened}), mismatch)

    def shortened(self, script: Script) -> Script:
        """With faults left out one by one, while it still fails; what fails only now and then may keep more of them."""
        faults = list(script.faults)
        for fault in script.faults:
            fewer = [other for other in faults if other is not fault]
            if self._fails(script, fewer):
                faults = fewer
        return script.with_faults(faults)

    def _fails(self, script: Script, faults: list[Fault]) -> bool:
        return any(self.perform(script.with_faults(faults)).mismatch for _ in range(_TRIES))

    def _keep(self, script: Script, mismatch: str, folder: Path) -> None:
        kept = self._kept / f"seed-{script.seed}-{len(script.faults)}"
        shutil.rmtree(kept, ignore_errors=True)
        shutil.copytree(folder, kept, ignore=shutil.ignore_patterns("unused", "s", "l"))
        (kept / "script.json").write_text(script.text(), encoding="utf-8")
        (kept / "mismatch.txt").write_text(mismatch, encoding="utf-8")
        self._say(f"  kept in {kept}")

    def _brokers_for(self, script: Script) -> Brokers:
        """New ones where the last have served long, or one was lost."""
        if self._brokers is None or self._count != script.brokers or script.brokers > 1 or self._used >= _RUNS_A_BROKER:
            self._close()
            self._brokers, self._count, self._used = Brokers(script.brokers), script.brokers, 0
            self._brokers.__enter__()
        self._used += 1
        return self._brokers

    def _close(self) -> None:
        brokers, self._brokers = self._brokers, None
        if brokers is not None:
            brokers.__exit__()
