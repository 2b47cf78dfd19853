"""Where the token of a Ray cluster is found."""

from pathlib import Path

import pytest

from rigging.errors import Denied
from rigging.ray_token import find_token


def test_the_users_token(tmp_path: Path) -> None:
    assert find_token({}, tmp_path).value == ""
    (tmp_path / ".ray").mkdir()
    (tmp_path / ".ray" / "auth_token").write_text("mine\n")
    (tmp_path / "other").write_text("theirs")
    found = find_token({}, tmp_path)
    assert (found.value, found.always) == ("mine", False)
    assert find_token({"RAY_AUTH_MODE": "token"}, tmp_path).always
    assert find_token({"RAY_AUTH_TOKEN_PATH": str(tmp_path / "other")}, tmp_path).value == "theirs"
    assert find_token({"RAY_AUTH_TOKEN": "t", "RAY_AUTH_MODE": "token"}, tmp_path).value == "t"
    assert find_token({"RAY_AUTH_TOKEN": "t", "RAY_AUTH_MODE": "disabled"}, tmp_path).value == ""
    assert "mine" not in repr(found)
    with pytest.raises(Denied, match=r"RAY_AUTH_TOKEN_PATH: the token file .*none"):
        find_token({"RAY_AUTH_TOKEN_PATH": str(tmp_path / "none")}, tmp_path)
