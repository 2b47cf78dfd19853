"""What is told of a YAML file that cannot be read."""

from pathlib import Path

import pytest
import yaml

from rigging.errors import InvalidRequest
from rigging.text.yaml_files import dump_yaml, fill_variables, unset_variables, yaml_errors


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b"a: 1\nb: [hf_abcDEF123456\nc: 2\n", r"^cannot read {}:3: while parsing a flow sequence, [^\n]*$"),
        (b"[" * 5000, r"^cannot read {}: it is nested too deeply$"),
        (b"a: \xff\n", r"^cannot read {}: 'utf-8' codec"),
        (b"a: \x07\n", r"^cannot read {}: unacceptable character"),
        (None, r"^cannot read {}: .*No such file"),
    ],
)
def test_the_file_the_line_and_the_problem_without_the_text_around_it(
    content: bytes | None, said: str, tmp_path: Path
) -> None:
    path = tmp_path / "x.yaml"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(InvalidRequest, match=said.format(path)) as caught, yaml_errors(path):
        yaml.safe_load(path.read_text(encoding="utf-8"))
    assert "hf_abc" not in str(caught.value)


def test_variables_are_replaced_in_values_and_not_shown() -> None:
    again: dict[str, object] = {"${A}": "${A}-$$", "list": ["${B}", 1, None]}
    again["self"] = again
    filled = fill_variables({"x": again, "plain": "$5 {A}"}, {"A": "sesame"})
    inner = filled["x"]
    assert (inner["${A}"], inner["self"] is inner, filled["plain"]) == ("sesame-$", True, "$5 {A}")
    assert repr(inner["${A}"]) == repr("${A}-$$")
    assert unset_variables(inner["list"]) == ("B",)
    assert unset_variables(inner["${A}"]) == ()
    assert dump_yaml({"a": inner["${A}"]}) == "a: ${A}-$$\n"
