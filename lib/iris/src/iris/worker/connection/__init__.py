"""The session with the controller: one stream, reopened when it breaks.

Only this folder of the worker sees protobuf messages.
"""
