"""What an attempt needs before it starts: its code, its Python environment, its variables."""
