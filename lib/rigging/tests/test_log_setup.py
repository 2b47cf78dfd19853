import logging
import re
from collections.abc import Iterator

import pytest

from rigging.errors import InvalidRequest
from rigging.log_setup import MarinLogHandler, configure_logging


@pytest.fixture(autouse=True)
def root_logger() -> Iterator[logging.Logger]:
    root = logging.getLogger()
    level = root.level
    yield root
    root.setLevel(level)
    for handler in list(root.handlers):
        if isinstance(handler, MarinLogHandler):
            root.removeHandler(handler)


def test_line_format_and_another_level(capsys: pytest.CaptureFixture[str], root_logger: logging.Logger) -> None:
    configure_logging()
    logging.getLogger("rigging.x").info("hello %s", "you")
    logging.getLogger("rigging.x").debug("unseen")
    out, err = capsys.readouterr()
    assert out == ""
    assert re.fullmatch(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d\.\d{3} I rigging\.x: hello you\n", err)
    others = len(root_logger.handlers)
    configure_logging("debug")
    assert len(root_logger.handlers) == others
    logging.getLogger("x").debug("once")
    assert capsys.readouterr().err.count("once") == 1
    with pytest.raises(InvalidRequest, match=r"'loud' is unknown; use one of debug"):
        configure_logging("loud")


def test_secrets_are_redacted_in_arguments_and_tracebacks(capsys: pytest.CaptureFixture[str]) -> None:
    configure_logging()
    try:
        raise ValueError("refused: password=tiger")
    except ValueError:
        logging.getLogger("x").exception("login with %s", {"token": "s3same"})
    err = capsys.readouterr().err
    assert "ValueError: refused: password=[REDACTED]" in err
    assert "login with {'token': '[REDACTED]'}" in err
    assert "s3same" not in err
