"""The hello-world experiment under its tutorial name: `python -m experiments.tutorials.hello_world`."""

from experiments.hello_world import compute_stats, data, generate_data, main, stats

__all__ = ["compute_stats", "data", "generate_data", "main", "stats"]

if __name__ == "__main__":
    main()
