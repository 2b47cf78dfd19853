import pytest

from rigging import errors


@pytest.mark.parametrize(
    ("error", "builtin"),
    [
        (errors.InvalidRequest, ValueError),
        (errors.NotFound, KeyError),
        (errors.AlreadyExists, FileExistsError),
        (errors.Conflict, RuntimeError),
        (errors.Unavailable, RuntimeError),
        (errors.Denied, PermissionError),
        (errors.JobFailed, RuntimeError),
        (errors.StepFailed, RuntimeError),
        (errors.LeaseLost, RuntimeError),
        (errors.BudgetExceeded, RuntimeError),
        (errors.DeadlineExceeded, TimeoutError),
    ],
)
def test_error_is_caught_as_builtin_with_message(error: type[errors.MarinError], builtin: type[Exception]) -> None:
    with pytest.raises(builtin) as caught:
        raise error('no job "a"')
    assert isinstance(caught.value, errors.MarinError)
    assert str(caught.value) == 'no job "a"'


def test_only_unavailable_is_retryable() -> None:
    classes = [c for c in vars(errors).values() if isinstance(c, type) and issubclass(c, errors.MarinError)]
    assert [c for c in classes if c.retryable] == [errors.Unavailable]
