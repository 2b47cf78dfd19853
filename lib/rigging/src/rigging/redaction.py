"""Keep secrets out of logs, status and bug reports.

A secret is recognised by its form (hf_..., ghp_..., sk-..., AIza..., Bearer ..., a URL's user part) or by its name
(HF_TOKEN=..., "password": "..."). Common names that only look like secrets, such as max_tokens or eos_token, are not
redacted. Redaction is idempotent.
"""

import collections
import functools
import json
import math
import re
from collections.abc import Iterable, Mapping
from typing import Any

REDACTED = "[REDACTED]"

_SHAPES = re.compile(
    r"""
    (?<![A-Za-z0-9_-])(?:
        hf_(?=[A-Za-z]*[0-9A-Z])[A-Za-z0-9]{6,}         # Hugging Face; hf_transfer is a package
      | gh[pousr]_[A-Za-z0-9]{6,} | github_pat_\w{6,}   # GitHub
      | glpat-[\w-]{6,}                                 # GitLab
      | sk-(?=[\w-]*\d)[\w-]{8,} | sk-\w[\w-]{19,}      # OpenAI, Anthropic
      | AIza[\w-]{6,} | ya29\.[\w-]{6,}                 # Google
      | xox[abprs]-[\w-]{6,}                            # Slack
      | (?:AKIA|ASIA)[A-Z0-9]{16}                       # AWS
      | iris-(?:join-)?v1\.[\w.:/@+=\#-]{16,}          # tokens of clusters, as they are shown once
      | [acjnuw]:[\w/.@+=\#-]{1,300}(?::\d+)?:(?:[0-9a-f]{8}\.)?[\w-]{43,64}   # and as a controller is shown them
      | hooks\.slack\.com/services/[\w/]{8,} | discord(?:app)?\.com/api/webhooks/[\w/-]{8,}
      | eyJ[\w-]{8,}\.[\w-]{4,}\.[\w-]*                 # JSON web token
    )
    | -----BEGIN\ [A-Z ]*PRIVATE\ KEY-----.*?(?:-----END\ [A-Z ]*PRIVATE\ KEY-----|\Z)
    """,
    re.VERBOSE | re.DOTALL,
)
# A text without any of these beginnings, in lower case, is not searched by shape: most are paths and words. No classes
# of characters, which would double the time.
_ANY_SIGN = re.compile(
    r"hf_|ghp_|gho_|ghu_|ghs_|ghr_|github_pat_|glpat-|sk-|aiza|ya29\.|xox|akia|asia|iris-|a:|c:|j:|n:|u:|w:|eyj|-----begin"
    r"|bearer|basic|authorization|hooks\.slack|webhooks|@"
)
_AUTHORIZATION = re.compile(
    r"\b(Bearer|Basic|(?<=authorization: )(?:token|apikey))(\s+)(?=\S*[0-9]|\S{8})[^\s\"',;]+", re.IGNORECASE
)
_USERINFO = re.compile(r"(?<=://)(?!git@)[^/\s@\"']+(?=@)")
# Names start where no name goes on before, and give nothing back once read: otherwise a long line costs its square.
_NAME = r"(?<![\w.\-])(?P<name>-*+\w[\w.\-]*+)"
_VALUE = r"""(?!\[REDACTED\])(?:(?P<quote>\\?["'])(?P<quoted>.*?)(?P=quote)|(?P<bare>[^\s"',;&\\}\])]++))"""
_ASSIGNMENTS = (
    re.compile(_NAME + r"""(?P<separator>(?:\\?["'])?\s*+=\s*+)""" + _VALUE),  # KEY=x, key = "x"
    re.compile(_NAME + r"""(?P<separator>\\?["']\s*+:\s*+)""" + _VALUE),  # "key": "x", also inside a JSON string
    # key: x, only where x does not read as a word: "unexpected token: comma" tells no secret.
    re.compile(_NAME + r"(?P<separator>\s*+:\s++)(?=\S{6})(?=\S*[0-9!#$%^*+])" + _VALUE),
    re.compile(r"(?<!\S)(?P<name>--?\w[\w\-]*+)(?P<separator>\s++)(?!-)" + _VALUE),  # --key x
)
_SECRET_NAME = re.compile(
    r"secret(?!ar)|passw(?:or)?d|passphrase|(?-i:(?<![A-Za-z])pwd$)|api[_-]?key|credential|(?:private|access)[_-]?key|authorization",
    re.IGNORECASE,
)
_ANY_SECRET_WORD = re.compile(rf"token|pwd|{_SECRET_NAME.pattern}", re.IGNORECASE)
_ANY_SEPARATOR = re.compile(r"[=\s\"']")
_NAME_HAS_TOKEN = re.compile(r"(?:^|[_.\-])tokens?(?:$|[_.\-])|token$", re.IGNORECASE)
_KEY_ALPHABET = re.compile(r"[\w+/-]+={0,2}", re.ASCII)
_CODE_SECRET = re.compile(
    r"(?<![a-z])(?:tokens?\d*|secret|passw(?:or)?d|credential|api[_-]?key|\w+[_-]key|key)(?![a-z])", re.I
)
_LITERAL = re.compile(r"""(?P<quote>["'])(?=[^"'\s]*\d)[^"'\s=:/&?]{8,}(?P=quote)""")
# A name and what leads from it to the literal that it is given, over lines, those of a diff too.
_GIVEN = re.compile(
    r"""
    (?<![\w\-])(?P<name>-*+[A-Za-z_][\w\-]*+)(?P<closing>["']?\]?\)?)
    (?P<separator>\s*+:[^=\n]{1,80}=(?!=) | \s*+:?=(?!=) | \s*+[:,])
    (?: \n[+\-]? | [^\S\n]++ | [\\(\[{] | \#[^\n]*+ ){0,20}+
    (?:(?:Secret\w*+|str|bytes|[Ff]ield)\(\s*+(?:default\s*+=\s*+)?+)?+
    (?=[rbfu]{0,2}["'] | \d)
    """,
    re.VERBOSE | re.IGNORECASE,
)
_GIVEN_LITERAL = re.compile(
    r"""
    (?P<before>[rbfu]{0,2})
    (?: (?P<long>\"{3}|'{3})(?:\\.|(?!(?P=long)).)*+(?P=long)
      | (?P<quote>["'])(?:\\.|(?!(?P=quote))[^\n])*+(?P=quote)
      | \d[\w.]*+ )
    (?P<after>(?: \n[+\-]? | [^\S\n]++ | [\\+] | \#[^\n]*+ ){0,20}+)
    """,
    re.VERBOSE | re.DOTALL | re.IGNORECASE,
)
_NEXT_IN_BRACKET = re.compile(r"[,:](?:\n[+\-]|[\s\\]|#[^\n]*+)*+")
_CALL_BEFORE = re.compile(r"\(\s*(?:\w+\s*,\s*)?[\"']\Z")
_QUERY = re.compile(r"""(?P<name>(?:[?&]|(?<![\w-])--)[\w-]*(?:token|key|password|secret)=)[^&\s"']{6,}""", re.I)
_CAMEL = re.compile(r"(?<=[a-z0-9])(?=[A-Z])")
# Token names of language modelling: what stands before or after "token".
# fmt: off
_HARMLESS_BEFORE = frozenset({
    "pad", "eos", "bos", "unk", "mask", "sep", "cls", "special", "image", "next", "last", "first", "per", "num", "max",
    "min", "new",
})
_HARMLESS_AFTER = frozenset({
    "count", "counts", "id", "ids", "type", "types", "len", "length", "limit", "budget", "index", "idx", "size", "rate",
    "bucket", "mask", "ratio", "embedding",
})
# fmt: on


@functools.lru_cache(maxsize=8192)
def is_secret_name(name: str) -> bool:
    """Return whether a value under this name (a variable, key or option) is a secret."""
    if _SECRET_NAME.search(name):
        return True
    if not _NAME_HAS_TOKEN.search(_CAMEL.sub("_", name)):
        return False
    words = re.split(r"[_.\-]+", _CAMEL.sub("_", name).lower())
    if "tokens" in words:
        # Plural counts things (max_tokens, tokens_per_batch), unless it is said whose they are (auth_tokens).
        return bool({"auth", "access", "refresh", "api", "bearer"}.intersection(words))
    return not (_HARMLESS_BEFORE.intersection(words) or _HARMLESS_AFTER.intersection(words))


_SHORTEST_VALUE = 6

#: Names that older programs import.
REDACTED_VALUE = REDACTED
is_sensitive_key_name = is_secret_name


def looks_like_key(value: str, min_len: int = 24, min_entropy: float = 3.5) -> bool:
    """Return whether `value` looks like a key: one long, irregular word of the base64 alphabets.

    Args:
        value: The whole text.
        min_len: Minimum number of characters.
        min_entropy: Minimum Shannon entropy of its characters, in bits per character.
    """
    if len(value) < min_len or not _KEY_ALPHABET.fullmatch(value):
        return False
    shares = [count / len(value) for count in collections.Counter(value).values()]
    return -sum(share * math.log2(share) for share in shares) >= min_entropy


def redact_string(text: str) -> str:
    """Return `text` with every secret replaced by "[REDACTED]"."""
    if _ANY_SIGN.search(text.lower()):
        text = _SHAPES.sub(REDACTED, text)
        text = _AUTHORIZATION.sub(rf"\1\2{REDACTED}", text)
        text = _USERINFO.sub(REDACTED, text)
    if not (_ANY_SEPARATOR.search(text) and _ANY_SECRET_WORD.search(text)):
        return text
    for assignment in _ASSIGNMENTS:
        text = assignment.sub(_redact_assignment, text)
    return text


def redact_code(text: str) -> str:
    """Return source code with every secret replaced, like `redact_string`, and every literal that a secret's name gets.

    Code names secrets in more ways than logs: annotations, calls, subscripts, command lines in strings. So literals of
    eight or more characters with a digit and without spaces are replaced, too, if their line has such a name.
    """
    lines = []
    for line in _without_given(text).splitlines(keepends=True):
        if _CODE_SECRET.search(line):
            line = _LITERAL.sub(rf"\g<quote>{REDACTED}\g<quote>", line)
            line = _QUERY.sub(rf"\g<name>{REDACTED}", line)
        lines.append(line)
    return redact_string("".join(lines))


def _without_given(text: str) -> str:
    """Return source code without the literals that are given to secrets' names."""
    parts, done = list[str](), 0
    for match in _GIVEN.finditer(text) if _ANY_SECRET_WORD.search(text) else ():
        if match.start() < done or not (is_secret_name(match["name"].lstrip("-")) and _is_given(match, text)):
            continue
        opened = text[match.end("separator") : match.end()].rstrip()[-1:] in ("[", "{")
        parts, done, literal = [*parts, text[done : match.end()]], match.end(), _GIVEN_LITERAL.match(text, match.end())
        while literal is not None:
            quote = (literal["long"] or literal["quote"] or "")[:1]
            parts.append(f"{literal['before']}{quote}{REDACTED}{quote}{literal['after']}")
            done = literal.end()
            if opened and (gap := _NEXT_IN_BRACKET.match(text, done)):
                parts.append(gap[0])
                done = gap.end()
            literal = _GIVEN_LITERAL.match(text, done)
    return "".join([*parts, text[done:]])


def _is_given(match: re.Match[str], text: str) -> bool:
    """Return whether a name's literal is its value: not a label's text, or the next word of a list."""
    separator, start = match["separator"].strip(), match.start()
    if separator not in (":", ","):
        return True
    is_key = match["closing"][:1] in ('"', "'")
    is_argument = match["name"].startswith("-") or _CALL_BEFORE.search(text, max(0, start - 80), start) is not None
    return is_key and (separator == ":" or is_argument)


def redact_value(value: Any) -> Any:
    """Return dicts, lists, tuples and strings without secrets. Parts without secrets are shared, not copied.

    Under a secret's name, text, bytes, containers and numbers are replaced as a whole. None and booleans stay.
    """
    if isinstance(value, str):
        return redact_string(value)
    if isinstance(value, Mapping):
        changed = {name: new for name, item in value.items() if (new := _redact_under(str(name), item)) is not item}
        return {**value, **changed} if changed else value
    if isinstance(value, list | tuple):
        items = [redact_value(item) for item in value]
        if all(new is old for new, old in zip(items, value, strict=True)):
            return value
        return items if isinstance(value, list) else tuple(items)
    return value


def named_secrets(text: str) -> set[str]:
    """Return the values under a secret's name in `text`, such as abc123 in "HF_TOKEN=abc123"."""
    if not _ANY_SECRET_WORD.search(text):
        return set()
    found = (match for assignment in _ASSIGNMENTS for match in assignment.finditer(text))
    return {match["quoted"] or match["bare"] or "" for match in found if is_secret_name(match["name"])}


def redact_values(text: str, values: Iterable[str]) -> str:
    """Return `text` without these values, wherever they occur, also quoted in JSON.

    A multi-line value is searched line by line. Values below six characters are kept: removing them would damage
    harmless words and numbers.
    """
    lines = {line.strip() for value in values for line in value.splitlines()}
    written = lines | {json.dumps(line, ensure_ascii=False)[1:-1] for line in lines}
    for line in sorted(written, key=len, reverse=True):
        if len(line) >= _SHORTEST_VALUE and line not in REDACTED:
            text = text.replace(line, REDACTED)
    return text


def redact_json_text(text: str) -> str:
    """Return JSON text without secrets, reformatted. Text that is not JSON is redacted as a string."""
    try:
        parsed = json.loads(text)
    except ValueError:
        return redact_string(text)
    return json.dumps(redact_value(parsed), ensure_ascii=False)


def _redact_under(name: str, value: Any) -> Any:
    if value is None or isinstance(value, bool) or not is_secret_name(name):
        return redact_value(value)
    return REDACTED


def _redact_assignment(match: re.Match[str]) -> str:
    if not is_secret_name(match["name"]):
        return match[0]
    # An authorization scheme stays readable; what follows it is already replaced.
    if match["bare"] in ("Bearer", "Basic") or (match["quoted"] or "").endswith(REDACTED):
        return match[0]
    quote = match["quote"] or ""
    return f"{match['name']}{match['separator']}{quote}{REDACTED}{quote}"
