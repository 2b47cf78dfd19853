"""What Google's own words mean: each outcome's real text."""

import pytest

from iris.autoscale.gcp.outcomes import answer_of, answer_of_failure
from iris.autoscale.model import Outcome
from support.google import words
from support.google.words import Failure, Refusal

STOCK_OUT, QUOTA, RATE, PERMISSION, CONFIG, UNKNOWN = list(Outcome)[1:]
GKE_RESERVATION = "Reservation r1 does not have sufficient capacity for the requested resources."
REFUSALS = [
    (words.QUOTA, QUOTA),
    (words.VM_QUOTA, QUOTA),
    (words.RATE, RATE),
    (words.VM_RATE, RATE),
    (words.VM_RATE_429, RATE),
    (Refusal(429, "Resource has been exhausted.", "RESOURCE_EXHAUSTED"), RATE),
    (words.FORBIDDEN, PERMISSION),
    (words.VM_FORBIDDEN, PERMISSION),
    (words.NOT_ENABLED, PERMISSION),
    (words.VM_NOT_ENABLED, PERMISSION),
    (words.NOT_OFFERED_TO_YOU, PERMISSION),
    (words.NO_LOCATION, PERMISSION),
    (words.NOT_IN_ZONE, CONFIG),
    (words.BAD_REQUEST, CONFIG),
    (words.VM_INVALID, CONFIG),
    (words.VM_NOT_FOUND, CONFIG),
    # The state of something, a credential that runs out, trouble at Google: another try may pass.
    (Refusal(400, "The resource is not ready", reason="resourceNotReady"), UNKNOWN),
    (words.UNAUTHENTICATED, UNKNOWN),
    (words.UNAVAILABLE, UNKNOWN),
    (words.BROKEN, UNKNOWN),
]
FAILURES = [
    (words.STOCK_OUT, STOCK_OUT),
    (words.NO_RESERVATION, STOCK_OUT),
    (words.NO_RESERVATION_AS_STOCK_OUT, STOCK_OUT),
    (words.PREEMPTED_WHILE_CREATED, STOCK_OUT),  # code 3, and no mistake in the request
    (words.VM_STOCK_OUT, STOCK_OUT),
    (words.VM_STOCK_OUT_WITH_DETAILS, STOCK_OUT),
    (words.VM_PREEMPTED_WHILE_CREATED, STOCK_OUT),
    (Failure(9, GKE_RESERVATION), STOCK_OUT),
    (Failure(8, words.QUOTA.text), QUOTA),  # code 8 of quota, in an operation
    (words.VM_QUOTA_EXCEEDED, QUOTA),
    (Failure("RESOURCE_OPERATION_RATE_EXCEEDED", "Operation rate exceeded for resource 'x'."), RATE),
    (Failure(5, "Resource 'projects/p/global/networks/n' was not found"), CONFIG),
    (words.CANCELLED, UNKNOWN),
    (words.INTERNAL, UNKNOWN),
]


@pytest.mark.parametrize(("refusal", "outcome"), REFUSALS, ids=lambda value: getattr(value, "text", value)[:40])
def test_a_refusal(refusal: Refusal, outcome: Outcome) -> None:
    answer = answer_of(refusal.status, refusal.body())
    assert (answer.outcome, answer.words) == (outcome, " ".join(refusal.text.split()))


@pytest.mark.parametrize(("failure", "outcome"), FAILURES, ids=lambda value: getattr(value, "text", value)[:40])
def test_what_an_operation_ends_in(failure: Failure, outcome: Outcome) -> None:
    answer = answer_of_failure(failure.code, failure.text)
    assert (answer.outcome, answer.words) == (outcome, " ".join(failure.text.split()))


def test_an_answer_without_words() -> None:
    assert answer_of(502, None).words == "HTTP 502"
    assert answer_of(200, {}).outcome is Outcome.DONE
