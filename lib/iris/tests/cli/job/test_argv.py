"""The words of `iris job run`: nothing typed by mistake becomes part of the command."""

import time

import click
import pytest

from iris.cli.job.argv import (
    default_job_name,
    parse_gpu,
    parse_reservation,
    parse_tpu,
    rewrite_env,
    split_command,
    submit_command,
)


def test_variables_and_the_separator_are_read_and_what_is_wrong_is_a_usage_error() -> None:
    words = ["-e", "K", "a=b", "-e", "TOKEN", "--cpu", "2", "-eE="]
    assert rewrite_env(words, {"TOKEN": "t"}) == [
        "--env-assignment=K=a=b", "--env-assignment=TOKEN=t", "--cpu", "2", "--env-assignment=E=",
    ]  # fmt: skip
    with pytest.raises(click.UsageError, match=r"K is not set.*-e K=VALUE"):
        rewrite_env(["-e", "K", "-5"], {})
    assert split_command(["--cpu", "2", "--", "sh", "--", "x"]) == (["--cpu", "2"], ["sh", "--", "x"])
    with pytest.raises(click.UsageError, match=r"iris job run --cpu 2 -- python"):
        split_command(["python", "x.py"])


def test_devices() -> None:
    found = [parse_gpu(text) for text in ("8", "H100x4", "A100-80GBx2", "rtx4000x2")]
    assert [(device.variant, device.count) for device in found] == [
        ("", 8), ("H100", 4), ("A100-80GB", 2), ("rtx4000", 2),
    ]  # fmt: skip
    assert parse_tpu("v5p-8, v4-8").alternatives == ("v4-8",)
    for wrong in ("H100", "0", "x8", "-1", "", "H100x8x2"):
        with pytest.raises(click.UsageError, match="H100x8"):
            parse_gpu(wrong)
    for wrong in ("", " ", "v5p-8,", "v5p-8,,v4-8"):
        with pytest.raises(click.UsageError, match="write a type, or several with commas"):
            parse_tpu(wrong)
    assert parse_reservation("2:H100x8") == [parse_gpu("H100x8")] * 2
    assert parse_reservation("v5p-8") == [parse_tpu("v5p-8")]
    for wrong in ("0:v5p-8", "x:v5p-8", ":v5p-8"):
        with pytest.raises(click.UsageError, match=r"a count and a device, e\.g\. 4:v5p-8"):
            parse_reservation(wrong)


@pytest.mark.parametrize(
    ("command", "name"),
    [
        ("python -m experiments.hello_world --n 3", "hello_world"), ("python3.11 -u scripts/train.py", "train"),
        ("uv run python -m a.b", "b"), ("env A=1 python x.py", "x"), ("python -c pass", "python"),
        ("./run me.sh", "run"), ("...", "job"), ("uv sync --locked", "sync"), ("uv run", "uv"), ("nohup", "nohup"),
        ("time /bin/ls -l", "ls"), ("A=1", "A=1"), ("python -m", "python"), ("python3", "python3"),
        ("python -u x.py -c", "python"), ("x" * 100, "x" * 80),
    ],
)  # fmt: skip
def test_a_job_is_named_after_what_it_runs(command: str, name: str) -> None:
    now = time.struct_time((2026, 11, 21, 14, 3, 1, 0, 0, 0))
    assert default_job_name(command.split(), now, "9f3a") == f"{name}-1121-140301-9f3a"


def test_a_job_can_be_submitted_again_without_its_name_and_secrets() -> None:
    options = ["--cpu", "2", "-e", "A", "1", "-e", "HF_TOKEN", "hf_abcdefgh12", "--job-name", "x", "--job-name=y", "-q"]
    command = submit_command(options, ["uv", "run", "iris", "--cluster", "a b", "job", "run"])
    assert command == "uv run iris --cluster 'a b' job run --cpu 2 -e A 1 -e HF_TOKEN -q"
