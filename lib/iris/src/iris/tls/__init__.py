"""TLS beyond loopback: a cluster's own certificate authority, tokens that pin it, and trust in exactly that one.

Here belong certificates and pins; channels are opened in `iris.rpc.channels`.
"""
