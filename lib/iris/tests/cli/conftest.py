import pytest

from iris.cli.main import run
from support.iris.cli import Client, Context, Iris


@pytest.fixture
def client() -> Client:
    return Client()


@pytest.fixture
def iris(client: Client, capsys: pytest.CaptureFixture[str]) -> Iris:
    """Return a function that runs a command with the fake client."""

    def command(*words: str, now_ms: int | None = None) -> tuple[int, str, str]:
        code = run(list(words), Context(client, now_ms or client.now_ms))
        written = capsys.readouterr()
        return code, written.out, written.err.removeprefix("iris: ")

    return command
