"""The gRPC services: wire in, one decision of the controller, wire out.

One file a service. No rule and no SQL here.
"""
