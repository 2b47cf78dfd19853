"""What is written down about steps and runs."""

import datetime
import enum
import functools
import json
import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from marin.execution import Executor, ExecutorStep, versioned
from marin.execution.jobs.remote import function_name, remote
from marin.execution.record.info import plain, user_name
from rigging.errors import InvalidRequest

MakeStep = Callable[..., ExecutorStep[Any]]
MakeExecutor = Callable[[], Executor]


class Size(enum.Enum):
    BIG = "big"


@dataclass
class Inner:
    path: Path


def test_any_config_has_a_plain_form() -> None:
    value = {
        (1, 2): Inner(Path("/a")),
        Size.BIG: [Size.BIG, {3, 1}, (None, 1.5)],
        3: datetime.timedelta(hours=1),
        "f": int,
    }
    assert json.loads(json.dumps(plain(value))) == {
        "(1, 2)": {"path": "/a"},
        "big": ["big", [1, 3], [None, 1.5]],
        "3": {"days": 0, "seconds": 3600, "microseconds": 0},
        "f": "<class 'int'>",
    }


def test_functions_are_named_through_their_wrappers() -> None:
    expected = f"{__name__}.test_any_config_has_a_plain_form"
    function = test_any_config_has_a_plain_form
    for wrapped in (function, remote(function), functools.partial(function), remote(functools.partial(function))):
        assert function_name(wrapped) == expected


def test_a_user_id_without_a_name_is_no_obstacle(monkeypatch: pytest.MonkeyPatch) -> None:
    def no_name() -> str:
        raise KeyError("getpwuid(): uid not found: 12345")

    monkeypatch.setattr("getpass.getuser", no_name)
    assert user_name() == f"uid-{os.getuid()}"


def test_long_versions_are_written_with_hashes(make_step: MakeStep, make_executor: MakeExecutor) -> None:
    layer: list[ExecutorStep[Any]] = []
    for depth in range(5):
        layer = [make_step(f"layer{depth}/step{index}", list(layer)) for index in range(20)]
    executor = make_executor()
    executor.run(layer)
    infos = {step: Path(path, ".executor_info") for step, path in executor.output_paths.items()}
    assert max(info.stat().st_size for info in infos.values()) < 1 << 21
    version = json.loads(infos[layer[0]].read_text())["version"]
    assert version["dependencies"] == [
        Path(path).relative_to(executor.prefix).as_posix()
        for path in (executor.output_paths[step] for step in executor.dependencies[layer[0]])
    ]


def test_the_name_of_a_runs_file_follows_from_its_steps(make_step: MakeStep, make_executor: MakeExecutor) -> None:
    paths = set()
    for value in (1, 1, 2):
        executor = make_executor()
        executor.run([make_step("a", versioned(value))])
        paths.add(executor.executor_info_path)
    assert len(paths) == 2


def test_write_infos_writes_all_without_running(make_step: MakeStep, make_executor: MakeExecutor) -> None:
    executor = make_executor()
    with pytest.raises(InvalidRequest, match="no info file yet"):
        executor.get_experiment_url()
    executor.compute_version(make_step("a", make_step("b")))
    executor.write_infos()
    for path in executor.output_paths.values():
        assert Path(path, ".executor_info").is_file()
        assert not Path(path, ".executor_status").exists()


def test_the_url_in_the_data_browser(make_executor: MakeExecutor, prefix: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MARIN_DATA_BROWSER_URL", "https://browser/")
    executor = make_executor()
    executor.write_infos()
    assert executor.get_experiment_url().startswith("https://browser/experiment?path=%2F")
    monkeypatch.setenv("MARIN_BROWSER_URL", "https://pages")
    assert executor.get_experiment_url().startswith("https://pages/experiment?path=%2F")
    assert executor.browse_words() == executor.get_experiment_url()


def test_without_served_pages_people_are_told_the_command_that_serves_them(
    make_executor: MakeExecutor, prefix: str
) -> None:
    executor = make_executor()
    executor.write_infos()
    assert executor.get_experiment_url() == executor.executor_info_path
    assert executor.browse_words() == f"marin browser --prefix {prefix}"
