"""The wire: protobuf messages, their conversion, tokens, frames of local streams, shared formats.

Code that both ends share belongs here, without decisions or state.
"""
