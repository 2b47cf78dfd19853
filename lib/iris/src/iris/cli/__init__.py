"""The command line `iris <noun> <verb>`, built on the public client API.

Options, output and exit codes belong here. Nothing here imports the controller, the worker or the store.
"""
