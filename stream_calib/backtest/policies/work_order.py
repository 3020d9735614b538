"""Which process runs which policy next: those that have most in common are run by the same one, one after the other."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence

from stream_calib.backtest.policies.policy import Policy
from stream_calib.backtest.policies.shared_fits import fit_key, path_key


class WorkOrder:
    """Policies in an order in which neighbours share most, cut into one run for each process. One that has none left
    takes the end of the longest run, from where the neighbours have least in common."""

    def __init__(self, policies: Sequence[Policy], left: Sequence[int]) -> None:
        """`left`: places in `policies` of those that are to be run."""
        configs = {place: policies[place].config for place in left}
        self._settings = {place: (fit_key(config), *path_key(config)) for place, config in configs.items()}
        # Values in the order in which they come up first, so that nothing is reordered without need.
        ranks: list[dict[str, int]] = [{} for _ in next(iter(self._settings.values()), ())]
        order = {
            place: tuple(rank.setdefault(value, len(rank)) for rank, value in zip(ranks, settings, strict=True))
            for place, settings in self._settings.items()
        }
        self._unowned = deque(sorted(left, key=order.__getitem__))
        self._runs: dict[int, deque[int]] = {}

    def __bool__(self) -> bool:
        """Whether there are any left."""
        return bool(self._unowned) or any(self._runs.values())

    def next(self, process: int) -> int | None:
        """The place of what the process, known by a number, runs next; None: nothing is left."""
        if not self._runs.get(process):
            self._runs[process] = self._taken()
        run = self._runs[process]
        return run.popleft() if run else None

    def _taken(self) -> deque[int]:
        """All at first, then the end of the longest run."""
        if self._unowned:
            taken, self._unowned = self._unowned, deque()
            return taken
        longest = max(self._runs.values(), key=len, default=deque[int]())
        cut = self._cut(list(longest))
        taken = deque(list(longest)[cut:])
        for _ in taken:
            longest.pop()
        return taken

    def _cut(self, run: Sequence[int]) -> int:
        """Before which one: where the fewest leading settings are the same on both sides, then nearest the middle."""
        cuts = range(1, len(run))
        return min(cuts, key=lambda i: (self._common(run[i - 1], run[i]), abs(2 * i - len(run))), default=0)

    def _common(self, one: int, other: int) -> int:
        """Leading settings that are the same."""
        pairs = list(zip(self._settings[one], self._settings[other], strict=True))
        return next((i for i, (a, b) in enumerate(pairs) if a != b), len(pairs))
