import pytest

from iris.python_tools.uv import cause_of


@pytest.mark.parametrize(
    ("output", "cause"),
    [
        (
            "Using Python 3.11.7 environment at: v\nerror: No solution found when resolving dependencies\n"
            "  cause: Because there is no version of click==99.1 and you require click==99.1, we can conclude that "
            "your requirements are unsatisfiable.\n",
            "No solution found when resolving dependencies: Because there is no version of click==99.1 and you "
            "require click==99.1, we can conclude that your requirements are unsatisfiable.",
        ),
        (
            "Using Python 3.11 environment at: v\n  × No solution found when resolving dependencies:\n"
            "  ╰─▶ Because there is no version of a==9 and you require a==9, we can\n"
            "      conclude that your requirements are unsatisfiable.\n",
            "No solution found when resolving dependencies: Because there is no version of a==9 and you require a==9, "
            "we can conclude that your requirements are unsatisfiable.",
        ),
        (
            "Resolved 1 package in 2ms\n   Building broken @ file:///b\nerror: Failed to build `broken @ file:///b`\n"
            "  cause: The build backend returned an error\n  cause: Call to `x` failed (exit status: 1)\n\n"
            "         [stderr]\n         running egg_info\n         libfoo.h is missing\n\n"
            "hint: Build failures usually indicate a problem with the package or the build environment\n",
            "Failed to build `broken @ file:///b`: The build backend returned an error: Call to `x` failed (exit "
            "status: 1): libfoo.h is missing",
        ),
        ("error: Failed to parse: `click=8.0`\n  cause: no such comparison operator\n         click=8.0\n",
            "Failed to parse: `click=8.0`: no such comparison operator click=8.0"),
        (
            "error: Failed\n  cause: it was built\n  [stderr]\n  no compiler\n  cause: exit status 1,\n  as told\n"
            "hint: x\n  cause: of something else\n",
            "Failed: it was built: exit status 1, as told: no compiler",
        ),
        ("error: one thing\n  more about it\n  cause: another:\n  cause: another:\n", "one thing: another"),
        ("Using CPython 3.11\nsomething else\n\n", "something else"),
        ("", ""),
    ],
)  # fmt: skip
def test_the_cause_without_the_progress(output: str, cause: str) -> None:
    assert cause_of(output) == cause


def test_it_is_never_longer_than_a_line_may_be() -> None:
    assert len(cause_of("error: " + "x" * 5000)) == 600
    assert len(cause_of("x" * 5000)) == 600
