"""Exceptions whose constructors pickle cannot call are made again from their parts."""

from typing import Any

from rigging.process.exception_parts import put_together, take_apart


class TwoWords(ValueError):
    def __init__(self, first: str, second: str) -> None:
        super().__init__(f"{first} and {second}")
        self.second = second


class NoFile(FileNotFoundError):
    def __init__(self, path: str) -> None:
        super().__init__(2, "nothing there", path)


class Several(ExceptionGroup[Exception]):
    def __new__(cls, *errors: Exception) -> "Several":
        return super().__new__(cls, "several", list(errors))

    def __init__(self, *errors: Exception) -> None:
        super().__init__("several", list(errors))
        self.count = len(errors)


def test_what_an_exception_keeps_is_kept() -> None:
    error = TwoWords("one", "two")
    error.add_note("seen twice")
    parts = take_apart(error, lambda _: True)
    assert parts.native is ValueError
    made = put_together(*parts)
    assert type(made) is TwoWords
    assert (str(made), made.second, made.__notes__) == ("one and two", "two", ["seen twice"])


def test_what_the_native_class_keeps_beside_its_arguments_is_kept() -> None:
    made: Any = put_together(*take_apart(NoFile("/data/x"), lambda _: True))
    assert (type(made), made.errno, made.strerror, made.filename) == (NoFile, 2, "nothing there", "/data/x")


def test_of_a_group_those_members_are_taken_apart_that_pickle_cannot_remake() -> None:
    plain, special = KeyError("k"), TwoWords("one", "two")
    parts = take_apart(Several(plain, special), lambda member: type(member) is KeyError)
    assert parts.args[0] == "several"
    assert parts.args[1] == [plain, take_apart(special, lambda _: True)]
    made: Any = put_together(*parts)
    assert (type(made), made.message, made.count) == (Several, "several", 2)
    assert made.exceptions[0] is plain
    assert (type(made.exceptions[1]), str(made.exceptions[1])) == (TwoWords, "one and two")
