"""The one tree of errors. Every message says what was wrong, where, and what to do about it."""

from __future__ import annotations

from collections.abc import Mapping


class StreamCalibError(Exception):
    """Base of everything that stream-calib raises on purpose."""


class ConfigurationError(StreamCalibError):
    """The configuration cannot be used: unknown key, bad value, or two values that contradict each other."""


# --- events -----------------------------------------------------------------------------------------------


class BlockFormatError(StreamCalibError):
    """Bytes on the internal topic are not a block of a known format."""


# --- transport --------------------------------------------------------------------------------------------


class TransportError(StreamCalibError):
    """The log could not do what was asked; retrying later may help."""


class UnknownTopicError(TransportError):
    """The log has no topic of that name."""


class FencedError(TransportError):
    """Another member owns the partition now; nothing of the batch was written, and the batch must be dropped."""


class AnotherProcessError(FencedError):
    """Another process has joined the group under this one's static identity; one of the two has to end."""


class PositionLostError(TransportError):
    """The log no longer holds the position asked for: records between it and the log's start are gone.

    `lost`: partition -> (position asked for, where what is left begins; equal where the log ends before the position).
    """

    def __init__(self, message: str, lost: Mapping[tuple[str, int], tuple[int, int]] | None = None) -> None:
        super().__init__(message)
        self.lost = dict(lost or {})


class TopicRecreatedError(TransportError):
    """The topic has another identity than the one that the stored positions belong to."""


# --- windows and coordination -----------------------------------------------------------------------------


class StateError(StreamCalibError):
    """The state store holds something that cannot be used."""


class StateUnavailableError(StateError):
    """The state store does not answer; retrying later may help."""


class PaneGoneError(StateError):
    """A shard has dropped a pane that is asked for again: the model key's state is older than its shards."""


class TooManyModelsError(StateError):
    """The deployment has as many model keys as it may have."""


class StateFormatError(StateError):
    """The stored state is of a format that this version does not read."""


class GenerationMismatchError(StateError):
    """The stored state was made under another semantic configuration."""


# --- snapshots --------------------------------------------------------------------------------------------


class SnapshotError(StreamCalibError):
    """A snapshot cannot be read, applied or published."""


class DamagedSnapshotError(SnapshotError):
    """The bytes of a snapshot do not match its content hash or its schema."""


class NoSnapshotError(SnapshotError):
    """The model key has no snapshot yet, and its raw score must not be served (serving.bootstrap = wait)."""


class PublicationRefusedError(SnapshotError):
    """The pointer, the token or the request moved on; this publication must not happen."""


class SnapshotPinnedError(PublicationRefusedError):
    """An operator pinned the current snapshot; nothing is published until it is unpinned."""


# --- calibration in the request path ----------------------------------------------------------------------


class RequestError(StreamCalibError, ValueError):
    """A request to calibrate that cannot be answered as it is: unknown model, columns of several lengths, no ids."""


# --- alerts -----------------------------------------------------------------------------------------------


class HookAddressError(StreamCalibError):
    """A hook's address leads to where nothing must be sent: a private address, another host."""


# --- fits -------------------------------------------------------------------------------------------------


class FitError(StreamCalibError, ValueError):
    """Data from which no calibrator can be fitted."""


class OneClassError(FitError):
    """Only one class is present."""


class TooFewRowsError(FitError):
    """Fewer rows than the configured minimum."""


class TooFewPositivesError(FitError):
    """Fewer positives (or negatives) than the configured minimum."""


class NonFiniteInputError(FitError):
    """NaN or infinite scores, labels or weights."""


class ScoreRangeError(FitError):
    """Scores outside [0, 1]."""


class LengthMismatchError(FitError):
    """Scores, labels and weights differ in length."""


class WeightError(FitError):
    """Weights that are negative, or all zero."""


# --- backtest ---------------------------------------------------------------------------------------------


class BacktestError(StreamCalibError):
    """A backtest cannot be made, or not of this."""


class HistoryError(BacktestError):
    """What was to be replayed cannot be read, or is no history of scores and labels."""


class HistoryGapError(HistoryError):
    """Parts of what was to be replayed are gone: retention took them, or a topic is compacted."""


class PolicyError(BacktestError, ValueError):
    """A policy cannot be tried on this history: unknown setting, bad value, or one that changes how events are
    counted."""
