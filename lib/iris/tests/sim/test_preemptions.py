"""A simulated gang of four is preempted again and again, always with a notice: no checkpoint is lost."""

from functools import partial

import pytest

from iris.domain.states import PreemptionReason
from iris.sim.run import run_seed
from iris.sim.scenario import make_preemptions


@pytest.mark.process
@pytest.mark.parametrize("seed", [*range(3), *(pytest.param(seed, marks=pytest.mark.soak) for seed in range(3, 40))])
def test_no_checkpoint_is_lost_and_nobody_is_charged(seed: int) -> None:
    report = run_seed(seed, make=partial(make_preemptions, rounds=3))
    report.check()
    assert report.notices == dict.fromkeys(PreemptionReason, 3)


@pytest.mark.soak
@pytest.mark.timeout(600)
@pytest.mark.parametrize("seed", range(3))
def test_fifty_preemptions_for_each_reason(seed: int) -> None:
    report = run_seed(seed, make=make_preemptions)
    report.check()
    assert report.notices == dict.fromkeys(PreemptionReason, 50)
