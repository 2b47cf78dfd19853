"""The checked-in protobuf code is what the checked-in .proto file generates."""

import os
import subprocess
import sys
from pathlib import Path

REPOSITORY = Path(__file__).resolve().parents[1]


def test_the_generated_code_is_current(tmp_path):
    environment = {**os.environ, "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"}
    script = REPOSITORY / "lib/iris/generate_protos.py"
    subprocess.run([sys.executable, str(script), str(tmp_path)], env=environment, check=True, capture_output=True)
    generated = sorted(path.relative_to(tmp_path) for path in tmp_path.rglob("*_pb2*.py*"))
    assert len(generated) == 24
    stale = [
        str(path)
        for path in generated
        if (tmp_path / path).read_text() != (REPOSITORY / "lib/iris/src" / path).read_text()
    ]
    assert not stale, f"run `uv run --group dev python lib/iris/generate_protos.py` and commit: {stale}"
