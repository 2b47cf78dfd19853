"""Faults that a test server commits on request: what real object stores do on a bad day."""

import random
import re
from dataclasses import asdict, dataclass
from enum import StrEnum
from typing import Any


class FaultKind(StrEnum):
    """Kinds of faults that a test server can show."""

    #: The answer comes `seconds` late; nothing else is wrong.
    LATENCY = "latency"
    #: Nothing is done and the answer is `status`.
    ERROR = "error"
    #: Nothing is done and the connection is closed without an answer.
    DROP = "drop"
    #: The request is carried out, and answered with `status` all the same.
    APPLIED_ERROR = "applied_error"
    #: The request is carried out, and the connection closed without an answer.
    APPLIED_DROP = "applied_drop"


@dataclass(frozen=True, slots=True)
class Fault:
    """A fault and the requests it befalls.

    Args:
        match: Regular expression searched in "METHOD path?query" (percent-decoded); empty for every request.
        status: Of ERROR and APPLIED_ERROR. seconds: Of LATENCY.
        times: After how many requests it is over; None for never. probability: Of befalling one that matches.
    """

    kind: FaultKind
    match: str = ""
    status: int = 503
    seconds: float = 0.0
    times: int | None = None
    probability: float = 1.0

    def to_json(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def from_json(cls, parsed: dict[str, Any]) -> "Fault":
        return cls(**{**parsed, "kind": FaultKind(parsed["kind"])})


class FaultPlan:
    """The faults that are in force, in the order in which they were added."""

    def __init__(self, seed: int = 0) -> None:
        self._faults: list[tuple[Fault, re.Pattern[str]]] = []
        self._left: list[int | None] = []
        self._dice = random.Random(seed)

    def add(self, fault: Fault) -> None:
        self._faults.append((fault, re.compile(fault.match)))
        self._left.append(fault.times)

    def clear(self) -> None:
        self._faults.clear()
        self._left.clear()

    def befalling(self, request: str) -> list[Fault]:
        """Return the faults that befall `request` ("METHOD path?query"): all delays, and at most one other."""
        found: list[Fault] = []
        failed = False
        for index, (fault, pattern) in enumerate(self._faults):
            left = self._left[index]
            if left == 0 or not pattern.search(request):
                continue
            failing = fault.kind is not FaultKind.LATENCY
            if (failing and failed) or self._dice.random() >= fault.probability:
                continue
            if left is not None:
                self._left[index] = left - 1
            failed = failed or failing
            found.append(fault)
        return found
