"""Lines of documents that call our programs, checked against the programs' own command lines."""

import importlib
import re
from collections.abc import Iterator
from dataclasses import dataclass

import click

_START = re.compile(
    r"^(?:\$ )?(?:\w+=\S* )*(?:uv run (?:--\S+ (?:\w+ )?)*)?(?P<program>iris|marin|fray)(?P<rest>(?: .*)?)$", re.DOTALL
)
_OPTION = re.compile(r"(?<![\w-])--?[a-zA-Z][\w-]*")


@dataclass(frozen=True)
class Wrong:
    """A line that the program would not take, and why."""

    line: str
    why: str

    def __str__(self) -> str:
        return f"`{self.line}`: {self.why}"


def command_lines(text: str) -> Iterator[str]:
    """Lines of a shell block, continued ones as one, without comments and output."""
    joined = re.sub(r"\\\n", " ", text)
    joined = re.sub(r"\n {6,}(?=\S)", " ", joined)
    for line in joined.splitlines():
        bare = re.sub(r"(^|\s{1,})#\s.*$", "", line).strip()
        for part in bare.split(" && "):
            if _START.match(part):
                yield part


def inline_commands(page: str) -> Iterator[str]:
    """Code spans of a page, outside of its fences, that call one of our programs with a word."""
    outside = re.sub(r"^ *```.*?^ *```", "", page, flags=re.DOTALL | re.MULTILINE)
    for span in re.findall(r"(?<!`)`([^`\n]+)`(?!`)", outside):
        found = _START.match(span.strip())
        if found is not None and found["rest"].strip():
            yield span.strip()


def check_line(line: str) -> list[Wrong]:
    """What is wrong with a line; a synopsis (`[--json]`, `get|list`, `NAME`) is read as one."""
    found = _START.match(line)
    assert found is not None, line
    root: click.Command = importlib.import_module(f"{found['program']}.cli.main").cli
    return [Wrong(line, why) for why in _check(root, found["rest"].split(" -- ")[0].strip(), [])]


def _check(command: click.Command, rest: str, above: list[click.Command]) -> Iterator[str]:
    # With its own settings: commands keep the help option of the first context that asks for it.
    context = click.Context(command, **command.context_settings)
    if not isinstance(command, click.Group):
        yield from _check_options(rest, [command, *above])
        return
    words = rest.split()
    for index, word in enumerate(words):
        if word.startswith("-") or (index and _takes_value(command, context, words[index - 1])):
            continue
        if re.fullmatch(r"[A-Z.…\[\]*]+.*", word):
            return  # a placeholder: `iris job ...`
        yield from _check_options(" ".join(words[:index]), [command, *above])
        after = " ".join(words[index + 1 :])
        for choice in word.split("|"):
            found = command.get_command(context, choice)
            if found is None:
                yield f"{command.name} has no command {choice!r}"
                continue
            if isinstance(found, click.Group):
                yield from _check(found, after, [command, *above])
                continue
            first, *others = re.split(r"(?<=\S) \| (?=[a-z])", after)  # `create USER | list [--json]`
            yield from _check(found, first, [command, *above])
            for other in others:
                again = _START.match(other)
                yield from _check((above[-1] if again else command), again["rest"].strip() if again else other, above)
        return
    yield from _check_options(rest, [command, *above])


def _check_options(rest: str, commands: list[click.Command]) -> Iterator[str]:
    known = {"--help"}
    for command in commands:
        for parameter in command.params:
            known.update([*parameter.opts, *parameter.secondary_opts])
    bare = re.sub(r"'[^']*'|\"[^\"]*\"", "''", rest)
    for option in _OPTION.findall(bare):
        if option not in known:
            yield f"{commands[0].name} has no option {option}"


def _takes_value(command: click.Command, context: click.Context, word: str) -> bool:
    for parameter in command.get_params(context):
        if isinstance(parameter, click.Option) and word in parameter.opts:
            return not parameter.is_flag
    return False
