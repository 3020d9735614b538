"""Making inputs known to every shard before they are read: those that a model key starts with, those that are added
while it runs, and all of them for a shard that was wiped.

The list `inputs` of the model key's state has every input with its first mark; the field of that name is its length,
and the closer's commits expect it. So an input is added between two commits of the closer, never in the middle of one.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import msgspec

from stream_calib.config_identity import PACKED_INTO_BLOCKS, canonical_content, content_hash, difference
from stream_calib.errors import GenerationMismatchError, StateError, StateFormatError, TopicRecreatedError
from stream_calib.events.contracts import ModelKey
from stream_calib.windows.pane_record import PaneNames, decode_record
from stream_calib.windows.panes import PaneSettings
from stream_calib.windows.shard_store import Inputs, Mark, Progress, ShardStore
from stream_calib.windows.state_store import Commit, StateStore

INPUTS = "inputs"
SEMANTICS = "semantics"
FORMAT = "format"
STATE_FORMAT = 1
"""Number of the layout of state and shards: keys, rows, join entries, packed cells, records. Another number is refused;
what one version changes so that the one before could not read it gets the next."""
_ATTEMPTS = 20


def claim_generation(state: StateStore, content: Mapping[str, Any]) -> None:
    """Binds the model key's state to the semantic content of the configuration (config_identity.py), which is kept with
    it. Raises GenerationMismatchError under another one."""
    text = canonical_content(content)
    check_format(_claim(state, FORMAT, str(STATE_FORMAT)))
    found = _claim(state, "generation", content_hash(content), {SEMANTICS: text})
    stored = state.read((SEMANTICS,))[SEMANTICS]
    check_generation(stored, found, content)
    if stored is None:  # made before the content was kept
        state.commit(Commit(expect={"generation": found, SEMANTICS: None}, fields={SEMANTICS: text}))


def check_format(stored: str | None) -> None:
    """Raises StateFormatError where the state has another format than this version reads and writes. `stored`: the
    field of that name, None in state of the first one."""
    if stored is not None and stored != str(STATE_FORMAT):
        raise StateFormatError(
            f"the state is of format {stored}, this version reads and writes format {STATE_FORMAT}: use the version"
            " that wrote it, or make the state anew with this one (docs/operations.md, Upgrades)"
        )


def check_generation(stored: str | None, stored_hash: str | None, content: Mapping[str, Any]) -> None:
    """Raises GenerationMismatchError where the state is of another semantic content than this one. `stored`: the field
    of that name, None in state from before there was one; `stored_hash`: None where there is no state yet."""
    if stored_hash is None or stored_hash == (wanted := content_hash(content)):
        return
    what = f"semantic configuration {stored_hash}, this one is {wanted}"
    if stored is not None:
        what += f" ({'; '.join(difference(stored_content(stored), content))})"
    raise GenerationMismatchError(
        f"the state was made under the {what}: put the old values back, or see what the change needs with"
        " `stream-calib config plan`; `stream-calib state rebuild` makes a state under the new ones beside it"
    )


def check_blocks(key: ModelKey, state: StateStore, content: Mapping[str, Any]) -> None:
    """For those that write `blocks`: raises GenerationMismatchError where they would not fit to those that the state is
    made of. Whatever else differs is no reason not to serve."""
    stored = state.read((SEMANTICS,))[SEMANTICS]
    made_of = {} if stored is None else stored_content(stored)
    names = PACKED_INTO_BLOCKS if made_of else ()
    before, after = ({n: found[n] for n in names if n in found} for found in (made_of, content))
    if before != after:
        raise GenerationMismatchError(
            f"the state of {key} is made of blocks with other settings ({'; '.join(difference(before, after))}): put"
            " the old values back, or give the model another version"
        )


def stored_content(stored: str) -> dict[str, Any]:
    """The semantic content that state was made under. Raises StateError where it cannot be read."""
    try:
        return msgspec.json.decode(stored, type=dict[str, Any])
    except msgspec.MsgspecError as error:
        raise StateError(f"the field `{SEMANTICS}` cannot be read ({error}); put a backup of the state back") from error


def claim_fusion(state: StateStore, definition: str) -> None:
    """Binds the state of a fused model key to what it is made of. Raises GenerationMismatchError where that changed."""
    found = _claim(state, "fusion", definition)
    if found != definition:
        raise GenerationMismatchError(
            f"the stored state counts scores that were fused as {found}, this configuration fuses {definition}; put the"
            " old members, versions and weights back, or give fusion.version another value to start afresh"
        )


def claim_topics(state: StateStore, topic_ids: Mapping[str, str]) -> None:
    """Binds the state to the identities of the topics that it counts (topic -> id). One may be added later.

    Raises TopicRecreatedError where a topic of that name has another identity: the stored positions are not its own.
    """
    wanted = " ".join(f"{topic}={topic_ids[topic]}" for topic in sorted(topic_ids))
    found = _claim(state, "topics", wanted)
    if found != wanted and set(found.split()) < set(wanted.split()):
        state.commit(Commit(expect={"topics": found}, fields={"topics": wanted}))
        found = state.read(("topics",))["topics"] or ""
    if found != wanted:
        raise TopicRecreatedError(
            f"the stored positions belong to the topics {found}, the log has {wanted}: a topic was deleted and created"
            " again, or renamed; bring the old one back, or give the model another version to start afresh"
        )


def _claim(state: StateStore, name: str, value: str, beside: Mapping[str, str] | None = None) -> str:
    """Sets the field where it is absent, with others beside it; the value that it has then."""
    for _ in range(2):
        found = state.read((name,))[name]
        if found is not None:
            return found
        state.commit(Commit(expect={name: None}, fields={name: value, **(beside or {})}))
    raise StateError(f"the field `{name}` can be neither read nor written; is the store being wiped?")


def register_inputs(shards: ShardStore, state: StateStore, starts: Mapping[str, Mark]) -> Inputs:
    """Gives every shard a mark for every input. All registered inputs, also those that others know of.

    `starts`: input key -> its first mark, for a new model key. An input that is added to a running one starts at that
    position, with a clock of its own: the score watermark plus the lateness, so that what it brings belongs to no pane
    that is closed and joins no label that was let go (labels: end of the last matured pane + horizon + lateness).

    A shard that knows no input although panes have matured was wiped: it starts where the clocks first reached the
    oldest pane that is still needed, and answers older ones as gone.
    """
    recorded = _recorded(shards, state, starts)
    inputs = inputs_of(recorded)
    fields = state.read(("first_pane", "matured"))
    if fields["first_pane"] is not None:
        first = int(fields["matured"] or 0) - shards.settings.rebuilt_panes + 1
        if first > int(fields["first_pane"]):
            for shard, found in enumerate(shards.progress()):
                if not found.marks:
                    shards.restart_wiped(shard, _entry_marks(state, first, recorded), first - 1, inputs)
    shards.register(recorded, inputs)
    return inputs


def recorded_inputs(state: StateStore, count: int) -> dict[str, Mark]:
    """The first `count` inputs on record -> their first marks. Raises StateError where one cannot be read."""
    found = {}
    for raw in state.entries(INPUTS, 0, count):
        try:
            input_key, position, clock_ms = msgspec.json.decode(raw, type=tuple[str, int, int | None])
        except msgspec.DecodeError as error:
            raise StateError(
                f"an entry of the list `{INPUTS}` cannot be read ({error}); the model key's state is damaged: put a"
                " backup back"
            ) from error
        found[input_key] = Mark(position, clock_ms, clock_ms)
    return found


def inputs_of(keys: Iterable[str]) -> Inputs:
    """The input keys by side."""
    ordered = sorted(keys)
    return Inputs(tuple(i for i in ordered if i.startswith("s:")), tuple(i for i in ordered if i.startswith("l:")))


def _recorded(shards: ShardStore, state: StateStore, starts: Mapping[str, Mark]) -> dict[str, Mark]:
    """All inputs on record, those of `starts` among them."""
    for _ in range(_ATTEMPTS):
        fields = state.read((INPUTS, "first_pane", "closed", "matured"))
        recorded = recorded_inputs(state, int(fields[INPUTS] or 0))
        missing = {input_key: starts[input_key] for input_key in sorted(starts) if input_key not in recorded}
        if not missing:
            return recorded
        if recorded:
            # From here on no shard takes a watermark in which the new inputs are not, so it cannot rise.
            shards.register({}, inputs_of([*recorded, *missing]))
            progress = shards.progress()
            missing = {
                i: _added(i, mark.next, progress, inputs_of(recorded), fields, shards.settings)
                for i, mark in missing.items()
            }
        entries = [msgspec.json.encode((i, mark.next, mark.clock_ms)) for i, mark in missing.items()]
        count = len(recorded) + len(missing)
        state.commit(Commit(fields, {INPUTS: str(count)}, {INPUTS: entries}))
    raise StateError(f"the inputs could not be registered in {_ATTEMPTS} attempts; is the store being wiped?")


def _added(
    input_key: str,
    position: int,
    progress: Sequence[Progress],
    recorded: Inputs,
    fields: Mapping[str, str | None],
    settings: PaneSettings,
) -> Mark:
    """The first mark of an input that was not there when the model key started."""
    known = [p.marks[input_key].first_clock_ms for p in progress if input_key in p.marks]
    if clocks := [clock for clock in known if clock is not None]:
        return Mark(position, min(clocks))  # it was on record before; the record was lost
    begun = fields["first_pane"] is not None
    if input_key.startswith("l:"):
        ends = settings.end_ms(int(fields["matured"] or 0)) + settings.horizon_ms + settings.label_lateness_ms
        return Mark(position, ends if begun else None)
    if begun:
        clocks.append(settings.end_ms(int(fields["closed"] or 0)) + settings.score_lateness_ms)
    for shard in progress:
        at = [shard.marks[i].clock_ms for i in recorded.scores if i in shard.marks]
        lowest = [clock for clock in at if clock is not None]
        if lowest and len(lowest) == len(recorded.scores):
            clocks.append(min(lowest))
    return Mark(position, max(clocks, default=None))


def _entry_marks(state: StateStore, pane: int, recorded: Mapping[str, Mark]) -> dict[str, Mark]:
    (blob,) = state.blobs([PaneNames.of(pane).record])
    if blob is None:
        raise StateError(
            f"pane {pane} has no record, so a wiped shard cannot be rebuilt; rebuild the model key's state"
        )
    entries = decode_record(blob).entries
    return {
        input_key: Mark(entries[input_key].position, entries[input_key].clock_ms) if input_key in entries else mark
        for input_key, mark in recorded.items()
    }
