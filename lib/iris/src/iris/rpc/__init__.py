"""The wire: protobuf messages, their conversion, tokens, frames of local streams, formats that travel.

Here belongs what both ends must agree on. No decision, no state.
"""
