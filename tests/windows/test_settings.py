"""What a deployment chooses: how a missing label is read, and which topics the state belongs to."""

from __future__ import annotations

from dataclasses import replace

import pytest

from stream_calib.errors import TopicRecreatedError
from stream_calib.windows.memory_shards import MemoryShards
from stream_calib.windows.memory_state import MemoryState
from stream_calib.windows.registration import claim_topics
from tests.windows.join import SETTINGS, Join, L, S, block, label


@pytest.mark.parametrize(("negative", "sums"), [(False, (2, 1, 2)), (True, (3, 1, 1))])
def test_a_missing_label_is_negative_only_where_that_is_chosen_and_a_withdrawn_one_never(
    negative: bool, sums: tuple[int, int, int]
) -> None:
    join = Join(MemoryShards(2, replace(SETTINGS, negative_at_horizon=negative)))
    join.write(S, block(("positive", 1), ("negative", 1), ("never", 1), ("withdrawn", 1)))
    join.write(L, label("positive", 2, 1), label("negative", 2, 0), label("withdrawn", 2, None))
    join.move_clocks(60)
    assert join.sums(0) == sums


def test_state_is_bound_to_the_topics_that_it_counts() -> None:
    state = MemoryState()
    claim_topics(state, {"labels": "id-1", "blocks": "id-2"})
    claim_topics(state, {"blocks": "id-2", "labels": "id-1"})
    with pytest.raises(TopicRecreatedError, match="blocks=id-3"):
        claim_topics(state, {"labels": "id-1", "blocks": "id-3"})
