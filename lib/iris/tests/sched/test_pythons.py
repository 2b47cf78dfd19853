import pytest

from iris.domain.runtime import PackageSource, TaskRuntime
from iris.sched.pythons import PYTHON_VERSIONS_ATTRIBUTE, explain_python

OLD = {PYTHON_VERSIONS_ATTRIBUTE: "3.9,3.11"}
NEW = {PYTHON_VERSIONS_ATTRIBUTE: "3.11,3.12"}


@pytest.mark.parametrize(
    ("request_", "workers", "reason"),
    [
        ("3.13", [OLD, NEW], "needs Python 3.13; the workers have 3.9, 3.11, 3.12"),
        (">=3.13", [OLD, NEW], "needs Python >=3.13; the workers have 3.9, 3.11, 3.12"),
        ("3.12.7", [OLD], "needs Python 3.12.7; the workers have 3.9, 3.11"),
        ("3.12.7", [OLD, NEW], None),
        (">=3.12.3,<3.13", [NEW], None),
        ("3.13", [OLD, {}], None),  # one that does not say
        ("3.13", [], None),
        ("", [OLD], None),
    ],
)
def test_a_python_that_no_worker_has_is_named_with_those_there_are(request_, workers, reason):
    assert explain_python(TaskRuntime(python=request_), workers) == reason


def test_what_is_on_the_submitters_machine_may_be_anything():
    submitters = TaskRuntime(python="3.13", packages=PackageSource.SUBMITTER, environment_path="/v")
    assert explain_python(submitters, [OLD]) is None
    assert explain_python(TaskRuntime(python="3.13", interpreter="/p"), [OLD]) is None
