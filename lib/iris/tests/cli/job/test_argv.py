"""The words of `iris job run`: nothing typed by mistake becomes part of the command."""

import time

import click
import pytest

from iris.cli.job.argv import default_job_name, parse_gpu, parse_tpu, rewrite_env, split_command, submit_command

SHELL = {"TOKEN": "t", "EMPTY": ""}


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (["-e", "K", "v"], ["K=v"]),
        (["-e", "K=v"], ["K=v"]),
        (["-e", "K=a=b"], ["K=a=b"]),
        (["-e", "K", ""], ["K="]),
        (["-e", "K", "a=b"], ["K=a=b"]),
        (["-e", "TOKEN"], ["TOKEN=t"]),
        (["-e", "EMPTY"], ["EMPTY="]),
        (["-eK=v", "--env=K2=v2", "--env", "K3", "v3"], ["K=v", "K2=v2", "K3=v3"]),
        (["-eTOKEN"], ["TOKEN=t"]),
    ],
)
def test_variables_in_all_their_forms(words, expected):
    assert rewrite_env(words, SHELL) == [f"--env-assignment={assignment}" for assignment in expected]


def test_a_variable_alone_leaves_the_next_option_alone():
    assert rewrite_env(["-e", "TOKEN", "--cpu", "2"], SHELL) == ["--env-assignment=TOKEN=t", "--cpu", "2"]


@pytest.mark.parametrize(
    ("words", "named"),
    [
        (["-e", "UNSET"], "UNSET is not set"),
        (["-e", "K", "-5"], "K is not set.*-e K=VALUE"),
        (["-e"], "needs a variable"),
        (["-e", "--cpu", "2"], "needs a variable"),
        (["-e", "A B", "v"], "'A B' cannot be the name"),
        (["-e", "=v"], "'' cannot be the name"),
    ],
)
def test_what_is_wrong_with_a_variable_is_named(words, named):
    with pytest.raises(click.UsageError, match=named):
        rewrite_env(words, SHELL)


def test_the_first_separator_splits():
    assert split_command(["--cpu", "2", "--", "sh", "--", "x"]) == (["--cpu", "2"], ["sh", "--", "x"])
    for words in ([], ["python", "x.py"], ["--"]):
        with pytest.raises(click.UsageError, match=r"iris job run --cpu 2 -- python"):
            split_command(words)


def test_devices():
    assert (parse_gpu("8").variant, parse_gpu("8").count) == ("", 8)
    assert (parse_gpu("H100x4").variant, parse_gpu("A100-80GBx2").variant) == ("H100", "A100-80GB")
    assert (parse_gpu("rtx4000x2").variant, parse_gpu("rtx4000x2").count) == ("rtx4000", 2)
    assert parse_tpu("v5p-8, v4-8").alternatives == ("v4-8",)
    for wrong in ("H100", "0", "x8", "-1", "", "H100x8x2"):
        with pytest.raises(click.UsageError, match="H100x8"):
            parse_gpu(wrong)
    for wrong in ("", " ", "v5p-8,", "v5p-8,,v4-8"):
        with pytest.raises(click.UsageError, match="write a type, or several with commas"):
            parse_tpu(wrong)


@pytest.mark.parametrize(
    ("command", "name"),
    [
        ("python -m experiments.hello_world --n 3", "hello_world"),
        ("python3.11 -u scripts/train.py", "train"),
        ("uv run python -m a.b", "b"),
        ("env A=1 python x.py", "x"),
        ("python -c pass", "python"),
        ("/bin/true", "true"),
        ("./run me.sh", "run"),
        ("...", "job"),
        ("uv sync --locked", "sync"),
        ("uv run", "uv"),
        ("nohup", "nohup"),
        ("time /bin/ls -l", "ls"),
        ("A=1", "A=1"),
        ("python -m", "python"),
        ("python3", "python3"),
        ("python -u x.py -c", "python"),
        ("x" * 100, "x" * 80),
    ],
)
def test_a_job_is_named_after_what_it_runs(command, name):
    now = time.struct_time((2026, 11, 21, 14, 3, 1, 0, 0, 0))
    assert default_job_name(command.split(), now, "9f3a") == f"{name}-1121-140301-9f3a"


def test_a_job_can_be_submitted_again_without_its_name_and_secrets():
    options = ["--cpu", "2", "-e", "A", "1", "-e", "HF_TOKEN", "hf_abcdefgh12", "--job-name", "x", "--job-name=y", "-q"]
    command = submit_command(options, ["uv", "run", "iris", "--cluster", "a b", "job", "run"])
    assert command == "uv run iris --cluster 'a b' job run --cpu 2 -e A 1 -e HF_TOKEN -q"
