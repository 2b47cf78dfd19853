"""The token of the user's file goes along with the documents' `ray job` lines; Ray alone would not send it."""

import subprocess
import sys
from pathlib import Path

import pytest

from marin.run.ray_program import set_auth_mode

PROGRAM = f"#!{sys.executable}\nimport os, sys\nprint(os.environ.get('RAY_AUTH_MODE'), 'marin' in sys.modules)\n"


@pytest.mark.parametrize(
    ("words", "environ", "token", "mode"),
    [
        (["job", "submit", "--", "ls"], {}, "secret", "token"),
        (["list", "tasks"], {}, "secret", "token"),
        (["job", "list"], {"RAY_AUTH_MODE": "disabled"}, "secret", "disabled"),
        # What starts nodes must not differ from its cluster.
        (["start", "--address", "10.0.0.1:6379"], {}, "secret", None),
        (["up", "job"], {}, "secret", None),
        ([], {}, "secret", None),
        (["job", "list"], {"RAY_AUTH_TOKEN_PATH": "/no/such/file"}, "secret", None),
        (["job", "list"], {}, "", None),
        (["job", "list"], {"RAY_AUTH_TOKEN": "secret"}, "", "token"),
    ],
)
def test_commands_that_ask_a_dashboard_send_the_token_that_there_is(
    words: list[str], environ: dict[str, str], token: str, mode: str | None, tmp_path: Path
) -> None:
    if token:
        (tmp_path / ".ray").mkdir()
        (tmp_path / ".ray" / "auth_token").write_text(token)
    given = dict(environ)
    set_auth_mode(words, given, tmp_path)
    assert given == {**environ, **({} if mode is None else {"RAY_AUTH_MODE": mode})}


@pytest.mark.parametrize(("name", "said"), [("ray", "token True"), ("xray", "None False")])
def test_the_environment_that_has_marin_does_so_for_the_program_ray_alone(name: str, said: str, tmp_path: Path) -> None:
    (tmp_path / name).write_text(PROGRAM)
    (tmp_path / name).chmod(0o755)
    environ = {"HOME": str(tmp_path), "RAY_AUTH_TOKEN": "secret"}
    done = subprocess.run([tmp_path / name, "job", "list"], env=environ, capture_output=True, text=True, timeout=60)
    assert done.stdout.strip() == said, f"is marin_ray_token.pth installed (uv sync)? {done.stderr}"
