"""The words of a command line that runs another."""

import pytest

from rigging.errors import InvalidRequest
from rigging.text.command_words import rewrite_env, split_command, withhold_secrets


def test_the_first_separator_splits_and_a_missing_one_is_told_with_an_example() -> None:
    assert split_command(["-x", "--", "sh", "--", "y"], "tool -- true") == (["-x"], ["sh", "--", "y"])
    for words in ([], ["true"], ["--"]):
        with pytest.raises(InvalidRequest, match=r"e\.g\. tool -- true"):
            split_command(words, "tool -- true")


def test_variables_become_one_option() -> None:
    assert rewrite_env(["-e", "A", "1", "-eB=2", "--env", "C", "--x"], {"C": "3"}, "--set") == [
        "--set=A=1", "--set=B=2", "--set=C=3", "--x",
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("words", "reason"),
    [
        (["-e"], "-e needs a variable"),
        (["--env", "-x"], "--env needs a variable"),
        (["-e", "A-B=1"], "'A-B' cannot be the name of a variable"),
        (["-e", "=1"], "'' cannot be the name"),
        (["-e", "1A", "x"], "'1A' cannot be the name"),
        (["-e", "UNSET"], "UNSET is not set in your environment"),
        (["-eUNSET", "1"], "UNSET is not set in your environment"),
    ],
)
def test_variables_without_a_name_or_a_value_are_refused(words: list[str], reason: str) -> None:
    with pytest.raises(InvalidRequest, match=reason):
        rewrite_env(words, {"SET": "1"}, "--set")


@pytest.mark.parametrize(
    ("words", "rest"),
    [
        (["-e", "HF_TOKEN", "s"], ["-e", "HF_TOKEN"]),
        (["-e", "HF_TOKEN=s", "-x"], ["-e", "HF_TOKEN", "-x"]),
        (["-eHF_TOKEN=s"], ["-eHF_TOKEN"]),
        (["--env=HF_TOKEN=s", "--", "-e", "HF_TOKEN=kept"], ["--env=HF_TOKEN", "--", "-e", "HF_TOKEN=kept"]),
        (["-e", "A", "1", "--env", "HF_TOKEN", "s"], ["-e", "A", "1", "--env", "HF_TOKEN"]),
    ],
)
def test_secrets_are_taken_out_and_mean_the_same_in_the_environment(words: list[str], rest: list[str]) -> None:
    assert withhold_secrets(words) == (rest, {"HF_TOKEN": "s"})
    end = words.index("--") if "--" in words else len(words)
    assert rewrite_env(words[:end], {}, "--set") == rewrite_env(
        rest[: rest.index("--") if "--" in rest else len(rest)], {"HF_TOKEN": "s"}, "--set"
    )


@pytest.mark.parametrize(
    "words",
    [["-e", "HF_TOKEN"], ["-e", "A=1", "-e", "B", "2"], ["-e"], ["--extra", "x=token"], ["-e", "max_tokens", "5"], []],
)
def test_words_without_secrets_stay_as_they_are(words: list[str]) -> None:
    assert withhold_secrets(words) == (words, {})
