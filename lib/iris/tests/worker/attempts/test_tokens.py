import os
from dataclasses import replace
from pathlib import Path

from iris.rpc.auth import PrincipalKind, make_token, verify_token
from iris.worker.attempts.tokens import TokenFiles
from iris.worker.paths import WorkPaths
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


def test_a_job_that_came_back_with_another_token_has_it_written(tmp_path: Path) -> None:
    paths = WorkPaths(tmp_path)
    paths.make()
    tokens = TokenFiles(paths)
    request = start("/ann/a/1:0", 9)
    for token in (TOKEN, make_token(SECRET, PrincipalKind.JOB, "/ann/b"), TOKEN):
        again = replace(request, launch=replace(request.launch, token=token))
        tokens.hold(again)
        assert Path(tokens.path(again)).read_text() == token
    written = Path(tokens.path(request)).stat().st_ctime_ns
    assert Path(tokens.path(request)).stat().st_ctime_ns == written, "it is written once"
    for _ in range(3):
        assert Path(tokens.path(request)).exists()
        tokens.release(request)
    assert not list(paths.tokens.iterdir())
    tokens.release(request)  # of one that nobody holds
    tokens.hold(request)
    assert Path(tokens.path(request)).read_text() == TOKEN, "what was removed is written again"
    tokens.release(request)
    assert not list(paths.tokens.iterdir()), "who had it before does not count"


def test_a_token_goes_into_a_new_file_whatever_a_task_left_in_its_place(tmp_path: Path) -> None:
    paths = WorkPaths(tmp_path / "work")
    paths.make()
    tokens = TokenFiles(paths)
    request = start("/ann/a/1:0", 9)
    path = Path(paths.token("/ann/a"))
    theirs = tmp_path / "theirs"
    theirs.write_text("theirs")
    for place in (path, Path(f"{path}!")):
        place.symlink_to(theirs)
    before = len(os.listdir("/proc/self/fd"))
    tokens.hold(request)
    assert tokens.path(request) == str(path)
    assert (path.read_text(), path.is_symlink(), path.stat().st_mode & 0o7777) == (TOKEN, False, 0o600)
    os.link(path, tmp_path / "kept")
    other = replace(request, launch=replace(request.launch, token="short"))
    assert Path(tokens.path(other)).read_text() == "short"
    assert (tmp_path / "kept").read_text() == TOKEN
    assert theirs.read_text() == "theirs"
    assert len(os.listdir("/proc/self/fd")) == before
    tokens.release(request)
    assert not list(paths.tokens.iterdir())
