"""The wire: protobuf messages, their conversion, tokens, frames of local streams, shared formats.

For what both ends must agree on. Contains no decisions and no state.
"""
