"""Which uid each user's tasks have on a host: the same for ever, nobody else's, and none when there are no more."""

import json
from pathlib import Path

import pytest

from iris.worker.users.identity import TaskIdentity, identity_from
from iris.worker.users.uids import FILE_NAME, NoUid, TaskUsers, UidRange, parse_uid_range
from rigging.errors import Denied, InvalidRequest


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("2000000000-2000000999", UidRange(2_000_000_000, 2_000_000_999)),
        ("1000-1000", UidRange(1000, 1000)),
        ("1000-4294967293", UidRange(1000, 4_294_967_293)),
    ],
)
def test_ranges_are_read_as_they_are_written(text: str, found: UidRange) -> None:
    assert parse_uid_range(text) == found
    assert str(found) == text


@pytest.mark.parametrize(
    "text",
    ["", "2000", "2001-2000", "0-5000", "999-2000", "1000-4294967294", "a-b", "1000-2000-3000", " 1000-2000", "-5"],
)
def test_what_is_no_range_of_users_is_refused(text: str) -> None:
    with pytest.raises(InvalidRequest, match=r"must be FIRST-LAST, both from 1000 to 4294967293.*e\.g\. 2000000000-"):
        parse_uid_range(text)


def test_a_user_keeps_its_uid_and_no_two_have_one(tmp_path: Path) -> None:
    users = TaskUsers(tmp_path, UidRange(2000, 2002), (44,))
    given = [users.identity(name) for name in ("ann", "bob", "ann")]
    assert given == [TaskIdentity(2000, (44,)), TaskIdentity(2001, (44,)), TaskIdentity(2000, (44,))]
    again = TaskUsers(tmp_path, UidRange(1990, 2002))
    assert again.known() == {"ann": TaskIdentity(2000), "bob": TaskIdentity(2001)}
    assert again.identity("cecil") == TaskIdentity(1990)
    assert (tmp_path / FILE_NAME).stat().st_mode & 0o777 == 0o600
    assert TaskUsers(tmp_path, UidRange(1990, 2002)).identity("ann").uid == 2000


def test_a_full_range_refuses_the_next_user_and_no_other(tmp_path: Path) -> None:
    users = TaskUsers(tmp_path, UidRange(2000, 2000))
    users.identity("ann")
    with pytest.raises(
        NoUid, match="user 'bob' gets no uid on this host: all 1 uids of --task-users 2000-2000 belong to other"
    ):
        users.identity("bob")
    assert users.identity("ann").uid == 2000
    assert json.loads((tmp_path / FILE_NAME).read_text()) == {"ann": 2000}


def test_what_the_disk_does_not_take_is_given_to_nobody(tmp_path: Path) -> None:
    users = TaskUsers(tmp_path / "gone", UidRange(2000, 2001))
    with pytest.raises(FileNotFoundError):
        users.identity("ann")
    (tmp_path / "gone").mkdir()
    assert users.identity("bob").uid == 2000


@pytest.mark.parametrize(
    ("content", "why"),
    [
        ('{"ann": 2000, "bob": 2000}', "is damaged"),
        ('{"ann": "x"}', "is damaged"),
        ("[]", "is damaged"),
        ("{", "is damaged"),
        (
            '{"ann": 2000, "bob": 1000}',
            r"--task-users 2000-2001 does not contain uids .* bob has 1000\): give a range that contains",
        ),
    ],
)
def test_a_list_that_cannot_be_kept_to_is_refused(tmp_path: Path, content: str, why: str) -> None:
    (tmp_path / FILE_NAME).write_text(content)
    (tmp_path / FILE_NAME).chmod(0o600)
    with pytest.raises(InvalidRequest, match=why):
        TaskUsers(tmp_path, UidRange(2000, 2001))


def test_a_list_that_others_could_write_is_refused(tmp_path: Path) -> None:
    (tmp_path / FILE_NAME).write_text("{}")
    (tmp_path / FILE_NAME).chmod(0o666)
    with pytest.raises(Denied, match="others can write it"):
        TaskUsers(tmp_path, UidRange(2000, 2001))


def test_an_identity_travels_and_root_is_none() -> None:
    for identity in (TaskIdentity(2000), TaskIdentity(2000, (44, 109))):
        assert identity_from(identity.words()) == identity
    assert identity_from(None) is identity_from([]) is None
    for words in ([0], [-1], ["x"], [0, 44]):
        with pytest.raises(ValueError, match=r"tasks cannot run as uid|invalid literal"):
            identity_from(words)
