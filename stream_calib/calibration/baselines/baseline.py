"""What the baselines share: their parameters and what they refuse."""

from __future__ import annotations

from abc import abstractmethod
from typing import TYPE_CHECKING

from stream_calib.calibration.calibrator import Calibrator
from stream_calib.calibration.fit_input import Counts
from stream_calib.calibration.maps.base_map import STRICT_SLOPE
from stream_calib.calibration.refusals import check_enough, check_p_min

if TYPE_CHECKING:
    from typing_extensions import Self


class Baseline(Calibrator):
    """A calibrator without parameters of its own.

    | parameter | meaning |
    |---|---|
    | `min_rows` | rows (of weight above 0; in `fit_cells` their number) below which `fit` raises TooFewRowsError |
    | `min_positives` | positives, and negatives, below which `fit` raises TooFewPositivesError |
    | `p_min` | outputs lie within [p_min, 1 - p_min] |
    | `strict` | the map increases strictly (see `base_map.STRICT_SLOPE` for the price); off: as its source has it |

    Scores nearer to 0 or 1 than the grid's outer edges (log-odds -10 and 10) count as those edges.
    """

    def __init__(self, *, min_rows: int = 2, min_positives: int = 1, p_min: float = 1e-6, strict: bool = False) -> None:
        self.min_rows = min_rows
        self.min_positives = min_positives
        self.p_min = p_min
        self.strict = strict

    def fit_counts(self, counts: Counts) -> Self:
        check_p_min(self.p_min)
        check_enough(counts, self.min_rows, self.min_positives)
        self._learn(counts)
        return self

    @abstractmethod
    def _learn(self, counts: Counts) -> None:
        """Sets the fitted attributes, from counts with both classes."""

    @property
    def _strict_slope(self) -> float:
        return STRICT_SLOPE if self.strict else 0.0
