"""Where the rows of several model keys are cut, so that blocks leave every row as late, or as early, as it came.

Rows of one key follow each other in a block, so those of the next key come behind all of them, and what a block says of
its partition's clock would make them late when the batch spans more event time than the lateness. (Batches do when
history is read, or when calibrate catches up.) Cut into runs that are written one after the other, each row is judged
by a clock that is late for it exactly where that of the rows before it was.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray


def run_starts(time_ms: NDArray[np.int64], moves_clock: NDArray[np.bool_], lateness_ms: int) -> list[int]:
    """Where runs begin, 0 first, in the rows (n,) of one partition in their order; n >= 1.

    `moves_clock` (n,): those not too far ahead of when they were taken. A row is late if it is older by more than
    `lateness_ms` than one before it that moves the clock. No run has a row that is not late and one that would make it
    late, nor a late row and the one that made it so.
    """
    moving = time_ms[moves_clock]
    if not len(moving) or int(moving.max()) - lateness_ms <= int(time_ms.min()):
        return [0]
    starts = [0]
    clock = clock_at_start = -1
    oldest: int | None = None
    for i, (time, moves) in enumerate(zip(time_ms.tolist(), moves_clock.tolist(), strict=True)):
        moved = max(clock, time) if moves else clock
        if time < clock - lateness_ms:
            if time >= clock_at_start - lateness_ms:
                starts.append(i)
                clock_at_start, oldest = clock, None
        elif oldest is not None and moved - lateness_ms > oldest:
            starts.append(i)
            clock_at_start, oldest = clock, time
        else:
            oldest = time if oldest is None else min(oldest, time)
        clock = moved
    return starts
