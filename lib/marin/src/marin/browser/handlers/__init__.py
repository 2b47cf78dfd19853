"""The pages: each takes the site and a request, and returns an answer."""
