"""Which test runs each fenced block of the documents, and which blocks no test can run, with the reason.

A rule is for the blocks of a page that it matches; the first that matches counts. A new block needs a rule, or falls
under one whose test runs all blocks of its kind on that page.
"""

from dataclasses import dataclass

from tests.docs.blocks import REPOSITORY, FencedBlock


@dataclass(frozen=True)
class Rule:
    """Who runs a block.

    Args:
        run_by: `path::test` that executes it; or `.ci/run`, which has the same line.
        not_run: Why no test can.
        language: Only blocks of this language.
        heading: Only blocks below this heading.
        begins: Only blocks whose first line begins so.
    """

    run_by: str = ""
    not_run: str = ""
    language: str = ""
    heading: str = ""
    begins: str = ""

    def matches(self, block: FencedBlock) -> bool:
        return (
            self.language in ("", block.language)
            and self.heading in ("", block.heading)
            and block.first_line.startswith(self.begins)
        )


def by(test: str, language: str = "", heading: str = "", begins: str = "") -> Rule:
    """A rule with a test; one of this folder has no folder."""
    path = test if "/" in test.partition("::")[0] else f"tests/docs/{test}"
    return Rule(path, "", language, heading, begins)


def none(reason: str, language: str = "", heading: str = "", begins: str = "") -> Rule:
    """A rule of blocks that no test can run."""
    return Rule("", reason, language, heading, begins)


DRAWING = none("a drawing", "text")
SYNOPSIS = "test_commands.py::test_commands_and_options_are_those_of_the_programs"
EXECUTOR = "lib/marin/tests/test_docs.py::test_the_examples_run"
HOW_TO = "test_how_to.py"
README = "test_on_a_cluster.py"
PARTS = "test_parts.py"
PAGES = "test_pages.py"
LIBRARY = f"{PARTS}::test_the_readme_of_a_library_needs_no_other"
CLUSTER_PAGE = "lib/iris/tests/hosts/test_page.py::test_the_commands_of_the_page_make_a_cluster"
OPS = "lib/iris/tests/hosts/test_ops_page.py::test_the_commands_of_the_page"
OPS_BY_SSH = "lib/iris/tests/hosts/test_ops_page.py::test_the_commands_of_a_cluster_whose_machines_iris_makes"
SUITE = by("test_commands.py::test_paths_of_tests_are_there", language="bash", begins="uv run --group dev pytest")
MIGRATE = "lib/marin/tests/migrate/test_page.py"
OWN_CLONE = "tests/packaging/test_own_project.py::test_a_clone_has_all_that_it_needs"
OWN_PROJECT = "tests/packaging/test_own_project.py::test_the_page_from_its_beginning_to_its_end"
QUICKSTART = "tests/quickstart/test_whole.py"
TUTORIAL = [
    by("test_tutorials.py::test_code_on_a_page_is_the_script_s", language="python"),
    by("test_tutorials.py::test_pages_on_a_cluster"),
]
EXAMPLES = [page for page in (REPOSITORY / "docs" / "examples").glob("*.md") if page.stem != "index"]
EXAMPLE = by("tests/examples/test_pages.py::test_the_commands_print_what_the_page_shows")
NEEDS_GOOGLE = "needs an account of Google Cloud"

RULES: dict[str, list[Rule]] = {
    **{f"docs/examples/{page.name}": [EXAMPLE] for page in EXAMPLES},
    "README.md": [
        by(".ci/run", begins="pip install uv && "),
        by(f"{README}::test_the_experiment_of_the_readme", language="python"),
        by(f"{README}::test_the_commands_of_the_readme", begins="uv run iris job run --cpu"),
        by(f"{README}::test_the_marin_commands_of_the_readme", begins="uv run marin runs"),
    ],
    "CONTRIBUTING.md": [by(".ci/run", heading="Set up")],
    "docs/architecture.md": [DRAWING],
    "docs/cheat-sheet.md": [
        by(f"{PAGES}::test_python_of_a_page_is_one_program", language="python"),
        by(SYNOPSIS, language="bash"),
    ],
    "docs/clusters.md": [
        by("test_cluster_file.py::test_a_cluster_file_on_this_machine", heading="A cluster file on your machine"),
        by("test_cluster_file.py::test_an_older_file_is_imported", heading="Files of the ancestor"),
        by(CLUSTER_PAGE, heading="Several hosts, by hand"),
    ],
    "docs/contributing/add-a-backend.md": [
        by(
            "lib/fray/tests/test_testing_plugin.py::test_the_backend_that_the_documents_show_keeps_what_they_say",
            language="python",
        ),
        SUITE,
    ],
    "docs/contributing/add-a-cli-command.md": [by(f"{PARTS}::test_excerpts_are_in_the_source")],
    "docs/contributing/add-an-rpc.md": [by(f"{PARTS}::test_excerpts_are_in_the_source")],
    "docs/contributing/add-a-lease-store.md": [SUITE],
    "docs/contributing/add-a-scheduling-policy.md": [SUITE],
    "docs/contributing/change-the-log-format.md": [SUITE],
    "docs/contributing/tests.md": [none("takes an hour", begins="uv run --group dev python -m tools.mutation")],
    "docs/datasets.md": [by("test_datasets.py::test_the_experiment_of_the_page", language="python")],
    "docs/durability.md": [by("test_parts.py::test_the_files_of_a_remote_state", "text")],
    "docs/executor.md": [by(EXECUTOR, language="python")],
    "docs/experiments.md": [
        by(f"{PAGES}::test_the_experiment_of_the_conventions", language="python"),
        by(f"{PAGES}::test_the_experiment_of_the_conventions", language="bash"),
    ],
    "docs/resources.md": [
        by(f"{PAGES}::test_python_of_a_page_is_one_program", language="python"),
        by(SYNOPSIS, heading="On the command line"),
        by(f"{PAGES}::test_bands_and_budgets", language="bash"),
    ],
    "docs/storage.md": [
        by(f"{PAGES}::test_python_of_a_page_is_one_program", language="python"),
        by(f"{PAGES}::test_a_prefix_of_the_own", begins="export MARIN_PREFIX"),
        by(f"{PAGES}::test_rules_of_a_bucket_are_for_lifetimes_that_there_are", language="json"),
        none(NEEDS_GOOGLE, begins="gcloud storage buckets"),
    ],
    "docs/fray.md": [
        by(f"{PARTS}::test_jobs_of_the_fray_page", heading="fray: one client, several backends"),
        by(f"{PARTS}::test_actors_of_the_fray_page", heading="Actors"),
        by(f"{PARTS}::test_a_test_on_any_backend", heading="In tests"),
        by(
            "lib/fray/tests/test_testing_plugin.py::test_the_backend_that_the_documents_show_keeps_what_they_say",
            heading="A backend of your own",
        ),
    ],
    "docs/how-to/debugging.md": [
        by(f"{HOW_TO}::test_the_launch_configuration_is_json_with_options_that_scripts_have", language="json"),
        none(
            "sessions at a terminal; test_failure_report.py and script/test_main.py have the parts", language="console"
        ),
    ],
    "docs/how-to/logs.md": [by(f"{HOW_TO}::test_the_experiment_and_its_commands")],
    "docs/how-to/moving-from.md": [by(f"{PAGES}::test_python_of_a_page_is_one_program")],
    "docs/how-to/notebooks.md": [by(f"{HOW_TO}::test_the_cells_of_the_notebook_page", language="python")],
    "docs/how-to/retries.md": [by(f"{HOW_TO}::test_the_experiment_and_its_commands")],
    "docs/installation.md": [
        none("changes the machine; the two others that put uv there are run", begins="sudo apt-get install pipx"),
        none("needs docker and a registry of images", begins="docker run"),
        by("tests/packaging/test_installation.py::test_uv_beside_the_system_s_python", heading="uv"),
        by("tests/packaging/test_installation.py::test_marin_in_a_checkout_and_elsewhere", heading="marin"),
        by("tests/packaging/test_installation.py::test_without_a_network", heading="Without a network"),
    ],
    "docs/dashboard.md": [
        by(f"{README}::test_the_dashboard", begins="uv run iris cluster dashboard"),
        none("needs another host", begins="ssh -L"),
    ],
    "docs/gcp.md": [by(SYNOPSIS, language="bash")],
    "docs/iris-cli.md": [
        by(SYNOPSIS, language="bash"),
    ],
    "docs/reference/iris-clusters.md": [
        by(SYNOPSIS, language="bash"),
        by(f"{PARTS}::test_the_cluster_config_is_read", language="yaml"),
    ],
    "docs/how-to/running-tasks.md": [by(SYNOPSIS, language="bash")],
    "docs/how-to/services.md": [by(f"{PARTS}::test_the_receiver_of_notices", language="python")],
    "docs/migrating.md": [
        by(f"{MIGRATE}::test_the_commands_run", language="console"),
        by(f"{MIGRATE}::test_the_lines_shown_are_told", language="text"),
    ],
    "docs/mirror.md": [
        by(f"{PARTS}::test_two_folders_as_regions", begins="$ mkdir -p /tmp/there"),
        none("ten gigabytes in two buckets; lib/rigging/tests/mirror has the same on small ones", language="console"),
        by(f"{PARTS}::test_python_of_the_mirror_page", language="python"),
        by(f"{PARTS}::test_the_mirror_config_is_read", language="yaml"),
    ],
    "docs/own-project.md": [by(OWN_CLONE, heading="Share it"), by(OWN_PROJECT)],
    "docs/query.md": [by(f"{README}::test_the_queries", language="bash")],
    "docs/ray.md": [
        none(NEEDS_GOOGLE, begins="gcloud auth login"),
        none(
            "needs the cluster of infra/marin-cluster.yaml; lib/marin/tests/run has tests of each",
            begins="uv sync",
        ),
        by("lib/marin/tests/run/test_real_ray.py::test_the_documents_command", heading="Submitting"),
        by("lib/marin/tests/run/test_real_ray.py::test_the_documents_job_commands", begins="ray job submit"),
        by(f"{PARTS}::test_python_of_the_ray_page", language="python"),
    ],
    "docs/slurm.md": [none("lib/fray/tests/backends/slurm/test_real_slurm.py has the experiments and --when")],
    "docs/how-to/map-files.md": [by(f"{PARTS}::test_python_of_the_ray_page", language="python")],
    "docs/simulation.md": [by("test_simulation.py::test_the_commands_of_the_page")],
    "docs/tutorials/executor_101.md": TUTORIAL,
    "docs/tutorials/sweep.md": TUTORIAL,
    "docs/tutorials/retries_and_failures.md": TUTORIAL,
    "docs/tutorials/mirrored_inputs.md": TUTORIAL,
    "docs/tutorials/cpu_gang.md": TUTORIAL,
    "docs/tutorials/quickstart.md": [
        by(f"{QUICKSTART}::test_the_commands_of_the_page", language="bash"),
        by(f"{QUICKSTART}::test_the_figures_of_the_page_are_those_of_the_run", language="text"),
    ],
    "docs/containers.md": [none("needs an image; lib/iris/tests/worker/containers runs them", language="bash")],
    "docs/worker.md": [
        by(f"{README}::test_limits_and_usage", language="bash"),
        none("sentences of several ends; lib/iris/tests/worker has each", language="text"),
    ],
    **{f"lib/{name}/README.md": [by(LIBRARY, language="python")] for name in ("rigging", "fray", "marin")},
    "lib/iris/OPS.md": [by(OPS_BY_SSH, heading="A cluster whose machines iris makes"), by(OPS)],
    "lib/iris/README.md": [by(f"{README}::test_the_commands_of_the_iris_readme", language="bash")],
}
