"""Write the Python code and the type stubs of `iris/rpc/generated/*.proto` (run after every change of a .proto file).

Usage: uv run --group dev python lib/iris/generate_protos.py [OUTPUT_DIR]
"""

import sys
from pathlib import Path

import grpc_tools
from grpc_tools import protoc

SOURCE_ROOT = Path(__file__).parent / "src"


def generate(output_root: Path) -> list[Path]:
    """Compile every proto file below `iris/rpc` into `output_root`; return the files written."""
    protos = sorted(str(p.relative_to(SOURCE_ROOT)) for p in SOURCE_ROOT.glob("iris/rpc/generated/*.proto"))
    well_known = Path(grpc_tools.__file__).parent / "_proto"
    arguments = [
        "protoc",
        f"--proto_path={SOURCE_ROOT}",
        f"--proto_path={well_known}",
        f"--python_out={output_root}",
        f"--grpc_python_out={output_root}",
        f"--mypy_out=quiet:{output_root}",
        f"--mypy_grpc_out=quiet:{output_root}",
        *protos,
    ]
    if protoc.main(arguments) != 0:
        raise SystemExit("protoc failed; its message is above")
    return sorted(output_root.glob("iris/rpc/generated/*_pb2*.py*"))


if __name__ == "__main__":
    for path in generate(Path(sys.argv[1]) if len(sys.argv) > 1 else SOURCE_ROOT):
        print(path)
