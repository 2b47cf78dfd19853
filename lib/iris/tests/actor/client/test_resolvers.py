"""The key of a machine's actors: who knows it may send pickles, so it is this user's own or none."""

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from iris.actor.client.resolvers import FixedResolver, machine_key
from rigging.errors import Denied, InvalidRequest, MarinError, NotFound

NOBODY = 65534


@pytest.fixture
def environ(tmp_path: Path) -> dict[str, str]:
    return {"XDG_STATE_HOME": str(tmp_path / "state")}


def test_the_key_is_made_once_and_for_this_user_alone(environ: dict[str, str], tmp_path: Path) -> None:
    place = tmp_path / "state/iris/actor-key"
    key = machine_key(environ)
    assert len(key) == 32
    assert machine_key(environ) == key
    assert place.stat().st_mode & 0o777 == 0o600
    assert place.parent.stat().st_mode & 0o777 == 0o700
    assert os.listdir(place.parent) == ["actor-key"]


def link_elsewhere(place: Path) -> None:
    place.rename(place.parent / "elsewhere")
    place.symlink_to(place.parent / "elsewhere")


def give_away(place: Path) -> None:
    os.chown(place, NOBODY, NOBODY)


def block_the_folder(place: Path) -> None:
    place.unlink()
    place.parent.rmdir()
    place.parent.write_text("")


CURE = "; or set XDG_STATE_HOME to a directory of your own"


@pytest.mark.parametrize(
    ("spoil", "kind", "text"),
    [
        (lambda place: place.chmod(0o660), Denied, f"the key of actors PLACE has mode 660, .* can write it: .*{CURE}"),
        (link_elsewhere, Denied, f"is not a regular file but a symbolic link: remove it{CURE}"),
        pytest.param(
            give_away, Denied, f"PLACE belongs to uid {NOBODY}, not to you",
            marks=pytest.mark.skipif(os.geteuid() != 0, reason="only root can give files to another user"),
        ),
        (
            lambda place: place.write_bytes(b"short"), MarinError,
            "the key of actors PLACE is damaged: expected 32 bytes; remove it",
        ),
        (block_the_folder, MarinError, "cannot read or make the key of actors PLACE: "),
    ],
    ids=["others can write", "symbolic link", "of another user", "too short", "no folder"],
)  # fmt: skip
def test_a_key_that_others_could_have_written_or_that_is_none_is_refused(
    environ: dict[str, str], tmp_path: Path, spoil: Callable[[Path], None], kind: type[Exception], text: str
) -> None:
    place = tmp_path / "state/iris/actor-key"
    machine_key(environ)
    spoil(place)
    with pytest.raises(kind, match=text.replace("PLACE", str(place))):
        machine_key(environ)


def test_a_table_names_what_it_has() -> None:
    table = FixedResolver({"one": "http://h:1/", "two": ["h:2", "h:3"]})
    assert table.addresses("one") == ["h:1"]
    assert table.addresses("two") == ["h:2", "h:3"]
    with pytest.raises(NotFound, match="no actor 'three' in this resolver; it has one, two"):
        table.addresses("three")
    with pytest.raises(InvalidRequest, match="actor 'two' has no address"):
        FixedResolver({"one": "h:1", "two": []})


@pytest.mark.parametrize("url", ["ftp://x y:zz", "h", "h:", ":1", "h:0", "h:65536", "http://h:1/path", "u:p@h:1", ""])
def test_an_address_that_is_none_is_told_before_it_is_called(url: str) -> None:
    with pytest.raises(InvalidRequest, match=r"actor 'one': its address .* must be host:port"):
        FixedResolver({"one": url})
