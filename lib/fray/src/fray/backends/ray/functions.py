"""Run functions under `@ray.remote` with their decorators' options, and pass their output and errors to the caller."""

import functools
import inspect
import re
import sys
from collections.abc import Callable, Mapping
from typing import Any, Final

import ray

from fray.backends.ray.jobs.failures import describe_error, without_colours
from fray.backends.ray.jobs.output import SESSION_SECONDS
from fray.backends.ray.lookup import LOST
from fray.backends.ray.payload import Work
from fray.backends.ray.session_link import SessionLink
from fray.backends.ray.worker import entry
from fray.errors import JobFailed
from fray.output.growing_text import GrowingText
from fray.sending.remote_errors import RemoteTraceback

_LOOK_SECONDS: Final = 0.5
_GENERATORS: Final = (ray.ObjectRefGenerator, ray.DynamicObjectRefGenerator)
# What Ray writes above the frames of a process, and before the error of a task that a task waited for.
_ELSEWHERE: Final = re.compile(r"^(?:ray\.exceptions\.RayTaskError\(.*?\): )?ray::\S+ \(pid=[^)]*\)$", re.MULTILINE)


def name_of_function(fn: Any) -> str:
    """Return the name of a remote function."""
    return str(getattr(fn.remote, "__name__", None) or type(fn).__name__)


def host_needs(fn: Any) -> Mapping[str, float] | None:
    """Return the resources that a remote function reserves on one node, by Ray's names; None if its options are
    unknown."""
    # Ray has no public way to ask for what a function's decorator was given.
    options: Mapping[str, Any] | None = getattr(fn, "_default_options", None)
    if options is None:
        return None
    cpus = options.get("num_cpus")
    needs = {"CPU": 1 if cpus is None else cpus, "GPU": options.get("num_gpus"), "memory": options.get("memory")}
    return {name: float(amount) for name, amount in {**needs, **(options.get("resources") or {})}.items() if amount}


def with_output_reported(fn: Any, work: Work) -> Any:
    """Return an equivalent remote function that reports its output to the client's session as the output of `work`.

    Return None if the options are unknown or the function is a generator.
    """
    inner: Callable[..., Any] | None = getattr(fn.remote, "__wrapped__", None)
    options = getattr(fn, "_default_options", None)
    if inner is None or options is None or inspect.isgeneratorfunction(inner) or inspect.isasyncgenfunction(inner):
        return None
    around = _around(inner, work)
    return ray.remote(**options)(around) if options else ray.remote(around)


def _around(inner: Callable[..., Any], work: Work) -> Callable[..., Any]:
    @functools.wraps(inner)
    def run(*args: Any, **kwargs: Any) -> Any:
        with entry.output_reported(work):
            return inner(*args, **kwargs)

    return run


def wait_and_print(ref: Any, work: Work, sessions: SessionLink) -> Any:
    """Return the result of the task for `work`, and print its output to this process's stdout.

    Args:
        ref: The return value of the call: a reference, or a list of references.
        work: Identifies its output.
        sessions: The client's session.

    Raises:
        JobFailed: The function failed for another reason than an exception, or its exception cannot be pickled.
        BaseException: The function's own exception.
    """
    shown, key = GrowingText(), (work.job_id, work.attempt, work.replica)

    def show(output: bytes | None, *, ended: bool = False) -> None:
        if output:
            sys.stdout.write(shown.take_new(output.decode("utf-8", errors="replace"), ended=ended))

    refs = ref if isinstance(ref, list) else [ref]
    while len(ray.wait(refs, num_returns=len(refs), timeout=_LOOK_SECONDS)[0]) < len(refs):
        show(sessions.ask_if_up(lambda session: session.output_of.remote(key), SESSION_SECONDS))
    try:
        rest: bytes = sessions.ask(lambda session: session.take.remote(key, False), SESSION_SECONDS)
    except ray.exceptions.RayError:
        rest = LOST
    show(rest, ended=True)
    return result_of(ref, work.job_id)


def result_of(ref: Any, name: str) -> Any:
    """Return a task's value; for a generator, the list of yielded values. Raise like `wait_and_print`."""
    try:
        # Ray gives a generator back before its function has begun; the error of that is the last thing it yields.
        found = ref if isinstance(ref, _GENERATORS) else ray.get(ref)
        return [ray.get(item) for item in found] if isinstance(found, _GENERATORS) else found
    except ray.exceptions.RayTaskError as error:
        own, trace = _own_error(error, name)
        raise own from trace
    except ray.exceptions.RayError as error:
        raise JobFailed(f"{name} failed: {describe_error(error).reason}") from None


def _own_error(error: Any, name: str) -> tuple[BaseException, RemoteTraceback]:
    """Return the exception that a Ray task raised, and its remote traceback."""
    text = _ELSEWHERE.sub("Traceback (most recent call last):", without_colours(str(error)))
    own: object = error.cause
    while isinstance(own, ray.exceptions.RayTaskError):
        own = own.cause
    if not isinstance(own, BaseException) or isinstance(own, ray.exceptions.RayError):
        own = JobFailed(f"{name} failed: {text.rstrip().rpartition(chr(10))[2]}")
    return own, RemoteTraceback(text)
