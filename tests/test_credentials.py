"""What looks like a secret, and what must never look like one."""

from __future__ import annotations

from pathlib import Path

import pytest

from bisect_agent.credentials import LONGEST, spans
from bisect_agent.secrets import Masker

ROOT = Path(__file__).parents[1]
BODY = "aZ3bY4cX5dW6eV7fU8gT9hS0iR1jQ2kP3lO4"
"""Made up; the tokens are put together here, so that no scanner of repositories takes them for real ones."""
TOKENS = {
    "hugging-face": "hf_" + BODY[:34],
    "openai": "sk-" + BODY,
    "openai-project": "sk-proj-" + BODY + "-" + BODY,
    "anthropic": "sk-ant-" + "api03-" + BODY,
    "aws": "AKIA" + "QWERTYUIOPAS1234",
    "aws-session": "ASIA" + "QWERTYUIOPAS1234",
    "github": "ghp_" + BODY,
    "github-server": "ghs_" + BODY,
    "github-fine": "github_pat_" + BODY,
    "gitlab": "glpat-" + BODY[:20],
    "google": "AIza" + BODY[:35],
    "slack": "xoxb-" + "123456789012-" + BODY[:24],
    "nvidia": "nvapi-" + BODY + BODY,
    "jwt": "eyJhbGciOiJIUzI1NiJ9." + "eyJzdWIiOiIxMjM0NTY3ODkwIn0." + BODY,
}
AROUND = {
    "alone": "{}",
    "in a line": "the token is {} and that is that",
    "quoted": "token='{}', max_tokens=None",
    "json": '{{"token":"{}"}}',
    "named": "HF_TOKEN={}",
    "in a path": "https://host/path/{}/x?token={}&y=1",
    "behind a colour": "\x1b[31m{}\x1b[0m",
}


def found(text: str) -> list[str]:
    """What looks like a secret in a text."""
    return [text.encode()[begin:end].decode() for begin, end in spans(text.encode())]


@pytest.mark.parametrize("around", AROUND.values(), ids=AROUND)
@pytest.mark.parametrize("token", TOKENS.values(), ids=TOKENS)
def test_a_token_is_known_by_its_looks(token: str, around: str) -> None:
    """Wherever it stands, and all of it."""
    text = around.format(token, token)
    assert token not in Masker(()).mask(text)
    assert len(text) == len(Masker(()).mask(text))


@pytest.mark.parametrize(
    ("text", "secret"),
    [
        ("Authorization: Bearer s3cretAndLong", "s3cretAndLong"),
        ("'authorization': 'Basic dXNlcjpwYXNzdzByZA=='", "dXNlcjpwYXNzdzByZA=="),
        ("server_args=ServerArgs(api_key='sk-123456', port=1)", "sk-123456"),
        ("OPENAI_API_KEY=abcd1234", "abcd1234"),
        ('{"password": "hunter2hunter2"}', "hunter2hunter2"),
        ("aws_secret_access_key = wJalrXUtnFEMI/K7MDENG", "wJalrXUtnFEMI/K7MDENG"),
        ("https://me:hunter2@pip.acme.io/simple", "hunter2"),
        ("postgres://me:pa$$word@db:5432/x", "pa$$word"),
    ],
)
def test_a_secret_is_known_by_what_stands_before_it(text: str, secret: str) -> None:
    """A header, a name, a URL: the secret goes, what names it stays."""
    assert [secret] == found(text)


@pytest.mark.parametrize(
    "text",
    [
        "hf_transformers/config.py hf_config hf_overrides hf_quant_config_for_the_model_of_this_run",
        "task-scheduler-of-the-first-rank disk-usage-of-the-first-rank ask-1234567890123456789012",
        "sha256:9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08",
        "commit 0132d719e1d4c2b7a6f3e5d4c3b2a1f0e9d8c7b6",
        "# bisect-agent attempt 0123456789abcdef0123456789abcdef",
        "id 123e4567-e89b-12d3-a456-426614174000",
        "api_key=None, api_key='', admin_api_key=None, token='</s>', eos_token_id=128009",
        'api_key = os.environ["KEY1"] or password=get_password_2(1)',
        "max_total_num_tokens=123456, tokens: 12345678, key=value123",
        "Bearer authentication is required; Bearer token",
        "tcp://10.0.0.1:29500 tcp://host:29500@rank0 http://user@host/x http://[::1]:30000",
        "http://${USER}:${PASSWORD}@host http://{user}:{password}@host http://%s:%s@host",
        "torch.ops.sgl_kernel.fp8_blockwise_scaled_mm eyJust a word",
        "0x7f3a2b1c4d5e AKIAlowercase ASIAN",
    ],
)
def test_what_is_no_secret_stays(text: str) -> None:
    """Names, hashes, identifiers, ports, placeholders, and code that reads a secret."""
    assert [] == found(text)


LOGS = sorted(
    path
    for folder in ("logs/samples", "tests/cases", "tests/golden", "hypotheses", "playbooks")
    for path in (ROOT / folder).rglob("*")
    if path.is_file() and not path.is_relative_to(ROOT / "tests/cases/playbooks")
)


def test_not_a_byte_of_a_recorded_log_is_masked() -> None:
    """Real logs, public failures, whole runs, and every line that a signature must know or ignore."""
    assert len(LOGS) > 100
    assert [] == [path for path in LOGS if list(spans(path.read_bytes()))]


def test_what_is_longer_than_any_secret_is_data() -> None:
    """A line without end is no token, whatever it begins with."""
    assert [] == found("hf_" + "a" * LONGEST)
