"""The experiment pages: each takes the site and a request, and returns a response.

One file a kind of page. Reading storage is `marin.recorded`.
"""
