"""The session with the controller: one stream, reopened when it breaks.

The only folder of the worker that uses protobuf messages.
"""
