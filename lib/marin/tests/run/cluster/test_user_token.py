from pathlib import Path

import click
import pytest

from marin.run.cluster.cli import context
from marin.run.cluster.user_token import store_token, wants_token
from rigging.errors import InvalidRequest


@pytest.mark.parametrize(
    ("config", "wanted"),
    [
        ({"docker": {"run_options": ["-e RAY_AUTH_MODE=token"]}}, True),
        ({"head_start_ray_commands": ["RAY_AUTH_MODE=token ray start --head"]}, True),
        ({"docker": {"run_options": ["-e RAY_AUTH_MODE=disabled"]}}, False),
        ({}, False),
    ],
)
def test_which_clusters_ask_for_one(config: dict[str, object], wanted: bool) -> None:
    assert wants_token(config) == wanted


@pytest.mark.parametrize("answer", ["n", "y"])
def test_a_question_in_a_terminal(monkeypatch: pytest.MonkeyPatch, answer: str) -> None:
    monkeypatch.setattr(context.sys.stdin, "isatty", lambda: True, raising=False)
    monkeypatch.setattr(click.termui, "visible_prompt_func", lambda _: answer)
    if answer == "y":
        context.confirm("Remove all?", yes=False)
    else:
        with pytest.raises(click.Abort):
            context.confirm("Remove all?", yes=False)


def test_the_token_is_kept_beside_that_of_another_cluster_or_where_variables_say(tmp_path: Path) -> None:
    file = tmp_path / ".ray" / "auth_token"
    for value in ("", "cat: no such file"):
        with pytest.raises(InvalidRequest, match="head has no token"):
            store_token(value, {}, tmp_path)
    assert list(tmp_path.iterdir()) == []
    given = tmp_path / "mine" / "token"
    said = store_token("x", {"RAY_AUTH_TOKEN_PATH": str(given), "RAY_AUTH_TOKEN": "y"}, tmp_path)
    assert given.read_text() == "x"
    assert said == f"the cluster's token is in {given}; RAY_AUTH_TOKEN is set and takes precedence"
    assert not file.exists()
    assert store_token("first", {}, tmp_path) == f"the cluster's token is in {file}"
    assert store_token("first", {}, tmp_path) == ""
    assert store_token("second", {}, tmp_path).endswith(f"; the previous token is in {file}.before")
    assert (file.read_text(), file.with_name("auth_token.before").read_text()) == ("second", "first")
    assert {path.stat().st_mode & 0o777 for path in file.parent.iterdir()} == {0o600}
