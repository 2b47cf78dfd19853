"""Files that hold a token."""

import codecs
from pathlib import Path

import pytest

from iris.tls.token_file import privacy_warning, read_token_file
from rigging.errors import InvalidRequest, MarinError


@pytest.mark.parametrize(
    "content", [b"u:ann:ab12", b"u:ann:ab12\n", b"\r\n u:ann:ab12 \r\n", codecs.BOM_UTF8 + b"u:ann:ab12\r\n"]
)
def test_what_editors_and_shells_put_around_a_token_does_no_harm(tmp_path: Path, content: bytes) -> None:
    place = tmp_path / "token"
    place.write_bytes(content)
    assert read_token_file(str(place)) == "u:ann:ab12"


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b"", "is empty: write the token into it, or name another file"),
        (codecs.BOM_UTF8 + b"\n", "is empty"),
        ("u:ann:ab12".encode("utf-16"), "is UTF-16 text, as some editors and shells write: save it as UTF-8"),
        (b"\xff\x00\xfe", "is not text: it must contain one token and nothing else"),
        (b"token = hunter2", "holds 3 words: it must contain one token and nothing else"),
    ],
)
def test_what_is_no_token_is_told_with_the_file_and_not_repeated(tmp_path: Path, content: bytes, said: str) -> None:
    place = tmp_path / "token"
    place.write_bytes(content)
    with pytest.raises(InvalidRequest, match=f"the token file '{place}' {said}") as refused:
        read_token_file(str(place))
    assert "hunter2" not in str(refused.value)


def test_a_file_that_others_may_read_is_warned_of_and_one_that_is_not_there_told(tmp_path: Path) -> None:
    place = tmp_path / "token"
    place.touch(0o600)
    place.chmod(0o600)
    assert privacy_warning(str(place)) == ""
    assert privacy_warning(str(tmp_path / "none")) == ""
    for mode in (0o640, 0o604, 0o622):
        place.chmod(mode)
        said = f"may read or change the token file {place} (mode {mode:o}): chmod 600 {place}"
        assert privacy_warning(str(place)) == f"other users of this machine {said}"
    with pytest.raises(MarinError, match=r"cannot read the token file .*none': No such file or directory"):
        read_token_file(str(tmp_path / "none"))
