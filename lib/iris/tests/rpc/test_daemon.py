import gc
import os

import pytest

from iris.rpc.daemon import tune_process


def test_what_the_environment_says_already_stays(monkeypatch: pytest.MonkeyPatch) -> None:
    before = gc.get_threshold()
    try:
        gc.set_threshold(700, 10, 10)  # another test of this process may have tuned it
        monkeypatch.setenv("GRPC_EXPERIMENTS", "own")
        monkeypatch.delenv("GRPC_VERBOSITY", raising=False)
        tune_process()
        assert os.environ["GRPC_EXPERIMENTS"] == "own"
        assert os.environ["GRPC_VERBOSITY"] == "ERROR"
        monkeypatch.delenv("GRPC_VERBOSITY")  # what others of this process have is as before
        assert gc.get_threshold()[0] > 700
    finally:
        gc.set_threshold(*before)
