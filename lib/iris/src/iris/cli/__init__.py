"""The command line `iris <noun> <verb>`, a user of the client API that everybody has.

Here belong options, output and exit codes. Nothing here imports controller, worker or store.
"""
