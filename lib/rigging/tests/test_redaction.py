import json
import time

import pytest

from rigging.redaction import REDACTED, is_secret_name, redact_code, redact_json_text, redact_string, redact_value

SECRETS = [
    "hf_abcDEF123456ghijkl",
    "ghp_16C7e42F292c6912E7",
    *(f"gh{kind}_abcDEF123456" for kind in "ousr"),
    "glpat-abcdef123456",
    "ya29.abcdefgh",
    "AKIAABCDEFGHIJKLMNOP",
    "ASIAABCDEFGHIJKLMNOP",
    *(f"{kind}:ann:{'0f' * 32}" for kind in "acnw"),
    "github_pat_11ABCDEFG0123456789_abc",
    "sk-proj-abc123def456ghi789",
    "sk-abcdefghijklmnopqrstuvwxyz",
    "AIzaSyD-1234567890abcdefghijk",
    "xoxb-123456-abcdef",
    "hooks.slack.com/services/T00/B00/abcDEF123",
    "discord.com/api/webhooks/123/abc-DEF",
    "eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIx.abc-def",
    f"j:/ann/train/0:3:{'0f' * 32}",
    f"u:ann:{'0f' * 32}",
    f"u:ann:c7b7bb03.{'aB-_' * 10}abc",
    f"iris-v1.{'0f' * 32}.a:root:{'0f' * 32}",
    f"iris-join-v1.0d38063f.{'aB-_' * 10}abc.{'0f' * 32}",
]

PLAIN = [
    "max_tokens=4096 tokenizer=meta-llama/Llama-3 eos_token=</s> token_count: 1234567",
    "unexpected token: comma at line 3",
    "task-00000001-abcdef12 on disk-12345678 uses scikit sk-learn",
    "installing hf_transfer and hf_hub",
    "the bearer of this letter",
    "ssh://git@github.com/o/r gs://bucket/a@b user@example.com",
    "secretary problem: 37 percent",
    "monkey=banana keyboard=qwerty key=value",
    "",
]


@pytest.mark.parametrize("secret", SECRETS)
@pytest.mark.parametrize("frame", ["{}", "got {} from server", "x={},", '{{"a": "{}"}}', "({})", "https://h/?q={}&r=1"])
def test_secrets_are_known_by_their_shape(secret: str, frame: str) -> None:
    redacted = redact_string(frame.format(secret))
    assert secret not in redacted
    assert redacted == frame.format(REDACTED)
    assert redact_string(redacted) == redacted


@pytest.mark.parametrize(
    ("text", "redacted"),
    [
        ("HF_TOKEN=opensesame", "HF_TOKEN=[REDACTED]"),
        ("api_key:\tabcdefgh1", "api_key:\t[REDACTED]"),
        ("passphrase:\rx1y2z3w4", "passphrase:\r[REDACTED]"),
        ("export WANDB_API_KEY='a b c' X=1", "export WANDB_API_KEY='[REDACTED]' X=1"),
        ("DB_PASSWORD = tiger; user=scott", "DB_PASSWORD = [REDACTED]; user=scott"),
        ("AWS_SECRET_ACCESS_KEY=abc/def+g", "AWS_SECRET_ACCESS_KEY=[REDACTED]"),
        ("url?api_key=abc&page=2", "url?api_key=[REDACTED]&page=2"),
        ("{'password': 'tiger', 'n': 1}", "{'password': '[REDACTED]', 'n': 1}"),
        ('"{\\"client_secret\\": \\"tiger\\"}"', '"{\\"client_secret\\": \\"[REDACTED]\\"}"'),
        ("password: hunter2x", "password: [REDACTED]"),
        ("run --api-key tiger --n 1", "run --api-key [REDACTED] --n 1"),
        ("run --token=tiger --n 1", "run --token=[REDACTED] --n 1"),
        ("Authorization: Bearer abc123", "Authorization: Bearer [REDACTED]"),
        ("curl -H 'Authorization: token abc123'", "curl -H 'Authorization: token [REDACTED]'"),
        ("PWD=/home/ann db_pwd=tiger pwd=lion", "PWD=/home/ann db_pwd=[REDACTED] pwd=[REDACTED]"),
        ("authorization: bearer abcdefghijk", "authorization: bearer [REDACTED]"),
        ("Authorization=Basic dXNlcjpwYXNz", "Authorization=Basic [REDACTED]"),
        ("https://me:pass@host/x", "https://[REDACTED]@host/x"),
        ("git+https://ghs_123456@github.com/o/r", "git+https://[REDACTED]@github.com/o/r"),
        ("-----BEGIN RSA PRIVATE KEY-----\nMII\n-----END RSA PRIVATE KEY-----\n", "[REDACTED]\n"),
        ("GOOGLE_APPLICATION_CREDENTIALS=/a.json", "GOOGLE_APPLICATION_CREDENTIALS=[REDACTED]"),
        *((text, text) for text in PLAIN),
    ],
)
def test_secrets_are_known_by_their_name_or_place(text: str, redacted: str) -> None:
    assert redact_string(text) == redacted
    assert redact_string(redacted) == redacted


def test_secret_names_are_told_from_those_of_language_modelling() -> None:
    keys = ["HF_TOKEN", "accessToken", "wandb-api-key", "apiKey", "db.password", "MY_TOKEN_VALUE", "auth_tokens"]
    plain = ["max_tokens", "tokenizer", "token_ids", "pad_token", "maxTokens", "num_token", "key"]
    assert list(filter(is_secret_name, keys + plain)) == keys


def test_values_are_redacted_in_depth_and_the_original_is_kept() -> None:
    value = {
        "env": {"HF_TOKEN": "x", "HOME": "/root", "PASSWORD": None, "USE_TOKEN": True, "API_KEY": 123},
        "args": ["--token=abc", ("Bearer abc123", 5)],
        "credentials": {"user": "u"},
        "max_tokens": 7,
    }
    before = json.dumps(value)
    assert redact_value(value) == {
        "env": {"HF_TOKEN": REDACTED, "HOME": "/root", "PASSWORD": None, "USE_TOKEN": True, "API_KEY": REDACTED},
        "args": [f"--token={REDACTED}", (f"Bearer {REDACTED}", 5)],
        "credentials": REDACTED,
        "max_tokens": 7,
    }
    assert json.dumps(value) == before


@pytest.mark.parametrize(
    "value",
    [
        {"token": None, "secret": True, "password": False},
        {5: "x", "n_tokens": 5, "path": "gs://b/tokenized/x"},
        ["a", ("b", [{"c": 0.1}])],
        {},
        3,
    ],
)
def test_what_holds_no_secret_is_shared(value: object) -> None:
    assert redact_value(value) is value
    assert redact_value({"api_key": "x", "others": value})["others"] is value


def test_json_text() -> None:
    assert json.loads(redact_json_text('{"a": {"token": "x"}, "é": ["sk-abc12345678"]}')) == {
        "a": {"token": REDACTED},
        "é": [REDACTED],
    }
    assert redact_json_text("{broken HF_TOKEN=x1") == "{broken HF_TOKEN=[REDACTED]"


@pytest.mark.timeout(10)
@pytest.mark.parametrize(
    "unit",
    [
        *("a", "a=", "token", "_", "://", "x:", '"', "eyJ", "--a ", "a:", "iris-v1.", "-----BEGIN PRIVATE KEY"),
        *("-", "# token=\\\n"),
    ],
)
def test_long_lines_cost_little(unit: str) -> None:
    text = "token " + unit * (20_000 // len(unit))
    started = time.process_time()
    redact_string(text)
    redact_code(text)
    assert time.process_time() - started < 1.0


@pytest.mark.parametrize(
    "line",
    [
        'hf_token: str = "{}"', 'password: Final[str] = "{}"', 'os.environ["WANDB_API_KEY"] = "{}"', "f(api_key='{}')",
        'os.environ.setdefault("HF_TOKEN", "{}")', 'wandb.login(key="{}")', '["--api-key", "{}"]',
        'run("tool --password={}")', 'add_argument("--token", default="{}")', 'get("https://x/y?token={}&a=1")',
        'wandb_key = "{}"', 'TOKEN2 = "{}"', 'TOKEN = b"{}"', 'PASSWD = """{}"""', 'token = getenv("TOKEN", "{}")',
    ],
)  # fmt: skip
def test_secrets_in_code_are_redacted_however_they_are_written(line: str) -> None:
    secret = "a1B2c3D4e5F6g7H8i9J0"
    assert secret not in redact_code(f"x = 1\n{line.format(secret)}\n")


@pytest.mark.parametrize(
    "line",
    [
        'API_KEY = \\\n    "{}"', 'f(api_key=(\n    "{}"), n=1)', 'password = (  # of prod\n    "x"\n    f"{}"\n)',
        '-token = (\n-    "{}"\n+token = (\n+    "{}"\n )', 'hf_token: str | None = "{}"',
        'os.environ["HF_TOKEN"] = "{}"', 'd = {{\n  "password":\n    "{}"}}',
        'environ.setdefault("HF_TOKEN", "{}")', 'setattr(o, "api_key", "{}")',
        '["--token", "{}"]', 'if (token := "{}"): pass', 'password = b"{}"', "secret = \"\"\"x\n{}\"\"\"",
        'API_KEYS = ["{}", "x",\n  "{}"]', 'SECRETS = {{"prod": "{}",  # x\n  "dev": "{}"}}', 'token = "it\\"s {}"',
        'api_key: SecretStr = SecretStr("{}")', 'd = {{"db": {{"pwd": "{}"}}}}', 'token: str = Field(default="{}")',
    ],
)  # fmt: skip
def test_a_literal_given_to_a_secrets_name_is_redacted_whatever_it_looks_like(line: str) -> None:
    redacted = redact_code(f"x = 1\n{line.format(*['zebra'] * 2)}\ny = 'kept'\n")
    assert "zebra" not in redacted
    assert redacted.startswith("x = 1\n")
    assert redacted.endswith("\ny = 'kept'\n")
    assert redact_code(redacted) == redacted


def test_code_that_holds_no_secret_stays() -> None:
    harmless = (
        'tokenizer = "llama3-8b-instruct"\nkeys = ["a"]\npath = f"{root}/tokens-v1"\ncolumns = ["token", "text"]\n'
        'def f(token):\n    """Doc."""\nf(token, "utf-8")\nfor token in "abc":\n    pass\nmax_tokens: int = 5\n'
    )
    assert redact_code(harmless) == harmless
