import gc
import os

import pytest

from iris.rpc.daemon import tune_process


def test_what_the_environment_says_already_stays(monkeypatch: pytest.MonkeyPatch) -> None:
    before = gc.get_threshold()
    try:
        monkeypatch.setenv("GRPC_EXPERIMENTS", "own")
        tune_process()
        assert os.environ["GRPC_EXPERIMENTS"] == "own"
        assert gc.get_threshold()[0] > before[0]
    finally:
        gc.set_threshold(*before)
