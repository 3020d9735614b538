"""The OpenAPI document of `serve`."""

from __future__ import annotations

from typing import Any

from stream_calib import __version__
from stream_calib.config import Config
from stream_calib.events.contracts import MAX_EVENT_TIME_MS, MIN_EVENT_TIME_MS, RejectReason
from stream_calib.events.keep_rates import LEAST_KEEP_RATE

PATH = "/v1/calibrate"

EVENT_FIELDS = frozenset({"event_id", "score", "attributes", "event_time_ms", "unit", "keep_rate"})

_REASONS = (
    RejectReason.ID_MISSING,
    RejectReason.ID_INVALID,
    RejectReason.SCORE_MISSING,
    RejectReason.SCORE_INVALID,
    RejectReason.SCORE_OUT_OF_RANGE,
    RejectReason.TIME_INVALID,
    RejectReason.TIME_OUT_OF_RANGE,
)


def openapi(config: Config) -> dict[str, Any]:
    """The document, OpenAPI 3.1, of a deployment: its limits, attributes and whether it asks for a token."""
    secured: dict[str, Any] = {"security": [{"bearer": []}]} if config.http.token_file else {}
    refusals = {
        "401": _refused("The bearer token is missing or wrong"),
        "413": _refused("Too many bytes or events for one request"),
        "422": _refused("The request as a whole cannot be answered: no strict JSON, unknown fields or model"),
        "503": _refused("No snapshot may be served now; Retry-After says when to ask again"),
    }
    if not secured:
        del refusals["401"]
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "stream-calib",
            "version": __version__,
            "description": "Raw scores in, probabilities out that are true overall and within groups.",
        },
        "paths": {
            PATH: {
                "post": {
                    "operationId": "calibrate",
                    "summary": "Calibrate the scores of one model, all by one snapshot",
                    "requestBody": {"required": True, "content": _json("Request")},
                    "responses": {
                        "200": {"description": "A result for each event, in order", "content": _json("Answer")},
                        **refusals,
                    },
                    **secured,
                }
            }
        },
        "components": {
            "schemas": _schemas(config),
            **({"securitySchemes": {"bearer": {"type": "http", "scheme": "bearer"}}} if secured else {}),
        },
    }


def _schemas(config: Config) -> dict[str, Any]:
    probability = {"type": "number", "minimum": 0, "maximum": 1}
    names = config.scores.attributes
    return {
        "Request": _object(
            {
                "model": {"type": ["string", "null"], "description": "May be left out where there is only one"},
                "version": {"type": ["string", "null"], "description": "May be left out where there is only one"},
                "events": {"type": "array", "maxItems": config.http.max_request_events, "items": _ref("Event")},
            },
            ["events"],
        ),
        "Event": _object(
            {
                "event_id": {"type": ["string", "integer"], "description": "Labels join by it"},
                "score": {"type": "number", "description": f"Raw score, as scores.scale = {config.scores.scale}"},
                "attributes": {
                    "type": ["object", "null"],
                    "description": "Group attributes; missing, null and empty are one group, other names are ignored",
                    "properties": {name: {"type": ["string", "number", "boolean", "null"]} for name in names},
                },
                "event_time_ms": {
                    "type": ["integer", "null"],
                    "minimum": MIN_EVENT_TIME_MS,
                    "exclusiveMaximum": MAX_EVENT_TIME_MS,
                    "description": "Epoch milliseconds; now where there is none",
                },
                **(
                    {
                        "unit": {
                            "type": ["string", "integer", "null"],
                            "description": "What is independent of the others",
                        }
                    }
                    if config.scores.unit
                    else {}
                ),
                **(
                    {
                        "keep_rate": {
                            "type": ["number", "null"],
                            "minimum": LEAST_KEEP_RATE,
                            "maximum": 1,
                            "description": "Share of such events that was kept; 1 where there is none",
                        }
                    }
                    if config.scores.keep_rate
                    else {}
                ),
            },
            ["event_id", "score"],
        ),
        "Answer": _object(
            {
                "model": {"type": "string"},
                "version": {"type": "string"},
                "snapshot": {
                    "type": ["string", "null"],
                    "description": "Version of the snapshot that made all results; null: the raw scores",
                },
                "staleness_ms": {
                    "type": "integer",
                    "minimum": 0,
                    "description": "Since when the state has not been read; more than a few seconds: it is away",
                },
                "results": {"type": "array", "items": {"oneOf": [_ref("Served"), _ref("Refused")]}},
            }
        ),
        "Served": _object(
            {
                "event_id": {"type": "string", "description": "As text"},
                "raw": probability,
                "calibrated": probability,
                "status": {
                    "enum": ["calibrated", "previous_version", "identity"],
                    "description": "identity: the raw score, before the first snapshot",
                },
            }
        ),
        "Refused": _object(
            {
                "event_id": {"type": ["string", "null"], "description": "null where it is what cannot be read"},
                "error": _object(
                    {"code": {"enum": [reason.value for reason in _REASONS]}, "message": {"type": "string"}}
                ),
            }
        ),
        "Error": _object({"error": {"type": "string", "description": "What is wrong, and what to do"}}),
    }


def _object(properties: dict[str, Any], required: list[str] | None = None) -> dict[str, Any]:
    return {
        "type": "object",
        "properties": properties,
        "required": list(properties) if required is None else required,
        "additionalProperties": False,
    }


def _ref(name: str) -> dict[str, str]:
    return {"$ref": f"#/components/schemas/{name}"}


def _json(name: str) -> dict[str, Any]:
    return {"application/json": {"schema": _ref(name)}}


def _refused(description: str) -> dict[str, Any]:
    return {"description": description, "content": _json("Error")}
