"""A target's id stands for one config: another one is refused, never taken for done."""

import logging
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from marin import metrics
from marin.cli.main import run
from marin.execution.sweep import SweepTarget, claim_and_run, run_sweep
from rigging.errors import Conflict, InvalidRequest, StepFailed


@dataclass(frozen=True)
class Adam:
    lr: float


@dataclass(frozen=True)
class Sgd:
    lr: float


def sweep(tmp_path: Path, *configs: Any) -> list[str]:
    return run_sweep(str(tmp_path), [SweepTarget(f"t{n}", config) for n, config in enumerate(configs)], lambda _: None)


@pytest.mark.parametrize("run_targets", [run_sweep, claim_and_run])
def test_a_table_shows_what_targets_record_beside_their_configs(
    tmp_path: Path, run_targets: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    targets = [SweepTarget(f"lr={lr}", Adam(lr)) for lr in (0.1, 0.2)]
    run_targets(str(tmp_path / "s"), targets, lambda given: metrics.log(loss=getattr(given, "config", given).lr * 2))
    assert run(["table", "s/*", "--csv", "--prefix", str(tmp_path)]) == 0
    assert capsys.readouterr().out == "step,lr,loss\ns/lr=0.1,0.1,0.2\ns/lr=0.2,0.2,0.4\n"


@pytest.mark.parametrize("run", [run_sweep, claim_and_run])
def test_a_target_that_is_done_with_another_config_is_refused_before_any_other_runs(tmp_path: Path, run: Any) -> None:
    sweep(tmp_path, {"lr": 1, "kind": "a"})
    ran: list[object] = []
    targets = [SweepTarget("new", {}), SweepTarget("t0", {"lr": 2, "kind": "a"})]
    with pytest.raises(Conflict, match=r"1 sweep target.*another config:\n  t0: lr: 1 -> 2\nNothing has run"):
        run(str(tmp_path), targets, ran.append)
    assert ran == []
    assert sweep(tmp_path, {"kind": "a", "lr": 1}) == [], "the order of a dict is no difference"


def test_classes_and_secrets_count_and_secrets_are_not_shown(tmp_path: Path) -> None:
    sweep(tmp_path, Adam(0.1), {"api_key": "first-secret"})
    with pytest.raises(Conflict, match=r"t0: class of \(config\): .*Adam -> .*Sgd\n  t1: a secret") as refused:
        sweep(tmp_path, Sgd(0.1), {"api_key": "second-secret"})
    assert "second-secret" not in str(refused.value)
    assert b"first-secret" not in (tmp_path / "t1" / ".target_config").read_bytes()


def test_what_has_no_stable_text_is_not_compared_and_noted_once(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    for _ in range(2):
        assert sweep(tmp_path / "a", {"f": object(), "n": 1}) in ([], ["t0"])
    assert caplog.text.count("not compared: f") == 1
    with pytest.raises(Conflict, match="n: 1 -> 2"):
        sweep(tmp_path / "a", {"f": object(), "n": 2})


@pytest.mark.parametrize(
    ("old", "new"),
    [({"de", "en"}, {"fr", "en"}), (np.arange(3), np.arange(3) + 1), (np.zeros(2), np.zeros((2, 1)))],
    ids=["set", "array", "shape"],
)
def test_sets_and_arrays_are_compared(tmp_path: Path, old: Any, new: Any) -> None:
    assert sweep(tmp_path, {"x": old}) == ["t0"]
    assert sweep(tmp_path, {"x": old}) == []
    with pytest.raises(Conflict, match="t0: x"):
        sweep(tmp_path, {"x": new})


def test_targets_without_a_record_are_noted_once(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    sweep(tmp_path, 1, 2)
    for number in range(2):
        (tmp_path / f"t{number}" / ".target_config").unlink()
    assert sweep(tmp_path, 3, 4) == []
    assert caplog.text.count("2 target(s) without a recorded config") == 1


def test_a_target_that_failed_may_be_tried_with_another_config(tmp_path: Path) -> None:
    def fail(config: int) -> None:
        if config == 1:
            raise ValueError

    with pytest.raises(StepFailed):
        run_sweep(str(tmp_path), [SweepTarget("t0", 1)], fail)
    assert run_sweep(str(tmp_path), [SweepTarget("t0", 2)], fail) == ["t0"]
    with pytest.raises(Conflict):
        sweep(tmp_path, 1)


def test_an_id_that_is_too_long_for_a_name_is_refused_before_anything_runs(tmp_path: Path) -> None:
    ran: list[object] = []
    with pytest.raises(InvalidRequest, match=r"sweep target 'x{300}': a part of its output path has 300 bytes"):
        run_sweep(str(tmp_path), [SweepTarget("a", 1), SweepTarget("x" * 300, 2)], ran.append)
    assert ran == []
