"""A step's return value, kept as JSON beside its output."""

from __future__ import annotations

import dataclasses
import datetime
import enum
import hashlib
import json
import os
import pathlib
import types
import typing
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, Protocol, TypeVar, overload

from marin.output_files import ARTIFACT_DIGEST_FILE, ARTIFACT_FILE
from rigging.errors import InvalidRequest, NotFound
from rigging.filesystem import local_path, read_bytes_or_none, write_bytes_atomic
from rigging.filesystem.fences import check_writable
from rigging.filesystem.location import path_in

T = TypeVar("T")


class HasOutputPath(Protocol):
    """Anything with an output path, such as a `StepSpec`."""

    @property
    def output_path(self) -> str:
        """The path of its output."""
        ...


class ArtifactNotFound(NotFound, FileNotFoundError):
    """The output path has no artifact: its step has not succeeded, or an old release wrote it."""

    __str__ = NotFound.__str__


class DamagedArtifact(InvalidRequest):
    """The stored value was changed or truncated after it was written."""


@dataclass(slots=True)
class PathMetadata:
    """A step's result that consists of one path."""

    path: str


@dataclass(slots=True)
class PathsMetadata:
    """A step's result that consists of several paths below one directory."""

    parent_path: str
    paths: list[str] = field(default_factory=list)


_NOT_GIVEN: Final = object()
_NULL: Final = b"null"


class Artifact:
    """The value that a step's function returned, in `{output path}/.artifact`."""

    @staticmethod
    def save(
        value: Any = _NOT_GIVEN,
        path: str | None = None,
        *,
        artifact: Any = _NOT_GIVEN,
        base_path: str | None = None,
    ) -> None:
        """Store a value at an output path, atomically.

        Args:
            value: None, plain JSON, a dataclass or a pydantic model (stored as its fields), or a nesting of these.
                Enums, paths and times become text.
            path: The output path.
            artifact: Alias of `value`.
            base_path: Alias of `path`.

        Raises:
            InvalidRequest: The value cannot be written as JSON. Nothing is stored.
            LeaseLostError: The path belongs to a step whose lease this process has lost. Nothing is stored.
        """
        stored = value if artifact is _NOT_GIVEN else artifact
        if stored is _NOT_GIVEN:
            raise InvalidRequest("Artifact.save(value, path): the value is missing")
        output_path = _one_path("Artifact.save(value, path)", path, base_path)
        check_writable(output_path)
        write_artifact(
            output_path,
            lambda name, content: write_bytes_atomic(path_in(output_path, name), content),
            artifact_bytes(stored),
        )

    @overload
    @staticmethod
    def load(path: str | HasOutputPath | None = None, *, base_path: str | HasOutputPath | None = None) -> Any: ...

    @overload
    @staticmethod
    def load(
        path: str | HasOutputPath | None = None,
        type: type[T] | None = None,
        *,
        base_path: str | HasOutputPath | None = None,
        artifact_type: type[T] | None = None,
    ) -> T: ...

    @staticmethod
    def load(
        path: str | HasOutputPath | None = None,
        type: Any = None,
        *,
        base_path: str | HasOutputPath | None = None,
        artifact_type: Any = None,
    ) -> Any:
        """Return the value stored at an output path.

        Args:
            path: An output path, or a `StepSpec`, which stands for its output path.
            type: The type to convert to: a dataclass, a pydantic model, or a generic such as `list[PathMetadata]`. None
                returns plain JSON.
            base_path: Alias of `path`.
            artifact_type: Alias of `type`.

        Raises:
            ArtifactNotFound: Nothing is stored at the path.
            DamagedArtifact: The stored value was changed or truncated.
            InvalidRequest: The stored value is not of that type.
        """
        kind = type if artifact_type is None else artifact_type
        output_path = _one_path("Artifact.load(path)", path, base_path)
        file = artifact_path(output_path)
        content = read_bytes_or_none(file)
        if content is None:
            raise ArtifactNotFound(f"no artifact at {file}; the step that writes it has not succeeded")
        if not _is_sound(content, output_path):
            # It may have been stored anew between the two reads.
            content = read_bytes_or_none(file) or b""
            if not _is_sound(content, output_path):
                raise DamagedArtifact(
                    f"artifact {file} is damaged: its digest is not the one in {ARTIFACT_DIGEST_FILE}. Make the output "
                    f"again; if you or an older release wrote the file on purpose, remove {ARTIFACT_DIGEST_FILE}"
                )
        try:
            raw = json.loads(content)
            return raw if kind is None else _decode(kind, raw)
        except (ValueError, TypeError, KeyError, NameError) as error:
            raise InvalidRequest(f"artifact {file} cannot be read as {_label(kind)}: {error}") from error


def _one_path(call: str, path: str | HasOutputPath | None, base_path: str | HasOutputPath | None) -> str:
    given = path if base_path is None else base_path
    if given is None:
        raise InvalidRequest(f"{call}: the output path is missing")
    if isinstance(given, (str, os.PathLike)):
        return os.fspath(given)
    return given.output_path


def artifact_path(output_path: str) -> str:
    """Return the path of the artifact file of an output path."""
    return path_in(output_path, ARTIFACT_FILE)


def write_artifact(output_path: str, write: Callable[[str, bytes], object], content: bytes) -> None:
    """Write an artifact file. On disks, write its digest beside it, in the format of `sha256sum`.

    None has no digest. Buckets check a digest of each object themselves, so a digest file there would only add
    requests.

    Args:
        output_path: The output path of the step.
        write: Writes a file of the output path, given its name and content.
        content: The result of `artifact_bytes`.
    """
    write(ARTIFACT_FILE, content)
    if content != _NULL and local_path(output_path) is not None:
        write(ARTIFACT_DIGEST_FILE, f"{hashlib.sha256(content).hexdigest()}  {ARTIFACT_FILE}\n".encode())


def _is_sound(content: bytes, output_path: str) -> bool:
    """Return whether a value matches its stored digest. Values without a digest, from older releases, pass."""
    if content == _NULL or local_path(output_path) is None:
        return True
    digest = read_bytes_or_none(path_in(output_path, ARTIFACT_DIGEST_FILE))
    return digest is None or digest.split()[:1] == [hashlib.sha256(content).hexdigest().encode()]


def artifact_bytes(value: Any) -> bytes:
    """Return the content of an artifact file.

    Raises:
        InvalidRequest: The value has no JSON form.
    """
    if value is None:
        return _NULL
    try:
        _check_keys(value)
        return json.dumps(value, default=_encode_checked).encode()
    except (TypeError, ValueError, RecursionError) as error:
        raise InvalidRequest(
            f"a value of type {type(value).__name__} cannot be stored as JSON ({error}); return plain values, a "
            "dataclass or a pydantic model"
        ) from error


def _encode_checked(value: Any) -> Any:
    encoded = _encode(value)
    _check_keys(encoded)
    return encoded


def _check_keys(value: Any) -> None:
    """Refuse a dict with two keys of the same JSON text: one of the values would be lost."""
    if isinstance(value, dict):
        if any(type(key) is not str for key in value):
            texts: dict[str, Any] = {}
            for key in value:
                text = key if isinstance(key, str) else json.dumps(key)
                if text in texts:
                    raise TypeError(f"the keys {texts[text]!r} and {key!r} of a dict have the same JSON text")
                texts[text] = key
        for item in value.values():
            _check_keys(item)
    elif isinstance(value, (list, tuple)):
        for item in value:
            _check_keys(item)


def _encode(value: Any) -> Any:
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {item.name: getattr(value, item.name) for item in dataclasses.fields(value)}
    if hasattr(type(value), "model_dump"):
        return value.model_dump(mode="json")  # pydantic, recognised without importing it
    if isinstance(value, enum.Enum):
        return value.value
    if isinstance(value, os.PathLike):
        return os.fspath(value)
    if isinstance(value, (datetime.datetime, datetime.date, datetime.time)):
        return value.isoformat()
    if isinstance(value, datetime.timedelta):
        return value.total_seconds()
    if isinstance(value, Mapping):
        return dict(value)
    if isinstance(value, (set, frozenset)):
        return sorted(value)
    if hasattr(value, "item") and getattr(value, "ndim", None) == 0:
        return value.item()  # a numpy scalar
    raise TypeError(f"{type(value).__name__} has no JSON form")


def _label(type_: Any) -> str:
    return "JSON" if type_ is None else getattr(type_, "__name__", str(type_))


def _decode(type_: Any, raw: Any) -> Any:
    """Return `raw` converted to a type, or `raw` itself for a type without a conversion rule."""
    origin = typing.get_origin(type_)
    if origin is not None:
        return _decode_generic(origin, typing.get_args(type_), raw)
    if not isinstance(type_, type):
        return raw
    if dataclasses.is_dataclass(type_):
        return _decode_dataclass(type_, raw)
    if hasattr(type_, "model_validate"):
        return type_.model_validate(raw)
    if issubclass(type_, (datetime.datetime, datetime.date, datetime.time)):
        return type_.fromisoformat(raw)
    if issubclass(type_, datetime.timedelta):
        return type_(seconds=raw)
    if issubclass(type_, enum.Enum):
        return _decode_enum(type_, raw)
    if issubclass(type_, tuple) and hasattr(type_, "_fields"):
        hints = typing.get_type_hints(type_)
        return type_(*(_decode(hints.get(name), item) for name, item in zip(type_._fields, raw, strict=True)))
    if issubclass(type_, (pathlib.PurePath, set, frozenset, tuple)):
        return type_(raw)
    expected = (int, float) if type_ is float else type_
    if type_ in (str, int, float, bool, list, dict, types.NoneType) and not isinstance(raw, expected):
        raise TypeError(f"expected {type_.__name__}, not {raw!r}")
    return raw


def _decode_enum(type_: type[enum.Enum], raw: Any) -> Any:
    for member in type_:
        # Of a member whose value is a tuple, or another that JSON has not, the stored form is another value.
        if member.value == raw or json.loads(json.dumps(member.value, default=_encode)) == raw:
            return member
    return type_(raw)


def _decode_dataclass(type_: type[Any], raw: Any) -> Any:
    if not isinstance(raw, dict):
        raise TypeError(f"expected the fields of {type_.__name__}, not {raw!r}")
    hints = typing.get_type_hints(type_)
    fields = {item.name: item for item in dataclasses.fields(type_)}
    unknown = sorted(raw.keys() - fields.keys())
    if unknown:
        raise TypeError(f"{type_.__name__} has no field {unknown[0]!r}; it has {', '.join(fields)}")
    return type_(**{name: _decode(hints[name], value) for name, value in raw.items() if fields[name].init})


def _decode_generic(origin: Any, arguments: tuple[Any, ...], raw: Any) -> Any:
    if origin in (typing.Union, types.UnionType):
        return _decode_union(arguments, raw)
    if origin is typing.Literal:
        return _decode_literal(arguments, raw)
    if origin is tuple and arguments[-1] is not Ellipsis:
        return tuple(_decode(kind, item) for kind, item in zip(arguments, raw, strict=True))
    if isinstance(origin, type) and issubclass(origin, Mapping):
        return {_decode_key(arguments[0], key): _decode(arguments[1], item) for key, item in raw.items()}
    if origin in (list, tuple, set, frozenset):
        return origin(_decode(arguments[0], item) for item in raw)
    return [_decode(arguments[0], item) for item in raw] if isinstance(raw, list) else raw


def _decode_literal(arguments: tuple[Any, ...], raw: Any) -> Any:
    for value in arguments:
        plain = value.value if isinstance(value, enum.Enum) else value
        if plain == raw and type(plain) is type(raw):
            return value
    raise TypeError(f"expected one of {', '.join(map(repr, arguments))}, not {raw!r}")


def _decode_key(type_: Any, key: str) -> Any:
    if type_ in (bool, types.NoneType):
        key = json.loads(key)
    if isinstance(type_, type) and issubclass(type_, enum.Enum):
        # JSON has texts as keys, whatever the members' values are.
        found = [m for m in type_ if key == (m.value if isinstance(m.value, str) else json.dumps(m.value, default=str))]
        return found[0] if found else type_(key)
    return _decode(type_, type_(key) if type_ in (int, float) else key)


def _decode_union(alternatives: tuple[Any, ...], raw: Any) -> Any:
    if raw is None and types.NoneType in alternatives:
        return None
    problems = []
    found: list[Any] = []
    for alternative in alternatives:
        if alternative is not types.NoneType and not (found and not _has_fields(alternative)):
            try:
                found.append(_decode(alternative, raw))
            except (ValueError, TypeError, KeyError) as error:
                problems.append(str(error))
            if found and not _has_fields(type(found[0])):
                break
    if len(found) > 1:
        names = " and ".join(type(value).__name__ for value in found)
        raise TypeError(f"it fits {names}; load it as one of them")
    if not found:
        raise TypeError("; ".join(problems) or f"{raw!r} fits none of the alternatives")
    return found[0]


def _has_fields(type_: Any) -> bool:
    """Return whether values of a type have named fields. JSON keeps the names but not the type."""
    return dataclasses.is_dataclass(type_) or hasattr(type_, "model_validate")
