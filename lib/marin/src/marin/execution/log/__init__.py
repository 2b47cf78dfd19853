"""What steps print, and the log beside their output: written by the run and by the processes of steps' jobs, in parts.

A part is one process's; `writer` writes it, `sections` finds it again. It needs neither run nor cluster to be complete.
"""
