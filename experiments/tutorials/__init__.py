"""Small experiments to learn from."""
