import pytest

from iris.domain.python_version import fits, is_python_request, minor


def test_versions_and_specifiers_are_python_requests_and_nothing_else_is() -> None:
    some = ["3", "3.12", "3.12.4", ">=3.11", ">=3.11,<3.13", "~=3.11", "==3.12.*", ">= 3.11, != 3.12", ">=3.11,"]
    none = ["", "3.", "python", "--x", ">=", "3.12;rm", "3.12 -x", ">=3.11 --help", "a/b", "3.1.2.3"]
    assert list(filter(is_python_request, [*some, "<4.0a1", *none])) == [*some, "<4.0a1"]


@pytest.mark.parametrize(
    ("request_", "fitting", "others"),
    [
        ("", ["3.11.7"], []),
        ("3.1", ["3.1.0"], ["3.11.7", "3.10.1"]),
        ("3.12", ["3.12.0", "3.12.11"], ["3.11.7", "3.13.0"]),
        ("3.12.1", ["3.12.1"], ["3.12.10", "3.12.2"]),
        (">=3.11,<3.13", ["3.11.0", "3.12.9"], ["3.10.13", "3.13.0"]),
        (">3.11", ["3.11.7", "3.12.0"], ["3.11.0"]),
        ("<=3.12", ["3.12.0", "3.11.9"], ["3.12.1"]),
        ("==3.12.*", ["3.12.0", "3.12.5"], ["3.11.1", "3.13.0"]),
        ("==3.12", ["3.12.0"], ["3.12.5"]),
        (">=3.11,!=3.12.*", ["3.11.7", "3.13.0"], ["3.12.3"]),
        ("~=3.11", ["3.11.0", "3.13.0"], ["3.10.1", "4.0.0"]),
        ("~=3.11.2", ["3.11.2", "3.11.9"], ["3.11.1", "3.12.0"]),
    ],
)
def test_what_a_request_asks_for(request_: str, fitting: list[str], others: list[str]) -> None:
    assert [version for version in [*fitting, *others] if fits(version, request_)] == fitting


def test_the_minor_version() -> None:
    assert (minor("3.12.4"), minor("3.12")) == ("3.12", "3.12")
