"""The files of jobs in the shared folder. A group is one job, or the jobs of one array.

names/<digest>            the group and index of the last job of a name; locked while one is submitted
groups/<key>/spec         the fields that all jobs of the group share (`Spec`)
groups/<key>/calls/<i>    the pickled callable of job i
groups/<key>/job.sh       the batch script
groups/<key>/id           Slurm's job id
groups/<key>/begun/<i>    job i has begun; removed when Slurm may start it again
groups/<key>/stop/<i>     somebody asked job i to stop
groups/<key>/ends/<i>     how job i ended (`End`): made by a link, so the first one counts
groups/<key>/runs/<i>/<attempt>/   log, exit, error and value files by replica; `failed` if it counts as a failure
"""

import contextlib
import fcntl
import hashlib
import json
import os
import shutil
import time
import uuid
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Final

from fray.types import JobStatus
from rigging.errors import InvalidRequest
from rigging.process.file_lock import open_lock_file, try_lock, unlock_and_close

KEPT_SECONDS: Final = 7 * 24 * 3600.0
_DAY: Final = 24 * 3600.0


@dataclass(frozen=True, slots=True)
class Spec:
    """The fields that all jobs of a group share, for their runner.

    Args:
        names: The full name of each job, e.g. "parent/child".
        client: FRAY_CLIENT inside the jobs.
        replicas: The number of copies.
        max_retries_failure: See `JobRequest`.
        max_retries_preemption: See `JobRequest`.
        argv: The program and its arguments; None for a callable.
        cwd: The working directory.
        env: Variables besides those of the batch script.
        packages: A folder that comes first on the import path; None for none.
    """

    names: Sequence[str]
    client: str
    replicas: int
    max_retries_failure: int
    max_retries_preemption: int
    argv: Sequence[str] | None
    cwd: str
    env: Mapping[str, str] = field(default_factory=dict)
    packages: str | None = None


@dataclass(frozen=True, slots=True)
class End:
    """How a job ended.

    Args:
        status: The final status.
        reason: Why it did not succeed.
        attempt: The number of its last attempt; 0 if it had none.
        replica: The replica that failed.
        exit_code: That replica's exit code, or the negative signal number.
        preempted: Whether it was preempted too often.
    """

    status: JobStatus
    reason: str = ""
    attempt: int = 0
    replica: int = 0
    exit_code: int | None = None
    preempted: bool = False


@dataclass(frozen=True, slots=True)
class Group:
    """The folder of a group."""

    path: Path

    @property
    def comment(self) -> str:
        """The comment of its Slurm job, by which it is found."""
        return f"fray:{self.path.name}"

    @property
    def script(self) -> Path:
        """The batch script, written last: without it, nothing was submitted."""
        return self.path / "job.sh"

    def make(self, spec: Spec) -> None:
        """Create the folder and its spec."""
        self.path.mkdir(mode=0o700)
        for name in ("calls", "begun", "stop", "ends", "runs"):
            (self.path / name).mkdir()
        write_whole(self.path / "spec", json.dumps(asdict(spec)).encode())

    def spec(self) -> Spec:
        """Return the spec."""
        return Spec(**json.loads((self.path / "spec").read_bytes()))

    def slurm_id(self) -> str:
        """Return Slurm's job id; "" if sbatch has not answered yet."""
        with contextlib.suppress(FileNotFoundError):
            return (self.path / "id").read_text()
        return ""

    def keep_id(self, slurm_id: str) -> None:
        """Store Slurm's job id."""
        write_whole(self.path / "id", slurm_id.encode())

    def ended(self) -> set[int]:
        """Return the jobs that have ended. A listing is never from an NFS client's cache, unlike a missing file."""
        try:
            return {int(name) for name in os.listdir(self.path / "ends") if name.isdecimal()}
        except FileNotFoundError:
            return set()

    def end(self, index: int) -> End | None:
        """Return how a job ended; None if it has not."""
        try:
            found = json.loads((self.path / "ends" / str(index)).read_bytes())
        except FileNotFoundError:
            return None
        return End(**{**found, "status": JobStatus(found["status"])})

    def set_end(self, index: int, end: End) -> End:
        """Store how a job ended, unless that is known already, and return how it ended."""
        path = self.path / "ends" / str(index)
        partial = path.with_name(f"{index}.{uuid.uuid4().hex}")
        partial.write_text(json.dumps(asdict(end)))
        try:
            os.link(partial, path)
        except FileExistsError:
            end = self.end(index) or end
        finally:
            partial.unlink()
        return end

    def mark(self, what: str, index: int) -> None:
        """Create the mark `begun` or `stop` of a job."""
        (self.path / what / str(index)).touch()

    def unmark(self, what: str, index: int) -> None:
        """Remove a mark, if it is there."""
        (self.path / what / str(index)).unlink(missing_ok=True)

    def is_marked(self, what: str, index: int) -> bool:
        """Return whether a job has the mark."""
        return (self.path / what / str(index)).exists()

    def runs(self, index: int) -> list[Path]:
        """Return the folders of a job's attempts so far, in order."""
        folder = self.path / "runs" / str(index)
        try:
            numbers = sorted(int(name) for name in os.listdir(folder))
        except FileNotFoundError:
            return []
        return [folder / str(number) for number in numbers]

    def outputs(self, index: int, replica: int) -> dict[int, bytes]:
        """Return the output of a replica by attempt."""
        found = {}
        for run in self.runs(index):
            with contextlib.suppress(FileNotFoundError):
                found[int(run.name)] = (run / f"log.{replica}").read_bytes()
        return found

    def slurm_log(self, index: int) -> str:
        """Return the end of what Slurm and the runner wrote themselves."""
        for name in ("slurm.log", f"slurm-{index}.log"):
            with contextlib.suppress(FileNotFoundError):
                text = (self.path / name).read_bytes()[-2000:].decode(errors="replace").strip()
                if text:
                    return text
        return ""


class SharedFolder:
    """The shared folder of a user.

    Args:
        path: The folder; created if it is missing, for this user only.
    """

    def __init__(self, path: Path) -> None:
        self.path = path

    def new_group(self, spec: Spec) -> Group:
        """Create a group with a new key.

        Raises:
            InvalidRequest: The folder cannot be written to.
        """
        self._own("groups")
        group = self.group(uuid.uuid4().hex)
        with self.refusals():
            group.make(spec)
        return group

    @contextlib.contextmanager
    def refusals(self) -> Iterator[None]:
        """Raise InvalidRequest, which names the folder, if it cannot be written to."""
        try:
            yield
        except OSError as error:
            raise InvalidRequest(
                f"the folder for jobs on Slurm, {self.path}: {error.strerror or error}; make room there, or choose "
                "another dir=FOLDER in FRAY_CLIENT=slurm://"
            ) from error

    def _own(self, name: str) -> Path:
        """Return a folder in this one that only this user can read, because jobs run what is in it."""
        from rigging.filesystem.private import check_own_folder  # not for every job

        path = self.path / name
        with self.refusals():
            self.path.mkdir(parents=True, mode=0o700, exist_ok=True)
            path.mkdir(mode=0o700, exist_ok=True)
        check_own_folder(path, "the folder for jobs on Slurm", "choose another dir", follow_links=False)
        return path

    def group(self, key: str) -> Group:
        """Return the group of a key."""
        return Group(self.path / "groups" / key)

    @contextlib.contextmanager
    def locked_name(self, name: str) -> Iterator["NameFile"]:
        """Lock a name's file during the block, also against other machines."""
        path = self._own("names") / hashlib.sha256(name.encode()).hexdigest()[:32]
        with self.refusals():
            descriptor = open_lock_file(path)
        try:
            with self.refusals():
                fcntl.flock(descriptor, fcntl.LOCK_EX)
                while not _is_at(descriptor, path):  # it was removed meanwhile
                    unlock_and_close(descriptor)
                    descriptor = open_lock_file(path)
                    fcntl.flock(descriptor, fcntl.LOCK_EX)
            yield NameFile(self, descriptor)
        finally:
            unlock_and_close(descriptor)

    def prune(self) -> None:
        """Once a day, remove groups from more than a week ago whose jobs all ended or were never submitted."""
        stamp, now = self.path / "pruned", time.time()
        with contextlib.suppress(FileNotFoundError):
            if now - stamp.stat().st_mtime < _DAY:
                return
        groups = self._own("groups")
        stamp.touch()
        for path in groups.iterdir():
            group = Group(path)
            with contextlib.suppress(FileNotFoundError):
                ends = path / "ends"
                if now - (ends if ends.exists() else path).stat().st_mtime < KEPT_SECONDS:
                    continue
                if not group.script.exists() or len(group.ended()) == len(group.spec().names):
                    shutil.rmtree(path, ignore_errors=True)
        for path in self._own("names").iterdir():
            descriptor = open_lock_file(path)
            if try_lock(descriptor) and NameFile(self, descriptor).read() is None:
                path.unlink(missing_ok=True)
            unlock_and_close(descriptor)


@dataclass(frozen=True, slots=True)
class NameFile:
    """The locked file of a name."""

    folder: SharedFolder
    descriptor: int

    def read(self) -> tuple[Group, int] | None:
        """Return the group and index of the name's last job; None if there is none, or it is no longer kept."""
        words = os.pread(self.descriptor, 200, 0).decode().split()
        if len(words) != 2:
            return None
        group = self.folder.group(words[0])
        return (group, int(words[1])) if group.path.exists() else None

    def write(self, group: Group, index: int) -> None:
        """Give the name to a job."""
        os.pwrite(self.descriptor, f"{group.path.name} {index:<8}\n".encode(), 0)


def _is_at(descriptor: int, path: Path) -> bool:
    try:
        return os.path.samestat(os.fstat(descriptor), path.stat())
    except FileNotFoundError:
        return False


def write_whole(path: Path, data: bytes) -> None:
    """Write a file atomically."""
    partial = path.with_name(f"{path.name}.{uuid.uuid4().hex}.part")
    partial.write_bytes(data)
    os.replace(partial, path)
