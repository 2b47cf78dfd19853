"""Arguments of another type, told by name, value and what is allowed."""

import pytest

from rigging.arguments import as_list, as_texts, check_text, check_type
from rigging.errors import InvalidRequest


def test_what_is_of_the_type_passes_and_nothing_else() -> None:
    check_type(1, (int, str), "n", "a number")
    check_type(True, bool, "b", "True or False")
    check_text("ä €", "name")
    assert as_list(iter([1]), "numbers", "int") == (1,)
    assert as_texts(["a", "b"], "words") == ("a", "b")
    for value, told in ((True, "True"), ("x" * 1000, r"'x{79}\.\.\.")):
        with pytest.raises(InvalidRequest, match=rf"^n must be a number, not {told}$"):
            check_type(value, int, "n", "a number")


@pytest.mark.parametrize("surrogate", [chr(0xD800), chr(0xDFFF)])
def test_text_that_cannot_be_sent(surrogate: str) -> None:
    with pytest.raises(InvalidRequest, match=r"^name 'x\\ud.* cannot be sent"):
        check_text(f"x{surrogate}", "name")
    check_text("\ud7ff\ue000", "name")


@pytest.mark.parametrize("value", ["secret\udcff", b"secret"])
def test_a_secret_is_not_in_the_error(value: object) -> None:
    with pytest.raises(InvalidRequest, match=r"^KEY (cannot be sent|must be text, not bytes)") as caught:
        check_text(value, "KEY", secret=True)
    assert "secret" not in str(caught.value)
