"""A deployment that changes its client of Kafka goes on where it was: `log.kind` may be changed process by process."""

from __future__ import annotations

from contextlib import ExitStack

import pytest

from stream_calib.transport.kafka import KafkaLog
from stream_calib.transport.librdkafka import LibrdkafkaLog
from stream_calib.transport.port import Log, Outgoing
from tests.kafka_services import fresh_name
from tests.transport.kafka_logs import kafka_section
from tests.transport.kafka_polling import read_to_end
from tests.transport.librdkafka_logs import log_section


@pytest.mark.parametrize("with_outputs", [True, False])
def test_the_other_client_goes_on_at_the_positions_of_the_first(kafka_bootstrap: str, with_outputs: bool) -> None:
    prefix, source, out = fresh_name("test"), fresh_name("in"), fresh_name("out")
    with ExitStack() as stack:
        one = stack.enter_context(KafkaLog(kafka_section(kafka_bootstrap, group_prefix=prefix)))
        other = stack.enter_context(LibrdkafkaLog(log_section(kafka_bootstrap, group_prefix=prefix)))
        one.create_topic(source, 2)
        one.create_topic(out, 1)
        logs: list[Log] = [one, other, one, other]
        seen = []
        for turn, log in enumerate(logs):
            log.produce([Outgoing(source, None, b"%d" % (10 * turn + i), (), i % 2) for i in range(10)])
            with log.consumer("g", [source], member=f"m{turn}") as consumer:
                seen.append(sorted(int(record.value or b"") for record in read_to_end(consumer)))
                ends = {partition: consumer.position(partition) for partition in consumer.assignment()}
                consumer.commit([Outgoing(out, None, b"x")] if with_outputs else [], ends)
        assert seen == [list(range(10 * turn, 10 * turn + 10)) for turn in range(4)]
        assert one.group_positions("g", source) == other.group_positions("g", source)
        assert one.topic_id(source) == other.topic_id(source)
