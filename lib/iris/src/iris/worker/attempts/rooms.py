"""Rooms: the worker's files for one identity's attempts. With `--task-users` each user has a separate room."""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field

from iris.domain.ids import user_of
from iris.worker.attempts.directories import AttemptDirectories
from iris.worker.attempts.ports import PortChooser
from iris.worker.attempts.specs import SpecMaker
from iris.worker.attempts.tokens import TokenFiles
from iris.worker.containers.engine import Engine
from iris.worker.containers.removal import Containers
from iris.worker.devices.allotment import Allotment
from iris.worker.isolation.plan import IsolationMode
from iris.worker.paths import WorkPaths
from iris.worker.prepare.preparer import Preparer
from iris.worker.prepare.task_env import TaskEnvironment
from iris.worker.users.identity import TaskIdentity
from iris.worker.users.uids import TaskUsers


@dataclass(frozen=True, slots=True)
class Room:
    """The files of one identity's attempts, and the objects that create them.

    Args:
        identity: The identity of the attempts; None for the worker's.
        refusal: The reason why no attempt can start in this room; empty if attempts can.
    """

    paths: WorkPaths
    preparer: Preparer
    directories: AttemptDirectories
    specs: SpecMaker
    tokens: TokenFiles
    identity: TaskIdentity | None = None
    refusal: str = field(default="", compare=False)


def furnish(
    paths: WorkPaths,
    isolation: IsolationMode,
    preparer: Preparer,
    environment: TaskEnvironment,
    controller_address: Callable[[], str],
    *,
    log_limit_bytes: int = 0,
    ports: PortChooser | None = None,
    allotment: Allotment | None = None,
    identity: TaskIdentity | None = None,
    refusal: str = "",
    engine: Engine | None = None,
) -> Room:
    """Create a room. Call it from the running loop.

    Args:
        paths: The files of the room.
        isolation: How attempts are isolated.
        preparer: Creates bundles and environments.
        environment: Creates the attempts' environment variables.
        controller_address: Returns the controller's current address for tasks; called at every start.
        log_limit_bytes: Maximum size of an attempt's log on this disk; 0 for the default.
        ports: Finds ports for tasks; None for any free port.
        allotment: Allots accelerators; None for a host without.
        identity: As in `Room`.
        refusal: As in `Room`.
        engine: Runs the attempts with an image; None for none.
    """
    loop = asyncio.get_running_loop()
    directories = AttemptDirectories(paths, isolation, lambda work: loop.run_in_executor(None, work), preparer.compiled)
    tokens = TokenFiles(paths)
    specs = SpecMaker(
        paths, directories, environment, tokens, controller_address, log_limit_bytes, ports or PortChooser(),
        allotment or Allotment(), identity, engine,
    )  # fmt: skip
    return Room(paths, preparer, directories, specs, tokens, identity, refusal)


class Rooms:
    """The rooms of one worker, each created on first use.

    Args:
        make: Creates the room of an identity, given its user's name and a refusal; (None, "") for the worker's own.
        users: The uids of tasks; None to run them as the worker's user.
        containers: Removes the containers of attempts; None if this worker runs none.
    """

    def __init__(
        self,
        make: Callable[[TaskIdentity | None, str, str], Room],
        users: TaskUsers | None = None,
        containers: Containers | None = None,
    ) -> None:
        self._make = make
        self.containers = containers
        self._users = users
        self._made: dict[int | str, Room] = {}  # by uid; 0: the worker's own

    def at(self, key: int | str) -> Room:
        """Return the room with a name from `find` or `find_held`."""
        return self._made[key]

    def find(self, attempt_id: str) -> int | str:
        """Return the name of the room for a new attempt."""
        if self._users is None:
            return self._have(None)
        try:
            return self._have(self._users.identity(user_of(attempt_id)), user_of(attempt_id))
        except OSError as error:
            # Under no circumstances as the worker itself.
            return self._have(None, "", f"the worker cannot start it: {error}")

    def find_held(self, attempt_id: str, uid: int | str) -> int | str:
        """Return the name of the room in which an earlier worker process started an attempt with this uid (0 for the
        worker's).
        """
        if not uid:
            return self._have(None)
        user = user_of(attempt_id)
        known = self._users.known().get(user) if self._users is not None else None
        is_same = known is not None and known.uid == uid
        return self._have(known if is_same else TaskIdentity(int(uid)), user)

    def all(self) -> list[Room]:
        """Return the rooms of all identities that ever had attempts here, and the worker's own."""
        for user, identity in (self._users.known() if self._users is not None else {}).items():
            self._have(identity, user)
        self._have(None)
        return list(self._made.values())

    async def close(self) -> None:
        """Cancel all fetches and builds."""
        for room in self._made.values():
            await room.preparer.close()

    def _have(self, identity: TaskIdentity | None, user: str = "", refusal: str = "") -> int | str:
        key = (refusal or 0) if identity is None else identity.uid
        if key not in self._made:
            self._made[key] = self._make(identity, user, refusal)
        return key
