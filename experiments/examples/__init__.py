"""Small programs, each for one task; docs/examples has a page for each."""
