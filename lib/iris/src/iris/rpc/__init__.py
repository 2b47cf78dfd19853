"""The wire: protobuf messages, their conversion, tokens, frames of local streams, formats that travel."""
