import pytest

from rigging.process.interrupts import unwrapped_interrupts


class Interrupted:
    def __init__(self, error: BaseException) -> None:
        self._error = error

    def __set_name__(self, owner: type, name: str) -> None:
        raise self._error


def test_an_interrupt_while_a_class_is_made_is_one():
    with pytest.raises(KeyboardInterrupt), unwrapped_interrupts():
        type("Made", (), {"field": Interrupted(KeyboardInterrupt())})


def test_other_errors_stay_what_they_are():
    with pytest.raises(RuntimeError, match="no such thing"), unwrapped_interrupts():
        raise RuntimeError("no such thing") from ValueError("x")
