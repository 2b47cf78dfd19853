"""Protobuf and gRPC code that `lib/iris/generate_protos.py` writes from the .proto files beside it; never edited."""
