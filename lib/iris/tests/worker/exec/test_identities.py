"""Commands in attempts of workers as root, with uids for tasks, and as an ordinary user, with each isolation."""

import os
from pathlib import Path

import pytest

from iris.worker.isolation.plan import IsolationMode
from support.iris.user_worker import worker_place

RANGE = "1900000000-1900000001"
pytestmark = pytest.mark.process


@pytest.mark.parametrize("isolation", list(IsolationMode))
@pytest.mark.parametrize(("as_root", "task_users"), [(True, ""), (True, RANGE), (False, "")])
async def test_a_command_has_the_attempts_user_and_files(
    open_path: Path, as_root: bool, task_users: str, isolation: IsolationMode
) -> None:
    async with worker_place(open_path, as_root, isolation=isolation, task_users=task_users) as place:
        bundle = place.controller.add_bundle({"a.txt": "as sent"})
        script = "id -u; echo changed > a.txt; echo up; while [ ! -e stop ]; do sleep 0.05; done"
        attempt = place.start("sh", "-c", script, bundle=bundle)
        await place.controller.until(lambda: b"up" in place.controller.output(attempt), timeout_s=60)
        uid = place.controller.output(attempt).decode().split()[0]
        assert (uid != "0") is (bool(task_users) or not as_root)
        for window in (None, (24, 80)):
            inside = "id -u; cat a.txt; echo open > /dev/stdout; grep CapEff /proc/self/status | tr -d '\\t'"
            caller = place.controller.call(attempt, "sh", "-c", inside, window=window)
            end = await caller.ended()
            assert (end.exit_code, end.error, bytes(caller.stderr)) == (0, "", b"")
            shown = caller.stdout.decode().split()
            assert shown[:3] == [uid, "changed", "open"]
            assert uid == "0" or shown[3] == "CapEff:0000000000000000"
        await place.controller.call(attempt, "touch", "stop").ended()
        assert (await place.end(attempt)).exit_code == 0
    assert not list(Path(open_path).glob("*/tokens/.exec-*")), os.listdir(open_path)
