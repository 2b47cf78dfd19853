"""The agent on one host: it starts what the controller desires and reports what happened.

One folder a subject. The worker starts no task itself: that is `guardian`.
"""
