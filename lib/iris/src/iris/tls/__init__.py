"""TLS beyond loopback: a cluster's own certificate authority, tokens that pin it, and trust in exactly that one."""
