"""Whether the client libraries, and the hooks, take the settings that the configuration passes on to them."""

from __future__ import annotations

from stream_calib.config import Config
from stream_calib.redis_settings import redis_settings
from stream_calib.transport.kafka_settings import ClientSettings
from workers.deployment import hooks_of, needs_confluent_kafka


def check_client_settings(config: Config) -> None:
    """Raises ConfigurationError for a setting that a client does not know or take, a secret that is not where it should
    be, and a file that is not there. Connects to nothing."""
    redis_settings(config.redis)
    hooks_of(config.alerts)
    if config.log.kind == "kafka":
        ClientSettings(config.log)
    elif config.log.kind == "librdkafka":
        with needs_confluent_kafka():
            from stream_calib.transport.librdkafka_check import check_settings
        check_settings(config.log)
