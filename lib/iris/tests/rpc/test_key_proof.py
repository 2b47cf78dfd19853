"""The proof of a worker's key: who can answer what."""

from pathlib import Path

import pytest

from iris.rpc.key_proof import KEY_FILE, check_proof, load_or_create_key, prove, public_bytes
from rigging.errors import Denied, InvalidRequest


def test_only_the_key_itself_answers_and_only_this_nonce_as_this_worker(tmp_path: Path) -> None:
    for name in ("own", "thief"):
        (tmp_path / name).mkdir()
    key, other = load_or_create_key(tmp_path / "own"), load_or_create_key(tmp_path / "thief")
    public, again = public_bytes(key), load_or_create_key(tmp_path / "own")
    check_proof(public, "w1", b"nonce", prove(again, "w1", b"nonce"))
    wrong = [
        (public, prove(other, "w1", b"nonce")),
        (public, prove(key, "w2", b"nonce")),
        (public, prove(key, "w1", b"of another session")),
        (public, b""),
        (b"no key", prove(key, "w1", b"nonce")),
    ]
    for shown, proof in wrong:
        with pytest.raises(Denied, match="worker 'w1' has not proved its key"):
            check_proof(shown, "w1", b"nonce", proof)
    assert (tmp_path / "own" / KEY_FILE).stat().st_mode & 0o777 == 0o600
    (tmp_path / "own" / KEY_FILE).write_text("half")
    with pytest.raises(InvalidRequest, match="worker-key is damaged"):
        load_or_create_key(tmp_path / "own")
