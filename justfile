# Common tasks. `just` alone lists them; `uvx --from rust-just just` runs them without an installation.

# List the tasks.
default:
    @just --list --unsorted

# Check style, layering and types.
check:
    uv run --group dev ruff check .
    uv run --group dev ruff format --check .
    uv run --group dev lint-imports
    uv run --group dev mypy

# Fix what the linters can fix.
fix:
    uv run --group dev ruff check --fix .
    uv run --group dev ruff format .

# Run the fast tests (three minutes on two cores), or a part: just test lib/iris/tests/sched
test *ARGS:
    uv run --group dev pytest {{ARGS}}

# Run the tests that need processes, browsers, terminals, Ray or packages (twelve minutes).
test-process *ARGS:
    uv run --group dev pytest -m process {{ARGS}}

# Run the long tests: every simulation seed, Ray in full, containers, whole documents (hours).
soak *ARGS:
    uv run --group dev pytest -m soak {{ARGS}}

# Build the documents' site and serve it.
docs:
    uv run --group docs python docs/build_site.py --serve

# Run a benchmark, or list them: just bench iris_jobs --help
bench NAME="" *ARGS:
    @{{ if NAME == "" { "ls benchmarks/*.py" } else { "uv run --group dev python -m benchmarks." + NAME + " " + ARGS } }}

# Run all that continuous integration runs.
ci:
    .ci/run
