"""The folder of outcomes: each is written as it is made, so that a backtest goes on where it was stopped."""

from __future__ import annotations

import os
from pathlib import Path

import msgspec

import stream_calib
from stream_calib.backtest.outcome import PolicyOutcome, decode_outcome
from stream_calib.backtest.policies.policy import Policy
from stream_calib.snapshot.canonical import canonical_json, sha256_hex

_FORMAT = 1
"""Of what an outcome holds and how it is made; raised where either changes."""


def _code_sha256() -> str:
    """Of the library's version and source files: the version alone stays the same while they are worked on."""
    package = Path(stream_calib.__file__).parent
    files = {str(path.relative_to(package)): sha256_hex(path.read_bytes()) for path in package.rglob("*.py")}
    return sha256_hex(canonical_json([stream_calib.__version__, files]))


class OutcomeFolder:
    """Outcomes of policies over one history. Any number of processes may use the folder at once: a file is whole, or is
    not there."""

    def __init__(self, folder: Path, history_sha256: str, warm_up_days: int) -> None:
        """Makes the folder where it is not there. Raises OSError."""
        # Once, by whoever makes it: files that are edited meanwhile change no name.
        self._code_sha256 = _code_sha256()
        self._folder, self._history_sha256, self._warm_up_days = folder, history_sha256, warm_up_days
        folder.mkdir(parents=True, exist_ok=True)

    def path(self, policy: Policy) -> Path:
        """Named by all that the outcome depends on."""
        content = [
            _FORMAT,
            self._code_sha256,
            self._history_sha256,
            self._warm_up_days,
            policy.label_delay_panes,
            policy.name,
            dict(policy.overrides),
            policy.config.model_dump_json(),
        ]
        return self._folder / f"{sha256_hex(canonical_json(content))[:32]}.json"

    def read(self, policy: Policy) -> PolicyOutcome | None:
        """None where the policy was not run yet, or its file is damaged: it is run again then."""
        try:
            return decode_outcome(self.path(policy).read_bytes())
        except (FileNotFoundError, msgspec.MsgspecError):
            return None

    def write(self, policy: Policy, outcome: PolicyOutcome) -> None:
        """Raises OSError."""
        path = self.path(policy)
        beside = path.with_suffix(f".{os.getpid()}.part")
        beside.write_bytes(outcome.encode())
        beside.replace(path)
