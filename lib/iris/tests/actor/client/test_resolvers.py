"""The key of a machine's actors: who knows it may send pickles, so it is this user's own or none."""

import os
import subprocess
from pathlib import Path

import pytest

from iris.actor.client.resolvers import FixedResolver, machine_key
from rigging.errors import Denied, InvalidRequest, MarinError, NotFound

NOBODY = 65534


@pytest.fixture
def environ(tmp_path: Path) -> dict[str, str]:
    return {"XDG_STATE_HOME": str(tmp_path / "state")}


@pytest.fixture
def place(tmp_path: Path) -> Path:
    return tmp_path / "state/iris/actor-key"


def test_the_key_is_made_once_and_for_this_user_alone(environ: dict[str, str], place: Path) -> None:
    key = machine_key(environ)
    assert len(key) == 32
    assert machine_key(environ) == key
    assert place.stat().st_mode & 0o777 == 0o600
    assert place.parent.stat().st_mode & 0o777 == 0o700
    assert os.listdir(place.parent) == ["actor-key"]


def test_a_key_that_others_could_have_written_is_refused(environ: dict[str, str], place: Path, tmp_path: Path) -> None:
    cure = "; or set XDG_STATE_HOME to a directory of your own"
    machine_key(environ)
    place.chmod(0o660)
    with pytest.raises(Denied, match=f"the key of actors {place} has mode 660, so others can write it: .*{cure}"):
        machine_key(environ)
    place.rename(tmp_path / "elsewhere")
    place.symlink_to(tmp_path / "elsewhere")
    with pytest.raises(Denied, match=f"is no regular file but a symbolic link: remove it{cure}"):
        machine_key(environ)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can write files as another user")
def test_a_key_that_another_user_planted_is_refused(environ: dict[str, str], place: Path, tmp_path: Path) -> None:
    (tmp_path / "state").mkdir()
    os.chown(tmp_path / "state", NOBODY, NOBODY)
    plant = "mkdir -m 755 iris && printf %032d 7 > iris/actor-key && chmod 600 iris/actor-key"
    # The folder is opened for it: folders above are for root alone.
    descriptor = os.open(tmp_path / "state", os.O_RDONLY)
    subprocess.run(
        ["sh", "-c", plant], user=NOBODY, group=NOBODY, extra_groups=[], check=True,
        preexec_fn=lambda: os.fchdir(descriptor),
    )  # fmt: skip
    os.close(descriptor)
    with pytest.raises(Denied, match=f"{place} belongs to uid {NOBODY}, not to you"):
        machine_key(environ)


def test_a_key_that_is_none_is_named(environ: dict[str, str], place: Path) -> None:
    machine_key(environ)
    place.write_bytes(b"short")
    with pytest.raises(MarinError, match=f"the key of actors {place} is damaged: expected 32 bytes; remove it"):
        machine_key(environ)


def test_where_there_can_be_no_key_it_is_named(environ: dict[str, str], place: Path, tmp_path: Path) -> None:
    (tmp_path / "state").write_text("")
    with pytest.raises(MarinError, match=f"cannot read or make the key of actors {place}: Not a directory"):
        machine_key(environ)


def test_a_table_names_what_it_has() -> None:
    table = FixedResolver({"one": "http://h:1/", "two": ["h:2", "h:3"]})
    assert table.addresses("one") == ["h:1"]
    assert table.addresses("two") == ["h:2", "h:3"]
    with pytest.raises(NotFound, match="no actor 'three' in this resolver; it has one, two"):
        table.addresses("three")


@pytest.mark.parametrize("url", ["ftp://x y:zz", "h", "h:", ":1", "h:0", "h:99999", "http://h:1/path", "u:p@h:1", ""])
def test_an_address_that_is_none_is_told_before_it_is_called(url: str) -> None:
    with pytest.raises(InvalidRequest, match=r"actor 'one': its address .* must be host:port"):
        FixedResolver({"one": url})
    with pytest.raises(InvalidRequest, match="actor 'two' has no address"):
        FixedResolver({"one": "h:1", "two": []})
