"""Making inputs known to every shard before they are read, and starting a wiped shard where its panes can still be
had."""

from __future__ import annotations

from collections.abc import Mapping

from stream_calib.errors import GenerationMismatchError, StateError, TopicRecreatedError
from stream_calib.windows.pane_record import PaneNames, decode_record
from stream_calib.windows.shard_store import Inputs, Mark, ShardStore
from stream_calib.windows.state_store import Commit, StateStore


def claim_generation(state: StateStore, generation: str) -> None:
    """Binds the model key's state to the semantic configuration. Raises GenerationMismatchError under another one."""
    found = _claim(state, "generation", generation)
    if found != generation:
        raise GenerationMismatchError(
            f"the stored state was made under the semantic configuration {found}, this one is {generation}:"
            " horizon, pane, latenesses, shards, attributes, unit, missing_label or time_granularity"
            " differ; put the old values back, or give the model another version to start afresh"
        )


def claim_topics(state: StateStore, topic_ids: Mapping[str, str]) -> None:
    """Binds the state to the identities of the topics that it counts (topic -> id).

    Raises TopicRecreatedError where a topic of that name has another identity: the stored positions are not its own.
    """
    wanted = " ".join(f"{topic}={topic_ids[topic]}" for topic in sorted(topic_ids))
    found = _claim(state, "topics", wanted)
    if found != wanted:
        raise TopicRecreatedError(
            f"the stored positions belong to the topics {found}, the log has {wanted}: a topic was deleted and created"
            " again, or renamed; bring the old one back, or give the model another version to start afresh"
        )


def _claim(state: StateStore, name: str, value: str) -> str:
    """Sets the field where it is absent; the value that it has then."""
    for _ in range(2):
        found = state.read((name,))[name]
        if found is not None:
            return found
        state.commit(Commit(expect={name: None}, fields={name: value}))
    raise StateError(f"the field `{name}` can be neither read nor written; is the store being wiped?")


def register_inputs(shards: ShardStore, state: StateStore, starts: Mapping[str, int]) -> None:
    """Gives every shard a mark for every input: from `starts` (input key -> position) for a new model key.

    A shard that knows no input although panes have matured was wiped: it starts where the clocks first reached the
    oldest pane that is still needed, and answers older ones as gone.
    """
    fields = state.read(("first_pane", "matured"))
    progress = shards.progress()
    if fields["first_pane"] is not None:
        first = int(fields["matured"] or 0) - shards.settings.keep_panes + 1 - shards.settings.back_panes
        if first > int(fields["first_pane"]):
            for shard, found in enumerate(progress):
                if not found.marks:
                    shards.restart_wiped(shard, _entry_marks(state, first, starts), first - 1)
    shards.register({input_key: Mark(position, None) for input_key, position in starts.items()})


def _entry_marks(state: StateStore, pane: int, starts: Mapping[str, int]) -> dict[str, Mark]:
    (blob,) = state.blobs([PaneNames.of(pane).record])
    if blob is None:
        raise StateError(
            f"pane {pane} has no record, so a wiped shard cannot be rebuilt; rebuild the model key's state"
        )
    entries = decode_record(blob).entries
    return {
        input_key: Mark(entries[input_key].position, entries[input_key].clock_ms)
        if input_key in entries
        else Mark(position, None)
        for input_key, position in starts.items()
    }


def inputs_of(starts: Mapping[str, int]) -> Inputs:
    """The registered inputs by side."""
    return Inputs(
        tuple(sorted(i for i in starts if i.startswith("s:"))), tuple(sorted(i for i in starts if i.startswith("l:")))
    )
