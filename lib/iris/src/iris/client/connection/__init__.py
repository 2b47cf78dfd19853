"""Connect to the controller: discovery, calls, streams, conversion to and from the wire.

Here belongs how a call travels; what it asks for is the client's other modules'.
"""
