"""Converts between process specs and the worker's requests: a "start", or a "common" with its "runs"."""

from typing import Any

from iris.worker.isolation.plan import mounts_from
from iris.worker.limits.plan import limits_from
from iris.worker.processes import CommonSpec, JoinSpec, ProcessSpec
from iris.worker.users.identity import identity_from

Json = dict[str, Any]


def spec_from(fields: Json) -> ProcessSpec:
    """Parse a "start". Raises KeyError, TypeError or ValueError if it is invalid."""
    argv = tuple(map(str, fields["argv"]))
    env = {str(name): str(value) for name, value in fields["env"].items()}
    if not argv:
        raise ValueError("argv is empty")
    return ProcessSpec(
        owner=str(fields["id"]),
        argv=argv,
        env=env,
        cwd=str(fields["cwd"]),
        sharer=str(fields.get("sharer", "")),
        log=str(fields.get("log", "")),
        log_limit=int(fields.get("log_limit", 0)),
        tail_bytes=int(fields.get("tail_bytes", 0)),
        fence_ms=int(fields.get("fence_ms", 0)),
        dies_with_worker=bool(fields.get("dies_with_worker", False)),
        note=dict(fields.get("note", {})),
        mounts=mounts_from(fields.get("mounts", ())),
        limits=limits_from(fields.get("limits")),
        run_as=identity_from(fields.get("run_as")),
        is_contained=bool(fields.get("is_contained", False)),
    )


def common_from(fields: Json) -> CommonSpec:
    """Parse a "common". Raises KeyError, TypeError or ValueError if it is invalid."""
    whole = spec_from({"id": "", "cwd": "", **fields})
    return CommonSpec(
        argv=whole.argv,
        env=whole.env,
        sharer=whole.sharer,
        log_limit=whole.log_limit,
        tail_bytes=whole.tail_bytes,
        fence_ms=whole.fence_ms,
        note=whole.note,
        limits=whole.limits,
        run_as=whole.run_as,
    )


def fields_of_common(common: CommonSpec) -> Json:
    """Return the fields of a "common", the inverse of `common_from`; empty fields are omitted."""
    fields: Json = {"argv": common.argv, "env": common.env}
    for name in ("sharer", "log_limit", "tail_bytes", "fence_ms", "note"):
        if value := getattr(common, name):
            fields[name] = value
    _add_words(fields, common)
    return fields


def _add_words(fields: Json, spec: CommonSpec | ProcessSpec) -> None:
    if limits := spec.limits.words():
        fields["limits"] = limits
    if spec.run_as is not None:
        fields["run_as"] = spec.run_as.words()


def spec_of_run(
    common: CommonSpec, name: str, cwd: str, log: str, env: Json, note: Json, mounts: Any = ()
) -> ProcessSpec:
    """Parse a "run".

    Args:
        common: The common part that the worker sent earlier.
        name: The attempt's id.
        cwd: Its working directory.
        log: Its log file.
        env: Variables in addition to the common ones.
        note: State for the next worker process, in addition to the common one.
        mounts: The attempt's mounts, each as `Mount.words`.

    Raises:
        TypeError: A field has the wrong type.
        ValueError: A field has an invalid value.
    """
    if not all(type(value) is str for value in env.values()):
        raise TypeError("a variable is no text")
    return ProcessSpec(
        owner=name, argv=(), env=env, cwd=cwd, log=log, note=note, mounts=mounts_from(mounts), common=common
    ).whole()


def join_from(fields: Json) -> JoinSpec:
    """Parse a "join". Raises KeyError, TypeError or ValueError if it is invalid."""
    streams = tuple(map(str, fields["streams"]))
    if not fields["argv"] or len(streams) not in (1, 3):
        raise ValueError("a join needs a command, and one terminal or three streams")
    return JoinSpec(
        owner=str(fields["id"]),
        attempt=str(fields["attempt"]),
        argv=tuple(map(str, fields["argv"])),
        streams=streams,
        env={str(name): str(value) for name, value in fields["env"].items()},
    )


def fields_of_join(spec: JoinSpec) -> Json:
    """Return the fields of a "join", the inverse of `join_from`."""
    return {
        "id": spec.owner, "attempt": spec.attempt, "argv": spec.argv, "streams": spec.streams, "env": dict(spec.env)
    }  # fmt: skip


def fields_of(spec: ProcessSpec) -> Json:
    """Return the fields of a "start", the inverse of `spec_from`; empty fields are omitted."""
    fields: Json = {"id": spec.owner, "argv": spec.argv, "env": spec.env, "cwd": spec.cwd}
    for name in ("sharer", "log", "log_limit", "tail_bytes", "fence_ms", "dies_with_worker", "note", "is_contained"):
        if value := getattr(spec, name):
            fields[name] = value
    _add_words(fields, spec)
    if spec.mounts:
        fields["mounts"] = [mount.words() for mount in spec.mounts]
    return fields
