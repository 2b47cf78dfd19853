"""Assigns a uid to each user on one host, at the first task, and never changes it."""

import json
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from iris.worker.users.identity import TaskIdentity
from rigging.errors import InvalidRequest
from rigging.filesystem.private import read_private, write_private

FILE_NAME: Final = "task-users.json"
_LOWEST: Final = 1000
_HIGHEST: Final = 2**32 - 3  # the two above are "nobody changes" and its neighbour


@dataclass(frozen=True, slots=True)
class UidRange:
    """The uids from `first` to `last`, inclusive."""

    first: int
    last: int

    def __contains__(self, uid: int) -> bool:
        return self.first <= uid <= self.last

    def __str__(self) -> str:
        return f"{self.first}-{self.last}"


class NoUid(OSError):
    """All uids of the range are assigned; the message gives instructions."""


def parse_uid_range(text: str) -> UidRange:
    """Return the range "FIRST-LAST".

    Raises:
        InvalidRequest: The text is not a range, or the range includes system uids.
    """
    match = re.fullmatch(r"([0-9]{1,10})-([0-9]{1,10})", text)
    first, last = (int(match[1]), int(match[2])) if match else (0, 0)
    if not _LOWEST <= first <= last <= _HIGHEST:
        raise InvalidRequest(
            f"the range of uids {text!r} must be FIRST-LAST, both from {_LOWEST} to {_HIGHEST}, one for each user, "
            "e.g. 2000000000-2000000999"
        )
    return UidRange(first, last)


class TaskUsers:
    """Assigns each user a uid of the range. Entries in the file `task-users.json` of the work directory never change.

    Args:
        work_dir: The worker's directory.
        uids: The range.
        groups: Supplementary groups of all tasks.

    Raises:
        InvalidRequest: The file is damaged, or contains uids outside the range.
        OSError: The file cannot be read.
    """

    def __init__(self, work_dir: Path, uids: UidRange, groups: tuple[int, ...] = ()) -> None:
        self._place = work_dir / FILE_NAME
        self._uids = uids
        self._groups = groups
        self._of_user = self._read()

    def identity(self, user: str) -> TaskIdentity:
        """Return the identity of this user's tasks; store a new one on disk first.

        Raises:
            NoUid: All uids are assigned.
            OSError: The file cannot be written.
        """
        uid = self._of_user.get(user)
        if uid is None:
            taken = set(self._of_user.values())
            uid = next((uid for uid in range(self._uids.first, self._uids.last + 1) if uid not in taken), None)
            if uid is None:
                raise NoUid(
                    f"user {user!r} gets no uid on this host: all {len(taken)} uids of --task-users {self._uids} "
                    "belong to other users; restart the worker with a larger range that contains these"
                )
            of_user = {**self._of_user, user: uid}
            write_private(self._place, json.dumps(of_user, indent=0).encode(), durable=True)
            self._of_user = of_user
        return TaskIdentity(uid, self._groups)

    def known(self) -> dict[str, TaskIdentity]:
        """Return the users that have a uid."""
        return {user: TaskIdentity(uid, self._groups) for user, uid in self._of_user.items()}

    def _read(self) -> dict[str, int]:
        content = read_private(self._place, "the list of tasks' uids")
        if content is None:
            return {}
        try:
            found = {str(user): int(uid) for user, uid in json.loads(content).items()}
        except (ValueError, TypeError, AttributeError):
            found = {"": 0}
        if "" in found or len(set(found.values())) < len(found):
            raise InvalidRequest(
                f"{self._place} is damaged: restore it, or remove it, the directories users and caches beside it, "
                "and all other files of the --task-users uids on this host"
            )
        outside = [f"{user} has {uid}" for user, uid in found.items() if uid not in self._uids]
        if outside:
            raise InvalidRequest(
                f"--task-users {self._uids} does not contain uids of this worker's users ({self._place}: "
                f"{', '.join(outside[:3])}): give a range that contains them"
            )
        return found
