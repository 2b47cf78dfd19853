"""Jobs on Ray, in the process that submitted them: launching, watching, cancelling, classifying.

No code here runs in Ray's worker processes.
"""
