"""TLS beyond loopback. Each cluster has its own certificate authority (CA); its tokens pin the CA, and clients trust
only that CA.

`iris.rpc.channels` opens the channels.
"""
