"""TLS beyond loopback: a cluster's own certificate authority, tokens that pin it, and trust in that authority only.

For certificates and pins; `iris.rpc.channels` opens channels.
"""
