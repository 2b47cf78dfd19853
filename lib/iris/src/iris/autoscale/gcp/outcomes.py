"""Decides what Google's answers mean, with Google's words. Pure."""

import re
from collections.abc import Iterator, Mapping
from typing import Any, Final

from iris.autoscale.model import Answer, Outcome

Json = Mapping[str, Any]
DONE: Final = Answer(Outcome.DONE)
_MOST_WORDS: Final = 600

# Codes alone mislead: the TPU API says RESOURCE_EXHAUSTED of capacity, of quota and of the rate of requests, so words
# and reasons come first, in this order.
_TELLTALES: Final = tuple(
    (re.compile(pattern, re.IGNORECASE), outcome)
    for pattern, outcome in (
        # Preempted while it was created: "update is not supported while in state PREEMPTED".
        (r"in state PREEMPTED|was preempted", Outcome.STOCK_OUT),
        (r"no more capacity|not have enough resources|RESOURCE_POOL_EXHAUSTED|stockout", Outcome.STOCK_OUT),
        (r"currently unavailable in the|insufficient (reserved )?capacity|resource_availability", Outcome.STOCK_OUT),
        (r"reservation.*(insufficient|not have (enough|sufficient)|exceeded)", Outcome.STOCK_OUT),
        (r"RATE_?(LIMIT_?)?EXCEEDED|per (minute|second|100 seconds|day)|too many requests", Outcome.RATE),
        (r"quota limit|quota.*(exceeded|exhausted)|QUOTA_?EXCEEDED", Outcome.QUOTA),
    )
)
_BY_STATUS: Final[Mapping[int, Outcome]] = {
    400: Outcome.CONFIG,
    403: Outcome.PERMISSION,
    404: Outcome.CONFIG,
    405: Outcome.CONFIG,
    413: Outcome.CONFIG,
    429: Outcome.RATE,
}
_BY_CODE: Final[Mapping[int | str, Outcome]] = {
    3: Outcome.CONFIG,  # INVALID_ARGUMENT
    5: Outcome.CONFIG,  # NOT_FOUND: an image, a network, a reservation
    7: Outcome.PERMISSION,
    8: Outcome.STOCK_OUT,  # RESOURCE_EXHAUSTED that names no quota
    "FORBIDDEN": Outcome.PERMISSION,
    "PERMISSIONS_ERROR": Outcome.PERMISSION,
    "RESOURCE_NOT_FOUND": Outcome.CONFIG,
    "INVALID_FIELD_VALUE": Outcome.CONFIG,
    "INVALID_USAGE": Outcome.CONFIG,
    "CONDITION_NOT_MET": Outcome.CONFIG,
}
_UNSETTLED: Final = frozenset({"FAILED_PRECONDITION", "ABORTED", "resourceNotReady", "resourceInUseByAnotherResource"})
"""Refusals with 400 that depend on the state of something, so a later try may pass."""


def answer_of(status: int, body: Json | None) -> Answer:
    """Return what the reply to a request means.

    Args:
        status: The status of HTTP.
        body: The body; None if it is no JSON object.
    """
    if 200 <= status < 300:
        return DONE
    error = (body or {}).get("error")
    error = error if isinstance(error, Mapping) else {}
    reasons = set(_reasons(error))
    words = _words(str(error.get("message") or ""), f"HTTP {status}")
    return Answer(_told(words, reasons) or _by_status(status, reasons), words)


def answer_of_operation(operation: Json) -> Answer | None:
    """Return what an operation of either API ended in; None if it goes on."""
    if not operation.get("done") and operation.get("status") != "DONE":
        return None
    error = operation.get("error")
    if not error:
        return DONE
    first = (error.get("errors") or [error])[0]
    return answer_of_failure(first.get("code", 0), str(first.get("message") or ""))


def answer_of_failure(code: int | str, message: str) -> Answer:
    """Return what the error of an operation means.

    Args:
        code: A number of the TPU API, or a word of Compute Engine.
        message: The message.
    """
    words = _words(message, f"code {code}")
    return Answer(_told(words, {str(code)}) or _BY_CODE.get(code, Outcome.UNKNOWN), words)


def is_disabled(status: int, body: Json | None) -> bool:
    """Return whether a project does not use the API, so that it has nothing there."""
    error = (body or {}).get("error")
    return (
        status == 403
        and isinstance(error, Mapping)
        and bool({"SERVICE_DISABLED", "accessNotConfigured"} & set(_reasons(error)))
    )


def _told(words: str, reasons: set[str]) -> Outcome | None:
    text = " ".join([words, *sorted(reasons)])
    return next((outcome for pattern, outcome in _TELLTALES if pattern.search(text)), None)


def _by_status(status: int, reasons: set[str]) -> Outcome:
    if status == 400 and reasons & _UNSETTLED:
        return Outcome.UNKNOWN
    return _BY_STATUS.get(status, Outcome.UNKNOWN)


def _reasons(error: Json) -> Iterator[str]:
    yield str(error.get("status") or "")
    for found in (*(error.get("errors") or ()), *(error.get("details") or ())):
        if isinstance(found, Mapping) and found.get("reason"):
            yield str(found["reason"])


def _words(message: str, otherwise: str) -> str:
    return " ".join(message.split())[:_MOST_WORDS] or otherwise
