"""Small programs, one per task. docs/examples has a page for each."""
