"""The pages of the reference: every public name of the libraries, from its docstring."""

import ast
import importlib
import inspect
from collections.abc import Iterator
from dataclasses import dataclass, field

# What people import, by page; of a name that several modules have, the first has the text.
PUBLIC_MODULES: dict[str, tuple[str, ...]] = {
    "marin": (
        "marin.execution",
        "marin.execution.remote",
        "marin.execution.step_spec",
        "marin.execution.step_runner",
        "marin.execution.executor",
        "marin.execution.executor_step_status",
        "marin.execution.artifact",
        "marin.execution.disk_cache",
        "marin.execution.config_model",
        "marin.execution.sweep",
        "marin.execution.explain",
        "marin.execution.run_events",
        "marin.metrics",
        "marin.run",
        "marin.utils",
    ),
    "fray": (
        "fray",
        "fray.types",
        "fray.client",
        "fray.current_client",
        "fray.actor",
        "fray.replica",
        "fray.local_backend",
        "fray.cluster",
        "fray.capabilities",
        "fray.errors",
    ),
    "iris": (
        "iris",
        "iris.client",
        "iris.cluster.types",
        "iris.cluster.constraints",
        "iris.actor",
        "iris.client.worker_pool",
    ),
    "rigging": (
        "rigging.filesystem",
        "rigging.distributed_lock",
        "rigging.timing",
        "rigging.clock",
        "rigging.errors",
        "rigging.topology",
        "rigging.config_discovery",
        "rigging.log_setup",
        "rigging.redaction",
    ),
}


@dataclass
class ApiPage:
    """One page of the reference.

    Args:
        library: What the page is about.
        lines: Its Markdown.
        covered: Every name on it, with its module.
    """

    library: str
    lines: list[str] = field(default_factory=list)
    covered: set[str] = field(default_factory=set)

    @property
    def text(self) -> str:
        return "\n".join(self.lines) + "\n"


def api_pages() -> Iterator[ApiPage]:
    """Write a page a library, in which each object has its text once, where it is met first."""
    told: dict[int, str] = {}
    for library, modules in PUBLIC_MODULES.items():
        page = ApiPage(library, [f"# {library}: every public name", ""])
        for module in modules:
            _add_module(page, module, told)
        yield page


def public_names(module_name: str) -> list[str]:
    """The names that a module gives: its `__all__`, else what is defined in it without an underscore."""
    module = importlib.import_module(module_name)
    listed: list[str] | None = getattr(module, "__all__", None)
    if listed is not None:
        return sorted(listed)
    return [name for name in _defined(inspect.getsource(module)) if not name.startswith("_")]


def _defined(source: str) -> Iterator[str]:
    for node in ast.parse(source).body:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            yield node.name
        elif isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
            yield node.target.id
        elif isinstance(node, ast.Assign):
            yield from (target.id for target in node.targets if isinstance(target, ast.Name))


def _add_module(page: ApiPage, module_name: str, told: dict[int, str]) -> None:
    module = importlib.import_module(module_name)
    page.lines += [f"## `{module_name}`", "", inspect.cleandoc(module.__doc__ or ""), ""]
    elsewhere: list[str] = []
    for name in public_names(module_name):
        path = f"{module_name}.{name}"
        page.covered.add(path)
        value = getattr(module, name)
        has_identity = inspect.isclass(value) or inspect.isroutine(value)
        if has_identity and id(value) in told:
            elsewhere.append(f"[`{name}`][{told[id(value)]}]")
            continue
        if has_identity:
            told[id(value)] = path
        page.lines += _entry(path, name, value)
    if elsewhere:
        page.lines += ["Also here: " + ", ".join(elsewhere) + ".", ""]


def _entry(path: str, name: str, value: object) -> list[str]:
    if not (inspect.isclass(value) or inspect.isroutine(value)):
        shown = repr(value)
        text = f"`{shown}`" if len(shown) < 80 and " at 0x" not in shown else f"A `{type(value).__name__}`."
        return [f"### `{name}` {{ #{path} }}", "", text, ""]
    return [f"::: {path}", ""]
