"""The handlers of the experiment pages. Each takes the site and a request, and returns a response.

There is one file per kind of page. Storage is read in `marin.recorded`.
"""
