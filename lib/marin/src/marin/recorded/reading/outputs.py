"""All outputs below a storage root, the references of runs, and the removal of an output."""

from __future__ import annotations

import contextlib
import math
import os
from collections.abc import Sequence
from dataclasses import replace

from marin.output_files import ASIDE_SUFFIX, INFO_FILE, LOCK_FILE, STATUS_FILE
from marin.recorded.deciding.garbage import (
    Found,
    OutputFacts,
    OutputFiles,
    Verdict,
    judge_outputs,
    outputs_of,
    references,
    relative,
    with_asides,
)
from marin.recorded.deciding.run_names import RunFiles
from marin.recorded.reading.runs import list_runs, read_json
from marin.recorded.reading.steps import read_status
from marin.recorded.reading.store import below, each
from marin.stored_files import files_added, files_below, names_in, reading
from rigging.distributed_lock import create_lock
from rigging.errors import Unavailable
from rigging.filesystem import local_path, url_to_fs
from rigging.filesystem.prefix import TEMP_PATH_PREFIX

_FENCE = LOCK_FILE + ".fence"


def find_garbage(root: str, runs_at: Sequence[str], written_before: float, runs_before: float | None = None) -> Found:
    """Judge every output below a storage root.

    Args:
        root: The storage root.
        runs_at: The directories of run records.
        written_before: Keep outputs written after this time, in seconds since the epoch.
        runs_before: Runs whose files were all written before this time do not count, unless a step is writing an output
            that they name. None: all count.
    """
    facts = _all_facts(root, runs_at)
    # Runs are read after the outputs: of one that begins meanwhile, the outputs are younger.
    referred: set[str] = set()
    damaged: list[str] = []
    count = aged = 0
    being_made = {output.files.name for output in facts if output.is_being_made}
    for place in runs_at:
        runs = list_runs(place)
        paths = [below(place, name) for name in sorted({run.info for run in runs if run.info})]
        count += len(paths)
        old = set() if runs_before is None else _written_before(runs_before, place, runs)
        for path, (info, problem) in zip(paths, each(read_json, paths, place), strict=True):
            if info is None or not isinstance(info.get("steps"), list):
                damaged.append(problem or f"{path} is not a run's info file")
                continue
            named = references(info, (root, str(info.get("prefix", root))), facts)
            if path in old and not named & being_made:
                aged += 1
            else:
                referred |= named
    return Found(_with_added(root, judge_outputs(facts, referred, root, written_before)), count, aged, damaged)


def find_outputs_of_run(root: str, runs_at: Sequence[str], info_path: str) -> Found:
    """Judge the outputs of a run's steps as if its info file were gone. References of other outputs count.

    Args:
        root: The storage root.
        runs_at: The directories of run records.
        info_path: The info file.
    """
    facts = _all_facts(root, runs_at)
    referred: set[str] = set()
    own: set[str] = set()
    damaged: list[str] = []
    paths = [below(place, name) for place in runs_at for name in {run.info for run in list_runs(place) if run.info}]
    for path, (info, problem) in zip(paths, each(read_json, paths, root), strict=True):
        if info is None or not isinstance(steps := info.get("steps"), list):
            damaged.append(problem or f"{path} is not a run's info file")
        elif path == info_path:
            own = {relative(str(step["output_path"]), root) for step in steps if isinstance(step, dict)}
        else:
            referred |= references(info, (root, str(info.get("prefix", root))), facts)
    referred.update(output.files.name for output in facts if output.files.name not in own)
    verdicts = [
        verdict for verdict in judge_outputs(facts, referred, root, math.inf) if verdict.output.files.name in own
    ]
    return Found(_with_added(root, verdicts), len(paths), 0, damaged)


def _all_facts(root: str, runs_at: Sequence[str]) -> list[OutputFacts]:
    skipped = [TEMP_PATH_PREFIX, *(relative(place, root) for place in runs_at if place.startswith(f"{root}/"))]
    facts = each(lambda files: _facts(root, files), outputs_of(files_below(root), skipped), root)
    return with_asides(facts, root)


def _written_before(time: float, directory: str, runs: Sequence[RunFiles]) -> set[str]:
    """Return the info files of runs whose files were all written before a time."""
    modified = {file.name: file.modified for file in files_below(directory)}
    young = {
        run.stem for run in runs for name in (run.info, run.events) if name and (modified.get(name) or time) >= time
    }
    return {below(directory, run.info) for run in runs if run.info and run.stem not in young}


def _with_added(root: str, verdicts: Sequence[Verdict]) -> list[Verdict]:
    def added(verdict: Verdict) -> Verdict:
        if verdict.kept is not None:
            return verdict
        return replace(verdict, added=files_added(list(files_below(f"{root}/{verdict.output.files.name}"))))

    return each(added, verdicts, root)


def _facts(root: str, files: OutputFiles) -> OutputFacts:
    path = f"{root}/{files.name}"
    info, _ = read_json(below(path, INFO_FILE))
    return OutputFacts(files, read_status(path), info)


def remove_output(path: str) -> str | None:
    """Remove an output, and its copy set aside by `--force`, under its lease.

    The status is removed first, so that a partial removal never counts as an output.

    Args:
        path: The output path.

    Returns:
        Why the output was kept; None if it is gone.
    """
    try:
        return _removed(path)
    # Storage libraries raise errors of many types. The other outputs can still go.
    except Exception as error:
        return f"it cannot be removed: {_said(error)}"


def _said(error: Exception) -> str:
    return getattr(error, "strerror", None) or f"{type(error).__name__}: {error}"


def _removed(path: str) -> str | None:
    lock, aside = create_lock(below(path, LOCK_FILE)), f"{path.rstrip('/')}{ASIDE_SUFFIX}"
    if not lock.try_acquire():
        return "a step is writing it"
    try:
        if read_status(path) == "RUNNING":
            return "a step is writing it, or was killed"
        _remove_all(path)
        _remove_all(aside)
    finally:
        lock.release()
    _remove_directory(path)
    _remove_directory(aside)
    return None


def remove_files(paths: Sequence[str]) -> None:
    """Remove files that may already be gone.

    Raises:
        Unavailable: A file cannot be removed.
    """
    for path in paths:
        try:
            fs, place = url_to_fs(path)
            fs.rm_file(place)
        except FileNotFoundError:
            continue
        except Exception as error:  # as above
            raise Unavailable(f"{path} cannot be removed: {_said(error)}") from error


def _remove_all(path: str) -> None:
    fs, place = url_to_fs(path)
    place = place.rstrip("/")
    for done in (f"{place}.SUCCESS", f"{place}/{STATUS_FILE}", f"{place}/SUCCESS"):
        if fs.isfile(done):
            fs.rm_file(done)
    names = [file.name for file in files_below(path) if file.name not in (LOCK_FILE, _FENCE)]
    if names:
        fs.rm([f"{place}/{name}" for name in names])


def _remove_directory(path: str) -> None:
    """Remove the rest: the fencing number and, on disks, empty directories, unless a run has started."""
    local = local_path(path)
    if local is None:
        # Only this command's own lease has such a number here; those of runs are kept without one.
        with reading(path), contextlib.suppress(FileNotFoundError):
            fs, place = url_to_fs(path)
            fs.rm_file(f"{place.rstrip('/')}/{_FENCE}")
        return
    for directory, _, _ in os.walk(local, topdown=False):
        if directory == local and set(names_in(local)) == {_FENCE}:
            with contextlib.suppress(OSError):
                os.remove(os.path.join(local, _FENCE))
        with contextlib.suppress(OSError):  # something is in it again
            os.rmdir(directory)
