"""Messages about a job's end and missing capacity, and their signature. Pure."""

import hashlib
import hmac
import json
from collections.abc import Sequence
from typing import Any, Final

from iris.autoscale.missing import Missing
from iris.domain.entities import Job
from iris.domain.ids import parent_of
from rigging.redaction import redact_string

TIMESTAMP_HEADER: Final = "Iris-Timestamp"
SIGNATURE_HEADER: Final = "Iris-Signature"
DELIVERY_HEADER: Final = "Iris-Delivery"


def message_of(job: Job, cluster: str) -> dict[str, Any]:
    """Return the message about an ended job: its state, error, and duration (seconds)."""
    began = job.started_at_ms or job.finished_at_ms
    return {
        "event": "job_ended",
        "cluster": cluster,
        "job": job.job_id,
        "parent": parent_of(job.job_id) or "",
        "state": job.state.word,
        "cause": redact_string(job.error),
        "exit_code": job.exit_code,
        "exit_signal": job.exit_signal,
        "deciding_task": job.deciding_task_id or "",
        "replicas": job.spec.replicas,
        "tasks": {state.word: count for state, count in job.counts.items() if count},
        "description": redact_string(job.spec.description),
        "submitted_at_ms": job.submitted_at_ms,
        "started_at_ms": job.started_at_ms,
        "finished_at_ms": job.finished_at_ms,
        "waited_s": max(began - job.submitted_at_ms, 0) / 1000,
        "ran_s": max(job.finished_at_ms - began, 0) / 1000,
    }


def capacity_message(missing: Sequence[Missing], cluster: str) -> dict[str, Any]:
    """Return the message about scale groups whose provider makes no slices."""
    return {
        "event": "capacity_missing",
        "cluster": cluster,
        "scale_groups": [
            {"name": item.group, "slices": item.slices, "since_ms": item.since_ms, "outcome": item.outcome}
            for item in missing
        ],
    }


def signed_headers(body: bytes, secret: bytes, at_s: int, delivery: str) -> dict[str, str]:
    """Return the headers that authenticate the sender, time and content. A repeated delivery has the same name.

    Args:
        body: The body of the request.
        secret: The secret shared with the receiver.
        at_s: Unix seconds, which are part of the signature to prevent late replays.
        delivery: The name of the delivery.
    """
    signature = hmac.new(secret, f"{at_s}.".encode() + body, hashlib.sha256).hexdigest()
    return {
        "Content-Type": "application/json",
        "User-Agent": "iris",
        TIMESTAMP_HEADER: str(at_s),
        SIGNATURE_HEADER: f"sha256={signature}",
        DELIVERY_HEADER: delivery,
    }


def body_of(message: dict[str, Any]) -> bytes:
    """Return the bytes to send and sign."""
    return json.dumps(message, ensure_ascii=False, sort_keys=True).encode()
