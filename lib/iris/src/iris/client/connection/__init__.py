"""Reaching the controller: discovery, calls, streams, conversion to and from the wire."""
