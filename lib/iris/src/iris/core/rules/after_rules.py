"""Rules for jobs that start after the ends of others (`JobSpec.after`).

A wait ends in the reduction that ends its job. So `Job.waits` names only live jobs, whose names cannot be reused.
"""

from dataclasses import replace
from typing import Final

from iris.core.rules.draft import Draft
from iris.core.state.view import ClusterView
from iris.domain.effects import JobChanged
from iris.domain.entities import Job
from iris.domain.ids import is_below, parent_of
from iris.domain.job_spec import AFTER_ANY, JobSpec, awaited
from iris.domain.states import JobState
from rigging.errors import Conflict, InvalidRequest, NotFound

_SHOWN: Final = 3


def open_waits(view: ClusterView, spec: JobSpec) -> str:
    """Return the part of `spec.after` whose jobs live, for `Job.waits`.

    Raises:
        InvalidRequest: It names the job itself or a parent. NotFound: A named job does not exist.
        Conflict: A named job has ended without the needed success, or waits itself for this job's parent or for the
            job that this one replaces.
    """
    waits = []
    for name, condition in awaited(spec.after).items():
        why = f"job {spec.job_id} cannot start after {name}"
        if name == spec.job_id or is_below(spec.job_id, name):
            raise InvalidRequest(f"{why}: that is the job itself or its parent; name another job")
        job = view.jobs.get(name)
        if job is None:
            raise NotFound(f"{why}: there is no such job; `iris job list` shows the jobs")
        if not job.state.is_terminal:
            waits.append(f"{name}:{condition}")
        elif not is_met(condition, job.state):
            raise Conflict(f"{why}: it has ended ({job.state.word}); requeue that one first, or use {name}:{AFTER_ANY}")
    known = view.jobs.get(spec.job_id) if waits else None
    if waits and (parent_of(spec.job_id) is not None or (known is not None and not known.state.is_terminal)):
        _check_circles(view, spec, waits)
    return ",".join(waits)


def _check_circles(view: ClusterView, spec: JobSpec, waits: list[str]) -> None:
    """Raise Conflict if a job that this one waits for waits itself for its parent, or for the job that it replaces."""
    look = [(name, name) for name in awaited(",".join(waits))]
    seen = set()
    while look:
        name, first = look.pop()
        via = "" if name == first else f", which waits for {name}"
        if is_below(spec.job_id, name):
            raise Conflict(
                f"job {spec.job_id} cannot start after {first}{via}: this job ends with that parent; leave it out"
            )
        if name == spec.job_id or is_below(name, spec.job_id):
            why = f"that ends with the job that would be replaced; stop {first} first, or use another name"
            raise Conflict(f"job {spec.job_id} cannot start after {first}{via}: {why}")
        if name not in seen:
            seen.add(name)
            look += [(further, first) for further in awaited(view.jobs[name].waits)]


def without_removed(view: ClusterView, spec: JobSpec) -> JobSpec:
    """Return a job to submit again without waits for jobs whose history was removed: these have ended."""
    kept = [f"{name}:{condition}" for name, condition in awaited(spec.after).items() if name in view.jobs]
    return replace(spec, after=",".join(kept))


def waits_reason(job: Job) -> str:
    """Return what a job waits for, e.g. "waits for job /ann/a to succeed, /ann/b to end"."""
    verbs = {AFTER_ANY: "end"}
    names = [f"{name} to {verbs.get(condition, 'succeed')}" for name, condition in awaited(job.waits).items()]
    more = f" and {len(names) - _SHOWN} more" if len(names) > _SHOWN else ""
    return f"waits for job {', '.join(names[:_SHOWN])}{more}"


def is_met(condition: str, state: JobState) -> bool:
    """Return whether an end meets a condition of `JobSpec.after`."""
    return condition == AFTER_ANY or state is JobState.SUCCEEDED


def follow_end(draft: Draft, ended: Job) -> list[tuple[Job, str]]:
    """Release the jobs whose last wait was for an ended job. Return those that can never start, and why.

    Args:
        draft: Receives the changes.
        ended: The job after its end.
    """
    hopeless = []
    for name in draft.view.families.waiters.get(ended.job_id, ()):
        job = draft.job(name)
        waits = awaited(job.waits)
        condition = waits.pop(ended.job_id, AFTER_ANY)
        if job.state.is_terminal:
            continue
        if not is_met(condition, ended.state):
            hopeless.append((job, f"job {ended.job_id} ended ({ended.state.word}); this job needs its success"))
            continue
        left = ",".join(f"{other}:{condition}" for other, condition in waits.items())
        draft.put_job(replace(job, waits=left, ready_at_ms=draft.now_ms))
        draft.effects.append(JobChanged(name))
    return hopeless
