"""Pass requests on to servers of users behind the login: an application for an origin of its own.

Which servers there are is the caller's affair.
"""
