"""The gRPC services: each RPC decodes a request, makes one decision of the controller, and encodes the answer.

One file per service. Rules and SQL do not belong here.
"""
