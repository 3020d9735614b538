"""Names of librdkafka's settings: which are for one kind of client alone, and what a misspelt one may have meant.

librdkafka warns of settings that a client has no use for; and it has no call that lists them.
"""

from __future__ import annotations

# fmt: off
CONSUMER_ONLY = frozenset(
    {
        "allow.auto.create.topics", "auto.commit.interval.ms", "auto.offset.reset", "check.crcs", "client.rack",
        "consume.callback.max.messages", "coordinator.query.interval.ms", "enable.auto.commit",
        "enable.auto.offset.store", "enable.partition.eof", "fetch.error.backoff.ms", "fetch.max.bytes",
        "fetch.message.max.bytes", "fetch.min.bytes", "fetch.queue.backoff.ms", "fetch.wait.max.ms", "group.id",
        "group.instance.id", "group.protocol", "group.protocol.type", "group.remote.assignor",
        "heartbeat.interval.ms", "isolation.level", "max.partition.fetch.bytes", "max.poll.interval.ms",
        "partition.assignment.strategy", "queued.max.messages.kbytes", "queued.min.messages", "session.timeout.ms",
    }
)
# fmt: on

# fmt: off
PRODUCER_ONLY = frozenset(
    {
        "acks", "batch.num.messages", "batch.size", "compression.codec", "compression.level", "compression.type",
        "delivery.report.only.error", "delivery.timeout.ms", "enable.gapless.guarantee", "enable.idempotence",
        "linger.ms", "message.send.max.retries", "message.timeout.ms", "partitioner",
        "queue.buffering.backpressure.threshold", "queue.buffering.max.kbytes", "queue.buffering.max.messages",
        "queue.buffering.max.ms", "request.required.acks", "request.timeout.ms", "retries",
        "sticky.partitioning.linger.ms", "transaction.timeout.ms", "transactional.id",
    }
)
# fmt: on

# fmt: off
COMMON = frozenset(
    {
        "bootstrap.servers", "broker.address.family", "broker.address.ttl", "client.dns.lookup", "client.id",
        "connections.max.idle.ms", "debug", "enable.metrics.push", "enable.sasl.oauthbearer.unsecure.jwt",
        "enable.ssl.certificate.verification", "https.ca.location", "https.ca.pem", "log_level",
        "max.in.flight.requests.per.connection", "message.copy.max.bytes", "message.max.bytes", "metadata.max.age.ms",
        "metadata.recovery.rebootstrap.trigger.ms", "metadata.recovery.strategy", "receive.message.max.bytes",
        "reconnect.backoff.max.ms", "reconnect.backoff.ms", "retry.backoff.max.ms", "retry.backoff.ms",
        "sasl.kerberos.keytab", "sasl.kerberos.kinit.cmd", "sasl.kerberos.min.time.before.relogin",
        "sasl.kerberos.principal", "sasl.kerberos.service.name", "sasl.mechanism", "sasl.mechanisms",
        "sasl.oauthbearer.assertion.algorithm", "sasl.oauthbearer.assertion.claim.aud",
        "sasl.oauthbearer.assertion.claim.exp.seconds", "sasl.oauthbearer.assertion.claim.iss",
        "sasl.oauthbearer.assertion.claim.jti.include", "sasl.oauthbearer.assertion.claim.nbf.seconds",
        "sasl.oauthbearer.assertion.claim.sub", "sasl.oauthbearer.assertion.file",
        "sasl.oauthbearer.assertion.jwt.template.file", "sasl.oauthbearer.assertion.private.key.file",
        "sasl.oauthbearer.assertion.private.key.passphrase", "sasl.oauthbearer.assertion.private.key.pem",
        "sasl.oauthbearer.client.id", "sasl.oauthbearer.client.secret", "sasl.oauthbearer.config",
        "sasl.oauthbearer.extensions", "sasl.oauthbearer.grant.type", "sasl.oauthbearer.method",
        "sasl.oauthbearer.scope", "sasl.oauthbearer.sub.claim.name", "sasl.oauthbearer.token.endpoint.url",
        "sasl.password", "sasl.username", "security.protocol", "socket.connection.setup.timeout.ms",
        "socket.keepalive.enable", "socket.nagle.disable", "socket.receive.buffer.bytes", "socket.send.buffer.bytes",
        "socket.timeout.ms", "ssl.ca.certificate.stores", "ssl.ca.location", "ssl.ca.pem", "ssl.certificate.location",
        "ssl.certificate.pem", "ssl.cipher.suites", "ssl.crl.location", "ssl.curves.list",
        "ssl.endpoint.identification.algorithm", "ssl.engine.location", "ssl.key.location", "ssl.key.password",
        "ssl.key.pem", "ssl.keystore.location", "ssl.keystore.password", "ssl.providers", "ssl.sigalgs.list",
        "statistics.interval.ms", "topic.metadata.refresh.fast.interval.ms", "topic.metadata.refresh.sparse",
    }
)
# fmt: on
