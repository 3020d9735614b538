"""kafka-python's consumer, whose joins of the group survive polls that are shorter than they take, and whose paused
partitions flow again.

kafka-python joins in a task of its own, which a poll awaits for as long as the poll may take. A join that ends between
two polls is lost: the next poll starts another one, which sends the whole group into a rebalance again, or, where new
partitions were the reason, none, and the member stays without partitions for good. Here what a join has brought is kept
until a poll has taken it up. tests/transport/test_kafka_group.py shows both on a real broker.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any

from kafka import KafkaConsumer
from kafka.errors import FencedInstanceIdError
from kafka.structs import MemberState

_AWAITED_FOR_MS = 20.0
"""A poll awaits a join for at least so long."""


class JoiningConsumer(KafkaConsumer):  # type: ignore[misc]  # kafka-python has no types
    """Reads topics as a member of a group."""

    def __init__(self, topics: Collection[str], **settings: Any) -> None:
        super().__init__(**settings)
        self._joined: tuple[Any, Any] | None = None
        """The generation that was joined and the assignment in it, until a poll has taken them up."""
        self._fenced: FencedInstanceIdError | None = None
        coordinator = self._coordinator
        heartbeat = coordinator._send_heartbeat_request
        join, take_up = coordinator._do_join_and_sync_async, coordinator._on_join_complete_async
        wants_to_join = coordinator.need_rejoin

        async def join_and_keep() -> Any:
            if self._joined is None or self._joined[0] is not coordinator._generation:
                assignment = await join()
                self._joined = coordinator._generation, assignment
            return self._joined[1]

        async def take_up_what_was_kept(*what: Any) -> Any:
            self._joined = None
            return await take_up(*what)

        async def noted_heartbeat() -> Any:
            try:
                return await heartbeat()
            except FencedInstanceIdError as error:
                self._fenced = error
                raise

        coordinator._send_heartbeat_request = noted_heartbeat
        coordinator._do_join_and_sync_async = join_and_keep
        coordinator._on_join_complete_async = take_up_what_was_kept
        coordinator.need_rejoin = lambda: wants_to_join() or coordinator._join_task is not None
        self.subscribe(list(topics))

    @property
    def is_joined(self) -> bool:
        """Whether this member has its share of the partitions, and no rebalance is known to be under way."""
        return self.group_metadata().state is MemberState.STABLE and not self._coordinator.need_rejoin()

    def fetched(self, wait_ms: float, max_records: int) -> dict[Any, Sequence[Any]]:
        """`poll`; a member that is joining waits for it a little whatever `wait_ms` says.

        Raises FencedInstanceIdError once another process has joined under the same static identity: kafka-python then
        only stops its heartbeats, and reads on without a wait between its polls.
        """
        if self._fenced is not None:
            raise self._fenced
        self._take_up_what_was_paused()
        timeout_ms = max(0.0, wait_ms) if self.is_joined else max(_AWAITED_FOR_MS, wait_ms)
        found: dict[Any, Sequence[Any]] = self.poll(timeout_ms=timeout_ms, max_records=max_records)
        return found

    def _take_up_what_was_paused(self) -> None:
        """kafka-python sets what it has parsed of a partition aside while that is paused, and takes it up again only
        when no other partition's is in line. One that is used up stays in line there (3.0.12): what is set aside would
        never be given, and never fetched again."""
        in_line = self._fetcher._next_partition_records
        if in_line is not None and not in_line:
            self._fetcher._next_partition_records = None
