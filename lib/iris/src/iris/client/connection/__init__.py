"""The connection to the controller: discovery, calls, streams, conversion to and from the wire format.

Only transport belongs here. The client's other modules create the requests.
"""
