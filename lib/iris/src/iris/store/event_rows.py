"""Converts records of the history to rows of the table `events` and back.

To keep rows small, fields with their default are omitted, and times are relative to the record's.
"""

import json
from collections.abc import Callable, Mapping
from dataclasses import MISSING, dataclass, fields
from functools import lru_cache
from operator import attrgetter
from typing import Any, Final

from iris.domain.entities import UserBudget
from iris.domain.events import (
    Assigned,
    AttemptFenced,
    AttemptMissing,
    AttemptObserved,
    AutoCordoned,
    Begun,
    BudgetSet,
    Caller,
    ControllerStarted,
    JobHeld,
    JobReleased,
    JobSubmitted,
    JobUpdated,
    LendCpu,
    PlaceClosed,
    Preempted,
    Record,
    Recorded,
    Requested,
    RetryDue,
    SliceChanged,
    StopRequested,
    TimedOut,
    WorkerConnected,
    WorkerCordoned,
    WorkerDisconnected,
    WorkerGone,
    WorkerHeard,
    WorkerLate,
    WorkerLost,
    WorkerResized,
    WorkerTroubled,
    WorkerUncordoned,
)
from iris.domain.ids import JobId
from iris.domain.job_spec import JobSpec
from iris.domain.states import FailureKind, PreemptionReason, PriorityBand, TaskState, TimeoutKind
from iris.store.rows import Row, resources_of, resources_to_json

EVENT_COLUMNS: Final = (
    "sequence", "turn", "decided", "at_ms", "kind", "subject", "worker_id", "caller", "address", "detail",
)  # fmt: skip

SUBMITTED: Final = 1
BUDGET_SET: Final = 21
REQUESTED: Final = 23
UPDATED: Final = 27
_OBSERVED: Final = 100
"""Added to a task state to give the kind of an observed attempt."""

_KINDS: Final[Mapping[int, tuple[type[Recorded], str]]] = {
    SUBMITTED: (JobSubmitted, "submitted"),
    2: (StopRequested, "stopped"),
    3: (Assigned, "placed"),
    4: (Begun, "begun"),
    5: (WorkerConnected, "joined"),
    6: (WorkerResized, "resized"),
    7: (WorkerTroubled, "troubled"),
    8: (WorkerDisconnected, "disconnected"),
    9: (WorkerLate, "late"),
    10: (WorkerHeard, "heard"),
    11: (WorkerLost, "lost"),
    12: (WorkerGone, "removed"),
    13: (AttemptFenced, "fenced"),
    14: (AttemptMissing, "missing"),
    15: (TimedOut, "timed out"),
    16: (RetryDue, "retry due"),
    17: (LendCpu, "lent cpu"),
    18: (Preempted, "preempted"),
    19: (WorkerCordoned, "cordoned"),
    20: (WorkerUncordoned, "uncordoned"),
    BUDGET_SET: (BudgetSet, "budget set"),
    22: (AutoCordoned, "auto-cordoned"),
    REQUESTED: (Requested, "requested"),
    24: (ControllerStarted, "controller started"),
    25: (JobHeld, "held"),
    26: (JobReleased, "released"),
    UPDATED: (JobUpdated, "updated"),
    28: (SliceChanged, "slice"),
    29: (PlaceClosed, "closed"),
}
"""The stored number of each kind. Numbers never change their meaning."""

WORDS: Final[Mapping[int, str]] = {
    **{number: word for number, (_, word) in _KINDS.items()},
    **{_OBSERVED + state: state.word for state in TaskState},
}
"""The public word of each stored kind."""

_NUMBERS: Final = {kind: number for number, (kind, _) in _KINDS.items()}
# Made once: that takes longer than to write a short detail.
_ENCODER: Final = json.JSONEncoder(separators=(",", ":"), ensure_ascii=False)
_SUBJECTS: Final = ("attempt_id", "task_id", "job_id", "subject")
_SHOWN_ERROR: Final = 200
_LEFT_OUT: Final = frozenset({"by", "idempotency_key", "usage", "spec", "state", "budget", "worker_id", *_SUBJECTS})

_TO_JSON: Final[Mapping[str, Callable[[Any], object]]] = {
    "capacity": resources_to_json,
    "attributes": dict,
    "error": lambda error: error[:_SHOWN_ERROR],
}
_OF_JSON: Final[Mapping[str, Callable[[Any], object]]] = {
    "capacity": resources_of,
    "failure_kind": FailureKind,
    "cause": PreemptionReason,
    "what": TimeoutKind,
}
_TIMES: Final = {"at_ms": "at", "started_at_ms": "began"}
"""Fields with times of the worker, and their names in the detail: milliseconds after the record's time, mostly
negative.
"""


@dataclass(frozen=True, slots=True)
class _Plan:
    """The row format of one kind of event: its stored number, the field of its subject, whether it names a worker, and
    the names, defaults and values of the other fields.
    """

    number: int
    subject: str
    has_worker: bool
    names: tuple[str, ...]
    defaults: tuple[object, ...]
    values: Callable[[Any], tuple[object, ...]]


@lru_cache(maxsize=64)
def _plan_of(kind: Any) -> _Plan:
    known = [field.name for field in fields(kind)]
    rest = [field for field in fields(kind) if field.name not in _LEFT_OUT]
    names = tuple(field.name for field in rest)
    get: Callable[[Any], Any] = attrgetter(*names) if names else lambda _: ()
    return _Plan(
        _OBSERVED if kind is AttemptObserved else _NUMBERS[kind],
        next((name for name in _SUBJECTS if name in known), ""),
        "worker_id" in known,
        names,
        tuple(field.default if field.default is not MISSING else None for field in rest),
        (lambda what: (get(what),)) if len(names) == 1 else get,
    )


def event_row(sequence: int, record: Record) -> Row:
    """Return the row of a record.

    Args:
        sequence: The record's number in the table.
        record: The record.
    """
    what: Any = record.what
    plan = _plan_of(what.__class__)
    number, caller = plan.number, record.caller
    subject: object = getattr(what, plan.subject) if plan.subject else None
    detail: dict[str, object] = {}
    if number == _OBSERVED:
        number += what.state
    elif number == SUBMITTED:
        subject = what.spec.job_id
    elif number == BUDGET_SET:
        budget = what.budget
        subject = f"/{budget.user}"
        detail = {"max_weight": budget.max_weight, "max_band": int(budget.max_band)}
    values = plan.values(what)
    if values != plan.defaults:
        for name, value, default in zip(plan.names, values, plan.defaults, strict=True):
            if value == default:
                continue
            if name in _TIMES:
                detail[_TIMES[name]] = value - record.at_ms  # type: ignore[operator]  # an int
            else:
                detail[name] = _TO_JSON[name](value) if name in _TO_JSON else value
    return (
        sequence,
        record.turn,
        int(record.is_decision),
        record.at_ms,
        number,
        subject or None,
        what.worker_id if plan.has_worker else None,
        caller.name or None,
        caller.address or None,
        _ENCODER.encode(detail) if detail else None,
    )


def record_of(row: Row, spec_of: Callable[[JobId], JobSpec]) -> Record:
    """Return the record of a row.

    Args:
        row: The row, in the order of EVENT_COLUMNS.
        spec_of: Returns the spec of a job, which is stored with the job.
    """
    _, turn, decided, at_ms, kind, subject, worker_id, caller, address, text = row
    detail: dict[str, Any] = json.loads(text) if text else {}
    values: dict[str, Any] = {
        name: _OF_JSON[name](value) if name in _OF_JSON else value for name, value in detail.items()
    }
    for name, short in _TIMES.items():
        if short in values:
            values[name] = values.pop(short) + at_ms
    kind_of: Any = AttemptObserved if kind >= _OBSERVED else _KINDS[kind][0]
    plan = _plan_of(kind_of)
    if plan.subject:
        values[plan.subject] = subject or ""
    if plan.has_worker:
        values["worker_id"] = worker_id
    if kind_of is AttemptObserved:
        values["state"] = TaskState(kind - _OBSERVED)
    elif kind_of in (WorkerCordoned, JobHeld):
        values["by"] = caller or ""
    elif kind_of is JobSubmitted:
        values = {"spec": spec_of(JobId(subject))}
    elif kind_of is BudgetSet:
        band = PriorityBand(values["max_band"])
        values = {"budget": UserBudget(subject.removeprefix("/"), values["max_weight"], band)}
    return Record(turn, at_ms, kind_of(**values), Caller(caller or "", address or ""), bool(decided))
