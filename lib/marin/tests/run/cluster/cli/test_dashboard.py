import contextlib
import os
import signal
import socket
from collections.abc import Iterator
from typing import Any

import pytest

from marin.run.cluster.cli import dashboard
from marin.run.cluster.cli.commands import main

FILE = "infra/marin-cluster.yaml"


def test_it_lasts_while_somebody_answers(monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> None:
    server = socket.create_server(("127.0.0.1", 0))
    port = server.getsockname()[1]
    looks: list[float] = []

    @contextlib.contextmanager
    def connect(target: object, **_: Any) -> Iterator[str]:
        yield f"http://127.0.0.1:{port}"
        looks.append(-1)

    def wait(seconds: float) -> None:
        looks.append(seconds)
        if len(looks) == 3:
            server.close()

    monkeypatch.setattr(dashboard, "open_connection", connect)
    monkeypatch.setattr(dashboard, "wants_token", lambda config: False)
    monkeypatch.setattr(dashboard.time, "sleep", wait)
    before = signal.getsignal(signal.SIGTERM)
    assert main(["dashboard", "--cluster", FILE, "--port", str(port)]) != 0
    assert looks == [0.5, 0.5, 0.5, -1], "the connection is closed in the end"
    said = capfd.readouterr().err
    assert f"export RAY_ADDRESS=http://127.0.0.1:{port}" in said
    assert "ended by itself" in said
    assert signal.getsignal(signal.SIGTERM) is before


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
def test_a_closed_terminal_ends_it_with_all_that_it_has_opened(number: signal.Signals) -> None:
    ended: list[str] = []

    def work() -> None:
        with dashboard.ending_on_signals():
            try:
                os.kill(os.getpid(), number)
            finally:
                ended.append("closed")

    with pytest.raises(SystemExit) as left:
        work()
    assert left.value.code == 128 + number
    assert ended == ["closed"]
