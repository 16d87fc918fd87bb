"""Texts with the form of a secret are hidden, and nothing else."""

import json
import subprocess
import sys
import uuid
from base64 import b64encode
from hashlib import sha256

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import JsonValue
from tests.secrets_made import SECRETS

from turnwright.privacy.redaction import HIDDEN, Redactor
from turnwright_inspector.http.render import environment_with

ENVIRONMENT = {
    "OPENAI_API_KEY": "quite-unlike-any-known-form",
    "PGPASSWORD": 'with "quotes" and \\ and\nlines',
    "DB_PWD": "päss wörd/with+signs=",
    "PWD": "/home/somebody/project",
    "HOME": "/home/somebody",
    "SHORT_TOKEN": "abc",
}
NOBODYS = Redactor({})

#: What stands around a secret in texts that people and models write.
AROUND = st.sampled_from(
    [
        "{}",
        "the key is {}, keep it",
        "KEY={}",
        "'{}'",
        '{{"a": "{}"}}',
        "({})",
        "x\n{}\ny",
        "https://example.com/?k={}&b=1",
        "<{}>",
        "\u202e{}",
        "é {} é",
    ]
)


@given(st.sampled_from(SECRETS), AROUND)
def test_secret_of_a_known_form_is_hidden_in_any_surroundings(secret: str, around: str) -> None:
    assert secret not in NOBODYS.hide(around.format(secret))


@given(st.sampled_from(SECRETS), st.text(max_size=20), st.text(max_size=20))
def test_a_secret_is_hidden_in_keys_and_values_at_every_depth(secret: str, before: str, after: str) -> None:
    text = f"{before} {secret} {after}"
    value: JsonValue = {text: [{"deep": {text: text}}, text], "plain": 1}
    assert secret not in json.dumps(NOBODYS.hide_in(value))


def test_two_secret_keys_stay_two_keys() -> None:
    hidden = NOBODYS.hide_in({SECRETS[0]: 1, SECRETS[1]: 2, "***": 3})
    assert hidden == {"***": 1, "*** (2)": 2, "*** (3)": 3}


@pytest.mark.parametrize(
    "text",
    [
        'password: "hunter22"',
        "PASSWORD=hunter22",
        '{"api_key": "hunter22"}',
        '{\\"client_secret\\": \\"hunter22\\"}',
        "--api-key=hunter22",
        "login --db-password hunter22 --quiet",
        "DB_PASS=hunter22",
        "Authorization: Basic hunter22hunter22",
        '"authorization": "hunter22hunter22hunter22"',
        "curl -H 'authorization: Bearer hunter22hunter22'",
        "Bearer hunter22hunter22hunter22",
        "postgresql://me:hunter22@host/db",
        "see http://me:hunter22@127.0.0.1:80/x",
    ],
)
def test_text_behind_a_telling_name_is_hidden(text: str) -> None:
    assert "hunter22" not in NOBODYS.hide(text)


def test_text_of_a_field_with_a_telling_name_is_hidden() -> None:
    assert NOBODYS.hide_in({"db_password": "x", "tokens": "12", "n": {"access_token": ["y"]}}) == {
        "db_password": HIDDEN,
        "tokens": "12",
        "n": {"access_token": [HIDDEN]},
    }


@pytest.mark.parametrize(
    "text",
    [
        sha256(b"x").hexdigest(),
        "commit 9fceb02d0ae598e95dc970b74767f19372d61af8",
        str(uuid.UUID(int=7**40)),
        "01kanbr7h5qzv8y6w3t2s1r0qp:call00007",
        "token_budget: 500",
        "max_tokens=1024, tokens: 12",
        "the password is changed by the admin",
        "a secret between friends",
        "key: value",
        "bearer of bad news that is internationalization-proof",
        "http://127.0.0.1:8321/turns/x?tab=request and me@example.com",
        "git@github.com:owner/name.git",
        "ask-the-person-who-knows-about-it, task-0123456789abcdef01234",
        '{"password": null, "secret": true}',
        "authorization: see the page",
        "-----BEGIN CERTIFICATE-----\nMIIB\n-----END CERTIFICATE-----",
        b64encode(bytes(range(256)) * 40).decode(),
    ],
)
def test_ordinary_texts_stay_unchanged(text: str) -> None:
    assert NOBODYS.hide(text) == text


def test_text_around_a_private_key_stays() -> None:
    pem = "a: -----BEGIN RSA PRIVATE KEY-----\nMIIB+/=\n-----END RSA PRIVATE KEY----- b, c"
    assert NOBODYS.hide(pem) == "a: *** b, c"
    assert NOBODYS.hide('grep("-----BEGIN PRIVATE KEY-----") finds it') == 'grep("***") finds it'


def test_secrets_of_the_environment_are_hidden_in_every_spelling() -> None:
    redactor, render = Redactor(ENVIRONMENT), environment_with(Redactor(ENVIRONMENT))
    page = render.from_string(
        "{{ text }} {{ {'a': text, text: 1}|json }} {{ {'q': text}|urlencode }} {{ text|truncate(12) }} {{ [text] }}"
    )
    for name in ("OPENAI_API_KEY", "PGPASSWORD", "DB_PWD"):
        value = ENVIRONMENT[name]
        assert redactor.hide(f"it is {value}.") == "it is ***."
        assert redactor.hide(json.dumps([value])) == '["***"]'
        page_text = page.render(text=f"it is {value}.")
        assert value[:4] not in page_text
        assert page_text.count(HIDDEN) + page_text.count("%2A%2A%2A") >= 5
    assert redactor.hide("/home/somebody/project abc") == "/home/somebody/project abc"


def test_a_secret_is_hidden_before_a_text_is_cut() -> None:
    page = environment_with(NOBODYS).from_string("{{ text|truncate(30) }}")
    assert page.render(text=f"{'x' * 20} {SECRETS[0]}") == f"{'x' * 20} ***"


@given(st.recursive(st.none() | st.booleans() | st.integers() | st.text(), st.lists, max_leaves=8))
def test_value_without_a_secret_is_returned_unchanged(value: JsonValue) -> None:
    assert NOBODYS.hide_in(value) == value


#: Texts that make an expression which goes back look at the same letters again and again.
MADE_ON_PURPOSE = {
    "words": "a-",
    "tokens": "eyJ-",
    "tokens with points": "eyJaaaaaaaaa.eyJaaaaaaaaa-",
    "names": "password",
    "spaces": "password: " + " " * 90,
    "slashes": "api_key" + "\\" * 90,
    "headers": "authorization : ",
    "bearers": "bearer aaaaaaaaaaaaaaaaaaaaaaaaaaa ",
    "addresses": "://a:b",
    "keys": "-----BEGIN PRIVATE KEY-----",
    "ends": "-----BEGIN PRIVATE KEY-----" + "-----END A " * 9,
}


@pytest.mark.slow
def test_hiding_is_fast_for_any_text() -> None:
    """A megabyte of each takes less than a second; what went back would take hours. No time is compared: it ends."""
    script = (
        "import json, sys\n"
        "from turnwright.privacy.redaction import Redactor\n"
        "for text in json.load(sys.stdin).values():\n"
        "    Redactor({}).hide(text * (300_000 // len(text)))\n"
        "print('done')\n"
    )
    ran = subprocess.run(
        [sys.executable, "-c", script],
        input=json.dumps(MADE_ON_PURPOSE),
        capture_output=True,
        text=True,
        timeout=200,
        check=False,
    )
    assert ran.stdout == "done\n", ran.stderr


def test_long_text_is_hidden_as_a_short_text_is() -> None:
    """It is looked through in pieces, and none is cut between a name and what is behind it."""
    line = 'password =\n "hunter22", and so on;\n'
    assert NOBODYS.hide(line * 9000) == NOBODYS.hide(line) * 9000
