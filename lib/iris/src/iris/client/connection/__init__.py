"""The connection to the controller: discovery, calls, streams, conversion to and from the wire format.

Only the transport of calls belongs here. The client's other modules decide what to request.
"""
