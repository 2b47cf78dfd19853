"""Jobs on Ray, in the process that submitted them: launch, watch, cancel, classify.

Nothing here runs in Ray's worker processes.
"""
