"""Attest a recorded run by reading its outputs, file by file."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable, Sequence, Set
from typing import Any, Final

from marin.attested.attestation import Attestation, AttestedFile, AttestedStep, key_of, path_of
from marin.execution.lease.status_words import STATUS_SUCCESS
from marin.execution.record.code_record import texts_path
from marin.output_files import INFO_FILE
from marin.recorded.deciding.run_names import RunFiles
from marin.recorded.deciding.run_steps import RunStep, steps_of_run
from marin.recorded.deciding.run_summary import RunState, RunSummary
from marin.recorded.reading.runs import MOST_RUNS, read_events, read_info, read_json, summaries
from marin.recorded.reading.steps import read_statuses
from marin.recorded.reading.store import below, each
from marin.stored_files import files_added, files_below, is_of_output, reading
from rigging.errors import Conflict, Unavailable
from rigging.filesystem import local_path, open_url

_CHUNK_BYTES: Final = 1 << 20
_SHOWN: Final = 20
_MADE: Final = ("succeeded", "cached")
_ENDED: Final = (RunState.SUCCEEDED, RunState.ENDED, RunState.RECORDED)


def attest(
    root: str, directory: str, runs: Sequence[RunFiles], run: RunFiles, host: str, tell: Callable[[int, int], object]
) -> Attestation:
    """Attest a run: read the provenance of its outputs, and digest their files.

    Args:
        root: The storage root as it is now.
        directory: The directory of run records.
        runs: All runs, newest first.
        run: The run.
        host: This machine's name.
        tell: Called with the number of files read so far, and of all files.

    Raises:
        Conflict: The run has not succeeded, or an output no longer exists. The message names the steps.
    """
    [summary] = summaries(directory, [run], host)
    info = read_info(directory, run)
    prefix = str(info.get("prefix", ""))
    steps = _made(summary, steps_of_run(info, read_events(directory, run), summary.state), prefix, root)
    recorded = {step.get("output_path"): step for step in info["steps"] if isinstance(step, dict)}
    paths = [step.path for step in steps]
    makers = _makers(directory, runs, frozenset(paths))
    infos = each(lambda path: read_json(below(path, INFO_FILE))[0], paths, prefix)
    changed = each(lambda path: tuple(files_added(list(files_below(path)))), paths, prefix)
    attested = tuple(
        # An output at a fixed path may be older than info files; of what made it, the run knows all but the code.
        AttestedStep(
            key_of(step.path, prefix),
            step.name,
            made_by or {**recorded.get(step.path, {}), "source": {}},
            makers.get(step.path),
            files,
            names,
        )
        for step, made_by, files, names in zip(steps, infos, read_files(paths, prefix, tell), changed, strict=True)
    )
    others = [other for other in runs if other.id != run.id and other.id in set(makers.values())]
    about = {
        one.files.id: {**one.to_json(), "packages": _packages(directory, one)}
        for one in (summary, *summaries(directory, others, host))
    }
    about[run.id] |= {"created": info.get("created_date"), "script": info.get("caller_path")}
    return Attestation(run.id, about, prefix, attested)


def _packages(directory: str, run: RunSummary) -> dict[str, Any] | None:
    """Return the installed packages of a run, by name; None if not recorded."""
    name = run.code.get("packages")
    return read_json(texts_path(directory, name))[0] if isinstance(name, str) and "/" not in name else None


def _makers(directory: str, runs: Sequence[RunFiles], paths: Set[str]) -> dict[str, str]:
    """Return the name of the newest recorded run that made each output."""
    makers: dict[str, str] = {}
    for run in runs[:MOST_RUNS]:
        for event in read_events(directory, run):
            path = event.get("path")
            if event.get("status") == "succeeded" and path in paths:
                makers.setdefault(str(path), run.id)
        if len(makers) == len(paths):
            break
    return makers


def _made(summary: RunSummary, steps: Sequence[RunStep], prefix: str, root: str) -> list[RunStep]:
    """Return the steps whose outputs a run made or used."""
    run = summary.files.id
    failed = [f"{step.name} ({step.status})" for step in steps if step.status not in (*_MADE, None)]
    if failed or summary.state not in _ENDED:
        raise Conflict(
            f"run {run} has not succeeded ({summary.state}): {_listed(failed) or 'no step has failed'}; attest a run "
            "that succeeded (`marin runs --state succeeded`)"
        )
    # Of a run with --run_only, steps that were not chosen have no status.
    is_told = any(step.status is not None for step in steps)
    made = [step for step in steps if step.status is not None or not is_told]
    statuses = read_statuses([step.path for step in made])
    gone = [f"{step.path} ({statuses[step.path]})" for step in made if statuses[step.path] != STATUS_SUCCESS]
    if gone and root != prefix:
        places = {step.path: path_of(key_of(step.path, prefix), root) for step in made}
        if set(read_statuses(list(places.values())).values()) == {STATUS_SUCCESS}:
            raise Conflict(
                f"run {run}: its outputs are no longer below {prefix}, but below {root}: run its script again with "
                f"--prefix {root}, which finds them there, and attest that run"
            )
    if gone:
        raise Conflict(f"run {run}: {len(gone)} of its outputs no longer exist: {_listed(gone)}; run it again")
    return made


def _listed(names: Sequence[str]) -> str:
    return ", ".join(names[:_SHOWN]) + (f" and {len(names) - _SHOWN} more" if len(names) > _SHOWN else "")


def read_files(
    output_paths: Sequence[str], root: str, tell: Callable[[int, int], object] = lambda _done, _all: None
) -> list[tuple[AttestedFile, ...]]:
    """Return the files of each output with their digests, by name, without marin's own records.

    Args:
        output_paths: The outputs.
        root: Their storage root.
        tell: Called with the number of files read so far, and of all files.
    """
    names = [
        (path, name)
        for path, found in zip(output_paths, each(_names, output_paths, root), strict=True)
        for name in found
    ]
    done: list[str] = []

    def read(place: tuple[str, str]) -> AttestedFile | None:
        found = _read_file(*place)
        done.append(place[1])
        tell(len(done), len(names))
        return found

    files: dict[str, list[AttestedFile]] = {path: [] for path in output_paths}
    for (path, _), file in zip(names, each(read, names, root), strict=True):
        if file is not None:
            files[path].append(file)
    return [tuple(files[path]) for path in output_paths]


def _names(output_path: str) -> list[str]:
    return sorted(file.name for file in files_below(output_path) if is_of_output(file.name))


def _read_file(output_path: str, name: str) -> AttestedFile | None:
    path = local_path(below(output_path, name))
    if path is not None and os.path.islink(path) and not os.path.exists(path):
        return None  # a link to nothing
    try:
        size, digest = digest_of(below(output_path, name))
    except Unavailable as error:
        if isinstance(error.__cause__, IsADirectoryError):  # a link to a directory
            return None
        raise
    return AttestedFile(name, size, digest)


def digest_of(path: str) -> tuple[int, str]:
    """Return the size of a file and its SHA-256. The file is read in parts.

    Raises:
        FileNotFoundError: The file does not exist.
    """
    digest = hashlib.sha256()
    size = 0
    local = local_path(path)
    with reading(path), open(local, "rb", 0) if local is not None else open_url(path, "rb") as file:
        while chunk := file.read(_CHUNK_BYTES):
            digest.update(chunk)
            size += len(chunk)
    return size, digest.hexdigest()
