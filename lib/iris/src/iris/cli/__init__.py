"""The command line `iris <noun> <verb>`, built on the public client API.

Options, output and exit codes belong here. Nothing here imports controller, worker or store.
"""
