import pytest

from iris.domain.runtime import (
    PackageSource,
    TaskRuntime,
    parse_runtime,
    runtime_to_json,
    validate_runtime,
)
from rigging.errors import InvalidRequest

FULL = TaskRuntime("sub/dir", "proj", "3.12", PackageSource.SUBMITTER, "/venv", "/usr/bin/python3")


@pytest.mark.parametrize("runtime", [TaskRuntime(), FULL])
def test_what_is_written_is_read_again(runtime: TaskRuntime) -> None:
    import json

    validate_runtime(runtime)
    assert parse_runtime(json.dumps(runtime_to_json(runtime)), "X") == runtime
    assert parse_runtime("", "X") == TaskRuntime()


@pytest.mark.parametrize("text", ["[]", "{", '{"x": 1}', '{"packages": 99}', '{"python": 3}'])
def test_what_describes_no_runtime_is_named(text: str) -> None:
    with pytest.raises(InvalidRequest, match=r"X=.* does not describe a runtime"):
        parse_runtime(text, "X")


@pytest.mark.parametrize(
    ("runtime", "words"),
    [
        (TaskRuntime(working_dir="/etc"), "working_dir is '/etc'; it must be a relative path"),
        (TaskRuntime(working_dir="a/../b"), "working_dir"),
        (TaskRuntime(working_dir="a/"), "working_dir"),
        (TaskRuntime(working_dir="a\0b"), "working_dir"),
        (TaskRuntime(project_dir=".."), "project_dir is '..'"),
        (TaskRuntime(python="--help"), "python is '--help'; write a version"),
        (TaskRuntime(python="/usr/bin/python"), "python is"),
        (TaskRuntime(interpreter="python3"), "interpreter is 'python3'; it must be an absolute path"),
        (TaskRuntime(packages=PackageSource.SUBMITTER), "environment_path is ''"),
        (TaskRuntime(packages=PackageSource.LOCK, environment_path="/x"), "environment_path is '/x'"),
    ],
)
def test_what_no_job_can_have_is_refused_by_name(runtime: TaskRuntime, words: str) -> None:
    with pytest.raises(InvalidRequest, match=words):
        validate_runtime(runtime)


@pytest.mark.parametrize(
    "image", ["py:3", "localhost:5000/a/b:v1", "docker:27", "ghcr.io/Org/x_y@sha256:0" + "0" * 63, "localhost/a-b"]
)
def test_a_reference_of_a_registry_is_an_image(image: str) -> None:
    validate_runtime(TaskRuntime(image=image))


@pytest.mark.parametrize(
    "image",
    ["--privileged", "-v/:/host", "dir:/etc", "oci-archive:x.tar", "docker-archive:/root/x", "docker://x", "a b"],
)
def test_options_and_files_of_the_host_are_no_image(image: str) -> None:
    with pytest.raises(InvalidRequest, match=r"image is .*; write a reference such as"):
        validate_runtime(TaskRuntime(image=image))
