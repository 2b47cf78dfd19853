"""Command lines of the documents, and of our own, as the `ray` program that is installed reads them."""

import shlex

import click
import pytest
from ray.scripts import scripts

from marin.run.cluster import ray_commands
from marin.run.cluster.ray_commands import RayCommand

FILE = "infra/marin-cluster.yaml"
DOCUMENTS = (
    f"ray dashboard {FILE}",
    f"ray up -y {FILE} ",
    f"ray down -y {FILE}",
    f'ray exec {FILE} "tail -n 100 -f /tmp/ray/session_latest/logs/monitor*"',
    f"ray attach {FILE}",
)
OURS = (
    ray_commands.up(FILE),
    ray_commands.up(FILE, keep_running=True),
    ray_commands.down(FILE),
    ray_commands.down(FILE, workers_only=True),
    ray_commands.attach(FILE),
    ray_commands.execute(FILE, "ls"),
    ray_commands.monitor(FILE, 5),
    ray_commands.dashboard(FILE, 8265),
    ray_commands.fetch_unpacked(FILE, "_ray_pkg_1.zip", "here/"),
)


@pytest.mark.parametrize("words", [*(tuple(shlex.split(line)[1:]) for line in DOCUMENTS), *(c.words for c in OURS)])
def test_ray_knows_the_options(words: tuple[str, ...]) -> None:
    command = scripts.cli.get_command(click.Context(scripts.cli), words[0])
    context = command.make_context(words[0], list(words[1:]))
    assert context.params["cluster_config_file"] == FILE


def test_what_the_cluster_wrapper_runs_for_a_command_of_the_documents_is_that_command() -> None:
    assert [str(RayCommand(ray_commands.down(FILE).words)), str(ray_commands.attach(FILE))] == [
        DOCUMENTS[2],
        DOCUMENTS[4],
    ]
    assert str(ray_commands.up(FILE)).endswith(DOCUMENTS[1].strip())
