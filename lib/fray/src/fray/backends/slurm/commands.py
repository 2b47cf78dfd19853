"""Slurm's commands. Each call runs one command once: Slurm's own tools wait and retry."""

import os
import subprocess
from collections.abc import Iterable, Mapping, Sequence
from typing import Final, NamedTuple

from rigging.errors import InvalidRequest, Unavailable

_SECONDS: Final = 150.0
_FORMAT: Final = "%F|%K|%T|%r|%k"
ENDED: Final = {
    "BOOT_FAIL", "CANCELLED", "COMPLETED", "DEADLINE", "FAILED", "NODE_FAIL", "OUT_OF_MEMORY", "PREEMPTED", "REVOKED",
    "TIMEOUT",
}  # fmt: skip
"""States of jobs that Slurm will not start again."""
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
    """Submit a batch script and return its job id.

    Raises:
        Refused: Slurm refused it.
        NotAnswered: There was no answer.
    """
    try:
        done = _run(["sbatch", "--parsable", *arguments, script])
    except subprocess.TimeoutExpired:
        raise NotAnswered(f"sbatch did not answer within {_SECONDS:g} s") from None
    slurm_id, said = done.stdout.strip().partition(";")[0], _words(done)
    if done.returncode == 0 and slurm_id.isdecimal():
        return slurm_id
    if any(words in said for words in _NOT_ANSWERED) or done.returncode <= 0:
        raise NotAnswered(f"sbatch: {said}")
    raise Refused(said)


def expected_start(arguments: Sequence[str], script: str) -> str:
    """Return when a script would start, in Slurm's words, without submitting it."""
    done = _run(["sbatch", "--test-only", *arguments, script])
    if done.returncode != 0:
        raise Refused(_words(done))
    return _words(done)


def states(wanted: Mapping[str, str]) -> Mapping[str, SlurmState]:
    """Return the states of jobs and array tasks by id (`12`, `12_3`).

    A killed slurmctld may forget the last seconds and give an id again: a job with another comment counts as forgotten.

    Args:
        wanted: The comment of each job, by its id.

    Raises:
        Unavailable: Slurm did not answer.
    """
    found = dict.fromkeys(wanted, SlurmState(""))
    for task, state, comment in _parsed(_query([f"--jobs={','.join(sorted(wanted))}"])):
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


def cancel(task: str) -> None:
    """Cancel a job or an array task. An ended one is left alone.

    Raises:
        Unavailable: Slurm did not answer.
    """
    done = _run(["scancel", "--quiet", task])
    if done.returncode != 0 and "Invalid job id" not in done.stderr and "already completing" not in done.stderr:
        raise Unavailable(f"job {task} was not cancelled: {_words(done)}; try again, or use scancel {task}")


def describe(task: str) -> str:
    """Return what Slurm says of an ended job: state, reason and exit code."""
    done = _run(["scontrol", "--oneliner", "show", "job", task])
    fields = dict(word.split("=", 1) for word in done.stdout.split() if "=" in word)
    shown = [f"{name}={fields[name]}" for name in ("JobState", "Reason", "ExitCode", "NodeList") if name in fields]
    return " ".join(shown) or _words(done)


def _query(arguments: Sequence[str]) -> "subprocess.CompletedProcess[str]":
    done = _run(["squeue", "--noheader", "--array", "--states=all", f"--format={_FORMAT}", *arguments])
    if done.returncode != 0 and "Invalid job id" not in done.stderr:
        raise Unavailable(f"squeue: {_words(done)}")
    return done


def _parsed(done: "subprocess.CompletedProcess[str]") -> Iterable[tuple[str, SlurmState, str]]:
    for line in done.stdout.splitlines():
        job, task, state, reason, comment = line.split("|", 4)
        yield (f"{job}_{task}" if task.isdecimal() else job), SlurmState(state, reason), comment


def _run(command: Sequence[str]) -> "subprocess.CompletedProcess[str]":
    # Inside a job, Slurm's variables would be options of the new one; SLURM_CONF says where the cluster is.
    env = {name: value for name, value in os.environ.items() if name == "SLURM_CONF" or not name.startswith("SLURM_")}
    try:
        return subprocess.run(
            command, env=env, stdin=subprocess.DEVNULL, capture_output=True, text=True, errors="replace",
            timeout=_SECONDS, check=False,
        )  # fmt: skip
    except FileNotFoundError:
        raise InvalidRequest(
            f"{command[0]} is not on PATH: run this on a node of the Slurm cluster, e.g. its login node"
        ) from None


def _words(done: "subprocess.CompletedProcess[str]") -> str:
    lines = [line.partition("error: ")[2] or line for line in (done.stderr or done.stdout).splitlines() if line]
    return "; ".join(dict.fromkeys(lines)) or f"exit code {done.returncode}"
