"""The gRPC services: decode, one decision of the controller, encode.

One file per service. There are no rules and no SQL here.
"""
