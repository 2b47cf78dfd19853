"""Faults of real object stores that a test server simulates on request."""

import random
import re
from dataclasses import asdict, dataclass
from enum import StrEnum
from typing import Any


class FaultKind(StrEnum):
    """Kinds of faults of a test server."""

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
    """A fault, and the requests it affects.

    Args:
        match: Regular expression searched in "METHOD path?query" (percent-decoded); empty for every request.
        status: Status of ERROR and APPLIED_ERROR. seconds: Duration of LATENCY.
        times: Number of affected requests; None for no limit. probability: The chance that a matching request is
            affected.
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
    """The active faults, in the order of their addition."""

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
        """Return the faults for `request` ("METHOD path?query"): all delays, and at most one other."""
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
