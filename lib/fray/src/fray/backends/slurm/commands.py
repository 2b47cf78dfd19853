"""Slurm's commands. Each call runs one command once: Slurm's own tools wait and retry."""

import functools
import logging
import os
import re
import subprocess
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Final, NamedTuple

from rigging.errors import InvalidRequest, Unavailable

logger = logging.getLogger(__name__)

_SECONDS: Final = 150.0
_FORMAT: Final = "%F|%K|%T|%r|%k"
ENDED: Final = {
    "BOOT_FAIL", "CANCELLED", "COMPLETED", "DEADLINE", "FAILED", "NODE_FAIL", "OUT_OF_MEMORY", "PREEMPTED", "REVOKED",
    "TIMEOUT",
}  # fmt: skip
"""States of jobs that Slurm will not start again."""
_KEPT: Final = {
    "SBATCH_ACCOUNT", "SBATCH_CONSTRAINT", "SBATCH_PARTITION", "SBATCH_QOS", "SBATCH_RESERVATION", "SBATCH_TIMELIMIT",
    "SBATCH_WCKEY", "SLURM_CONF",
}  # fmt: skip
"""A site's defaults. Options in FRAY_CLIENT come before them."""
_LARGEST_ARRAY: Final = 1000
_SET_ASIDE: Final = ("SBATCH_", "SCANCEL_", "SCONTROL_", "SINFO_", "SLURM_", "SQUEUE_", "SRUN_")
"""Inside a job, Slurm's variables would be options of the new one. Others change what Slurm's tools print."""
_TOLD: Final = ("SBATCH_", "SLURM_CLUSTERS")
"""Those of them that nobody but a user or a site sets."""
_NOT_DELIVERED: Final = "(connect failure)"
_OUTAGE_SECONDS: Final = 300.0
_OUTAGE_PAUSE_SECONDS: Final = 2.0
_ALREADY_ENDED: Final = ("Invalid job id", "already completing", "already completed")
_MOST_IDS: Final = 1000
"""Ids in one command: Linux limits its arguments."""
_NOT_ANSWERED: Final = (
    "Socket timed out", "Unable to contact", "Zero Bytes", "Connection refused", "Connection reset",
    "Communication", "connect failure", "Transport endpoint",
)  # fmt: skip


class SlurmState(NamedTuple):
    """One task of an array, or one job, in Slurm's own words.

    Args:
        state: Like "PENDING" or "NODE_FAIL"; "" if Slurm no longer knows the job.
        reason: Why it is pending or ended; may be "None".
    """

    state: str
    reason: str = ""

    @property
    def ended(self) -> bool:
        """Whether it will never run again."""
        return not self.state or self.state in ENDED or "launch failed" in self.reason


class Refused(InvalidRequest):
    """Slurm refused a submission."""


class NotAnswered(Unavailable):
    """Slurm did not answer: whether it carried out a command is unknown."""


def submit(arguments: Sequence[str], script: str) -> str:
    """Submit a batch script and return its job id. Wait for a restarting slurmctld.

    Raises:
        Refused: Slurm refused it.
        NotAnswered: There was no answer.
    """
    done = _sbatch(_run_patiently, "--parsable", *arguments, script)
    slurm_id = done.stdout.strip().partition(";")[0]
    if not slurm_id.isdecimal():
        raise NotAnswered(f"sbatch: {_words(done)}")
    return slurm_id


def expected_start(arguments: Sequence[str], script: str) -> str:
    """Return when a script would start, in Slurm's words, without submitting it.

    Raises:
        Refused: Slurm would refuse it.
        NotAnswered: There was no answer.
    """
    return _words(_sbatch(_run, "--test-only", *arguments, script)).removeprefix("sbatch: ")


def largest_array() -> int:
    """Return the largest number of jobs in one array; 1 if the cluster has no arrays.

    Raises:
        Unavailable: Slurm did not answer.
    """
    done = _run_patiently(["scontrol", "show", "config"])
    found = re.search(r"^MaxArraySize\s*=\s*(\d+)", done.stdout, re.MULTILINE)
    if found is None:
        raise Unavailable(f"scontrol show config: {_words(done)}")
    return min(_LARGEST_ARRAY, max(int(found[1]), 1))


def gpu_types(partition: str) -> set[str]:
    """Return the types of GPUs in a partition ("" for all), in the cluster's own spelling; "" for GPUs without a type.

    Raises:
        Unavailable: Slurm did not answer.
    """
    chosen = [f"--partition={partition}"] if partition else []
    done = _run_patiently(["sinfo", "--noheader", "--format=%G", *chosen])
    if done.returncode != 0:
        raise Unavailable(f"sinfo: {_words(done)}")
    return set(re.findall(r"\bgpu:(?:([^:,(\s]+):)?\d", done.stdout))


def states(wanted: Mapping[str, str]) -> Mapping[str, SlurmState]:
    """Return the states of jobs and array tasks by id (`12`, `12_3`).

    A killed slurmctld may forget the last seconds and give an id again: a job with another comment counts as forgotten.

    Args:
        wanted: The comment of each job, by its id.

    Raises:
        Unavailable: Slurm did not answer.
    """
    found = dict.fromkeys(wanted, SlurmState(""))
    jobs = sorted({task.partition("_")[0] for task in wanted})
    chosen = f"--jobs={','.join(jobs)}" if len(jobs) <= _MOST_IDS else "--me"
    for task, state, comment in _parsed(_query([chosen])):
        if wanted.get(task) == comment:
            found[task] = state
    return found


def find_comment(comment: str) -> str | None:
    """Return the id of the user's job with a comment; None if Slurm has none.

    Raises:
        Unavailable: Slurm did not answer.
    """
    found = [task for task, _, said in _parsed(_query(["--me"])) if said == comment]
    return found[0].partition("_")[0] if found else None


def cancel(tasks: Iterable[str]) -> None:
    """Cancel jobs and array tasks, with few calls. Ended ones are left alone.

    Raises:
        Unavailable: Slurm did not answer.
    """
    ids = _together(tasks)
    for start in range(0, len(ids), _MOST_IDS):
        some = ids[start : start + _MOST_IDS]
        done = _run(["scancel", "--quiet", *some])
        said = [words for words in _lines(done) if not any(ended in words for ended in _ALREADY_ENDED)]
        if done.returncode != 0 and said:
            raise Unavailable(f"jobs were not cancelled: {'; '.join(said)}; try again, or use scancel {' '.join(some)}")


def describe(task: str) -> str:
    """Return what Slurm says of an ended job: state, reason and exit code."""
    done = _run(["scontrol", "--oneliner", "show", "job", task])
    fields = dict(word.split("=", 1) for word in done.stdout.split() if "=" in word)
    shown = [f"{name}={fields[name]}" for name in ("JobState", "Reason", "ExitCode", "NodeList") if name in fields]
    return " ".join(shown) or _words(done)


def _together(tasks: Iterable[str]) -> list[str]:
    """Return ids with all tasks of an array in one, like `12_[0,3]`."""
    indices: dict[str, list[str]] = {}
    for task in tasks:
        job, _, index = task.partition("_")
        indices.setdefault(job, []).append(index)
    return [f"{job}_[{','.join(found)}]" if found[0] else job for job, found in indices.items()]


def _sbatch(
    run: "Callable[[Sequence[str]], subprocess.CompletedProcess[str]]", *arguments: str
) -> "subprocess.CompletedProcess[str]":
    done = run(["sbatch", *arguments])
    if done.returncode != 0:
        said = _words(done)
        unclear = done.returncode < 0 or any(words in said for words in _NOT_ANSWERED)
        raise NotAnswered(f"sbatch: {said}") if unclear else Refused(said)
    return done


def _query(arguments: Sequence[str]) -> "subprocess.CompletedProcess[str]":
    done = _run(["squeue", "--noheader", "--array", "--states=all", f"--format={_FORMAT}", *arguments])
    if done.returncode != 0 and "Invalid job id" not in done.stderr:
        raise Unavailable(f"squeue: {_words(done)}")
    return done


def _parsed(done: "subprocess.CompletedProcess[str]") -> Iterator[tuple[str, SlurmState, str]]:
    for line in done.stdout.splitlines():
        fields = line.split("|", 4)
        if len(fields) == 5:  # a site's wrapper may print more
            job, task, state, reason, comment = fields
            yield (f"{job}_{task}" if task.isdecimal() else job), SlurmState(state, reason), comment


def _run_patiently(command: Sequence[str]) -> "subprocess.CompletedProcess[str]":
    """Run a command again while slurmctld cannot be reached: then, it was not carried out."""
    deadline, is_told = time.monotonic() + _OUTAGE_SECONDS, False
    while _NOT_DELIVERED in (done := _run(command)).stderr and time.monotonic() < deadline:
        if not is_told:
            logger.warning("%s: trying again for %g s: %s", command[0], _OUTAGE_SECONDS, _words(done))
            is_told = True
        time.sleep(_OUTAGE_PAUSE_SECONDS)
    return done


def _run(command: Sequence[str]) -> "subprocess.CompletedProcess[str]":
    env = {name: value for name, value in os.environ.items() if name in _KEPT or not name.startswith(_SET_ASIDE)}
    _tell_set_aside(frozenset(name for name in os.environ.keys() - env.keys() if name.startswith(_TOLD)))
    try:
        return subprocess.run(
            command, env=env, stdin=subprocess.DEVNULL, capture_output=True, text=True, errors="replace",
            timeout=_SECONDS, check=False,
        )  # fmt: skip
    except subprocess.TimeoutExpired:
        raise NotAnswered(f"{command[0]} did not answer within {_SECONDS:g} s") from None
    except FileNotFoundError:
        raise InvalidRequest(
            f"{command[0]} is not on PATH: run this on a node of the Slurm cluster, e.g. its login node"
        ) from None


@functools.cache
def _tell_set_aside(names: frozenset[str]) -> None:
    """Warn of variables that change no job. Once."""
    if names:
        logger.warning(
            "jobs ignore %s; write options into FRAY_CLIENT=slurm://PARTITION?OPTION=VALUE", ", ".join(sorted(names))
        )


def _lines(done: "subprocess.CompletedProcess[str]") -> Iterable[str]:
    lines = [line.partition("error: ")[2] or line for line in (done.stderr or done.stdout).splitlines() if line]
    return dict.fromkeys(lines)


def _words(done: "subprocess.CompletedProcess[str]") -> str:
    return "; ".join(_lines(done)) or f"exit code {done.returncode}"
