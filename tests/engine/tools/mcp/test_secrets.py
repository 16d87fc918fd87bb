"""Finding secrets in a server's configuration: keys among arguments and in addresses."""

from collections.abc import Sequence

import pytest

from turnwright.privacy.secrets import Secrets
from turnwright.tools.mcp.secrets import hidden_words, in_address, in_arguments

SECRET = "hunter2-pass"  # noqa: S105 (nobody's)
KEY = "a1b2c3d4e5f6a7b8"


@pytest.mark.parametrize(
    "arguments",
    [
        ["--header", f"Authorization: Bearer {SECRET}"],
        ["--header", f"Authorization:{SECRET}"],
        ["--header", f"X-Anything: {SECRET}"],
        ["-H", f"X-Anything: {SECRET}"],
        [f"--header=X-Anything: {SECRET}"],
        [f"Authorization: Bearer {SECRET}"],
        ["--api-key", SECRET],
        ["--apiKey", SECRET],
        [f"--token={SECRET}"],
        [f"--access_token={SECRET}"],
        ["-password", SECRET],
        ["run", "-e", f"GITHUB_PERSONAL_ACCESS_TOKEN={SECRET}", "image"],
        [f"--client-secret={SECRET} with, what & ever"],
        ["--config", f'{{"apiKey": "{SECRET}", "mode": "x"}}'],
        [f"https://x.example/mcp?api_key={SECRET}&mode=x"],
        [f"postgresql://me:{SECRET}@x.example/db"],
        ["mcp-remote", f"https://x.example/s/{KEY}/mcp"],
    ],
)
def test_a_secret_among_arguments_is_hidden(arguments: Sequence[str]) -> None:
    text = Secrets(hidden_words(in_arguments(arguments))).hide(f"{' '.join(arguments)} | {arguments[-1]}")
    assert SECRET not in text
    assert KEY not in text


@pytest.mark.parametrize(
    "arguments",
    [
        ["-y", "@modelcontextprotocol/server-filesystem", "/home/somebody/documents"],
        ["mcp-remote", "https://x.example/mcp", "--transport", "http-first"],
        ["--token", "--verbose", "documents"],
        ["--mode=careful", "--folder=/srv/somewhere", "NODE_OPTIONS=--trace-warnings"],
    ],
)
def test_ordinary_argument_is_shown(arguments: Sequence[str]) -> None:
    text = " ".join(arguments)
    assert Secrets(hidden_words(in_arguments(arguments))).hide(text) == text


@pytest.mark.parametrize(
    ("address", "expected"),
    [
        ("https://x.example/mcp", "https://x.example/mcp"),
        (f"https://x.example/mcp?api_key={SECRET}", "https://x.example/mcp?***"),
        (f"https://x.example/mcp?{KEY}", "https://x.example/mcp?***"),
        (f"https://me-myself:{SECRET}@x.example/mcp", "https://***@x.example/mcp"),
        (f"https://{SECRET}@x.example/mcp", "https://***@x.example/mcp"),
        (f"https://x.example/s/{KEY}/mcp", "https://x.example/s/***/mcp"),
        ("https://x.example/long-name-without-number/mcp", "https://x.example/long-name-without-number/mcp"),
        ("https://[x", "https://[x"),
    ],
)
def test_address_is_shown_without_user_query_and_keys(address: str, expected: str) -> None:
    assert Secrets(hidden_words(in_address(address))).hide(address) == expected


def test_key_of_an_address_is_hidden_outside_the_address() -> None:
    """As a server quotes it, which has read what the address says."""
    secrets = Secrets(hidden_words(in_address("https://me:pass%20word@x.example/mcp?mode=careful&key=hunter%2F2&to=x")))
    assert secrets.hide("'hunter/2' and hunter%2F2, pass word, careful") == "'***' and ***, ***, careful"


@pytest.mark.slow
@pytest.mark.parametrize("argument", ["x" * 200_000, "key" * 60_000, "key" + " " * 200_000, "api_key " * 20_000])
def test_long_argument_is_scanned_once(argument: str) -> None:
    """It took time by the square of its length: a minute and more for these."""
    assert list(in_arguments([argument])) == []
