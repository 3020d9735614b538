"""Which process runs which policy next: those that have most in common are run by the same one, one after the other."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence

from stream_calib.backtest.policies.policy import Policy
from stream_calib.backtest.policies.shared_fits import CHEAP_FROM, fit_key, path_key

_MANY = 50
"""Policies that share nearly all take half a second each; what they share takes half a minute to be made once more."""


class WorkOrder:
    """Policies in an order in which neighbours share most, cut into one run for each process. One that has none left
    takes the end of the longest run, from where the neighbours have least in common; but not where it would have to
    make once more what the other one has made for them all."""

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
        self._begun: dict[int, int] = {}
        """What each process runs, or ran last."""

    def __bool__(self) -> bool:
        """Whether there are any left."""
        return bool(self._unowned) or any(self._runs.values())

    def next(self, process: int) -> int | None:
        """The place of what the process, known by a number, runs next; None: nothing that is worth its while."""
        if not self._runs.get(process):
            self._runs[process] = self._taken()
        run = self._runs[process]
        if not run:
            return None
        self._begun[process] = run.popleft()
        return self._begun[process]

    def _taken(self) -> deque[int]:
        """All at first, then the end of the longest run that is worth to be cut."""
        if self._unowned:
            taken, self._unowned = self._unowned, deque()
            return taken
        for process, run in sorted(self._runs.items(), key=lambda item: -len(item[1])):
            places = [self._begun[process], *run] if run else []
            cuts = [i for i in range(1, len(places)) if len(run) >= _MANY or self._common(places, i) < CHEAP_FROM]
            if cuts:
                # Where the fewest leading settings are the same on both sides, then nearest the middle.
                cut = min(cuts, key=lambda i: (self._common(places, i), abs(2 * i - len(places))))
                for _ in places[cut:]:
                    run.pop()
                return deque(places[cut:])
        return deque()

    def _common(self, places: Sequence[int], cut: int) -> int:
        """Leading settings that are the same before and behind the cut."""
        pairs = list(zip(self._settings[places[cut - 1]], self._settings[places[cut]], strict=True))
        return next((i for i, (a, b) in enumerate(pairs) if a != b), len(pairs))
