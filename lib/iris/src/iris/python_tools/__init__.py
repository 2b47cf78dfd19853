"""Python programs, requirements files and uv, as clients and workers need them."""
