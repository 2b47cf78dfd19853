"""A gang with `psum`: two tasks of a job form one distributed JAX program, and each gets the sum over both.

iris job run --replicas 2 --extra quickstart-model -- python -m experiments.examples.psum
"""

import os

from iris.runtime.jax_init import initialize_jax


def main() -> None:
    """Sum over the devices of all tasks."""
    os.environ.setdefault("JAX_PLATFORMS", "cpu")
    initialize_jax()
    import jax
    import jax.numpy as jnp

    task, tasks = jax.process_index(), jax.process_count()
    # One value for each of this task's devices: 1 in task 0, 2 in task 1.
    mine = jnp.full((jax.local_device_count(),), task + 1.0)
    summed = jax.pmap(lambda value: jax.lax.psum(value, "devices"), axis_name="devices")(mine)
    print(f"task {task} of {tasks}: {mine[0]:.0f} here, {summed[0]:.0f} over {jax.device_count()} devices", flush=True)


if __name__ == "__main__":
    main()
