from pathlib import Path

from iris.rpc.auth import PrincipalKind, make_token, verify_token
from iris.worker.paths import WorkPaths
from iris.worker.tokens import TokenFiles
from iris.worker.types import Launch, StartRequest

SECRET = b"s" * 32
TOKEN = make_token(SECRET, PrincipalKind.JOB, "/ann/a")


def start(attempt: str, replicas: int) -> StartRequest:
    task = attempt.partition(":")[0]
    return StartRequest(attempt, task, int(task.rpartition("/")[2]), Launch("/ann/a", replicas=replicas, token=TOKEN))


def test_an_attempt_has_a_token_of_its_own_and_first_attempts_of_many_tasks_share_one(tmp_path: Path) -> None:
    paths = WorkPaths(tmp_path)
    paths.make()
    tokens = TokenFiles(paths)

    def named(request: StartRequest) -> str | None:
        text = Path(tokens.path(request)).read_text()
        caller = verify_token(SECRET, text)
        assert caller.name == "/ann/a"
        return caller.attempt_id

    alone, again = start("/ann/a/0:0", 1), start("/ann/a/3:1", 9)
    shared = [start("/ann/a/1:0", 9), start("/ann/a/2:0", 9)]
    for request in (alone, again, *shared):
        tokens.hold(request)
    assert (named(alone), named(again)) == ("/ann/a/0:0", "/ann/a/3:1")
    assert [named(request) for request in shared] == [None, None]
    assert tokens.path(shared[0]) == tokens.path(shared[1])
    assert all(path.stat().st_mode & 0o777 == 0o600 for path in paths.tokens.iterdir())
    tokens.release(shared[0])
    assert Path(tokens.path(shared[1])).exists()
    for request in (alone, again, shared[1]):
        tokens.release(request)
    assert not list(paths.tokens.iterdir())
