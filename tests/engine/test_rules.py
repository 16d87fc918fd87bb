"""Files of rules: the same words as in code, and errors with the file and the line."""

import os
import pickle
from pathlib import Path
from typing import Any

import pytest

from turnwright.errors import ConfigError
from turnwright.rules import Rule, RuleError, RuleSet, argument_names

TEXT = """
groups:
  writes: [create, delete]
rules:
  - name: yes-first
    before: $writes
    need: "@user if 'yes' in words(text)"
  - {name: once, at_most: 1, of: create, per: id, scope: session}
"""


def test_file_and_code_have_the_same_words() -> None:
    rules = RuleSet.parse(TEXT, "rules.yaml")
    assert rules.rules == (
        Rule("yes-first", before="$writes", need="@user if 'yes' in words(text)"),
        Rule("once", at_most=1, of="create", per="id", scope="session"),
    )
    assert rules.groups == {"writes": ("create", "delete")}
    assert pickle.loads(pickle.dumps(rules)) == rules  # noqa: S301 (our own)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("rules:\n  - {name: a, never: b}\n  - {name: c, never: 'd if args.x ** 2'}", "r.yaml:3: c: condition"),
        ("rules:\n  - {name: a, before: b}", "r.yaml:2: a: before is not a form"),
        ("rules:\n  - {name: a, never: $b}\n", "r.yaml:2: a: no group is named '$b'"),
        ("rules:\n  - {name: a, never: b}\n  - {name: a, never: c}", "a: two rules have this name"),
        ("rules:\n  - never: b", "r.yaml:2: a rule has a name"),
        ("rules:\n  - b", "r.yaml:2: a rule has a name and the words of a form, such as {name: "),
        ("rules: b", "r.yaml:1: rules is a list"),
        ("rule: []", "r.yaml:1: rule is unknown"),
        ("", "r.yaml:1: a file of rules has rules: write `rules:`, and the list below it"),
        ("- {name: a, never: b}", "r.yaml:1: a file of rules has rules: write `rules:`, and the list below it"),
        ("groups: [a]\nrules: []", "r.yaml:1: groups is a list of tools for each name"),
        ("rules:\n  - {name: a, never: b, never: c}", "r.yaml:2: the key 'never' is there twice"),
        ("rules:\n  - {name: a, never: b}\nrules: []", "r.yaml:3: the key 'rules' is there twice"),
        ("rules: []\n[a]: []", "r.yaml:2: the key None is there twice, or is not a text"),
        ("rules:\n  - {name: a, at_most: 010, of: b}", "r.yaml:2: 010 is 8 in YAML: write 8"),
        ("rules:\n  - {name: a, at_most: 1:30, of: b}", "r.yaml:2: 1:30 is 90 in YAML: write 90"),
        ("rules: &a [*a]", "r.yaml:1: anchors and aliases are not allowed"),
        ("rules: !!python/object:os.system []", "r.yaml:1: tags are not allowed"),
        ("rules:\n  - [" + "[" * 100, "r.yaml:2: it nests more than 20 levels"),
        ("rules:\n  - {", "r.yaml:2: it is not YAML"),
        ("rules: '" + "a" * 2_000_000 + "'", "r.yaml: it has 2000009 characters"),
        ("rules:\n  - {name: a, never: 'b if " + "(" * 100_000 + "'}", "r.yaml:2: a: condition"),
    ],
)
def test_file_with_an_error_names_its_line(text: str, message: str) -> None:
    with pytest.raises(RuleError) as error:
        RuleSet.parse(text, "r.yaml")
    assert str(error.value).startswith(("r.yaml:", "r.yaml: "))
    assert message in str(error.value)
    assert isinstance(error.value, ConfigError)


def test_file_that_cannot_be_read_is_a_rule_error(tmp_path: Path) -> None:
    with pytest.raises(RuleError, match="No such file"):
        RuleSet.load(tmp_path / "rules.yaml")
    (tmp_path / "rules.yaml").write_bytes(b"\xff\xff")
    with pytest.raises(RuleError, match="not UTF-8"):
        RuleSet.load(tmp_path / "rules.yaml")
    with pytest.raises(RuleError, match="embedded null"):
        RuleSet.load("rules\0.yaml")


def test_pipe_or_device_as_a_file_of_rules_is_refused(tmp_path: Path) -> None:
    """An agent's file may name it: reading a pipe waits for ever, and a device may never end."""
    os.mkfifo(tmp_path / "pipe")
    for path in (tmp_path / "pipe", Path("/dev/zero")):
        with pytest.raises(RuleError, match="not a regular file"):
            RuleSet.load(path)


def test_unknown_tool_is_named_with_its_line_and_a_similar_name() -> None:
    rules = RuleSet.parse("rules:\n  - {name: verify-first, before: refund, need: verfy}\n", "rules.yaml")
    with pytest.raises(RuleError) as error:
        rules.check_tools({"refund": None, "verify": None})
    assert str(error.value) == "rules.yaml:2: verify-first: no tool is named 'verfy': did you mean 'verify'?"
    assert (error.value.file, error.value.line, error.value.rule) == ("rules.yaml", 2, "verify-first")


def test_names_of_tools_are_compared_code_point_by_code_point() -> None:
    rules = RuleSet([Rule("mine", never="re\ufb01ne")])
    with pytest.raises(RuleError, match="no tool is named"):
        rules.check_tools({"refine": None})


def test_misspelled_word_of_a_rule_in_code_is_a_rule_error() -> None:
    words: dict[str, Any] = {"befor": "refund", "need": "verify"}
    with pytest.raises(RuleError, match=r"^first: befor is unknown: did you mean `before`"):
        Rule("first", **words)


def test_argument_that_no_tool_has_is_named_with_its_line() -> None:
    """A tool whose schema allows other fields may have any."""
    rules = RuleSet.parse("rules:\n  - {name: large, never: refund if args.amout > 5}\n", "rules.yaml")
    closed: dict[str, Any] = {"additionalProperties": False, "properties": {"amount": {}, "order": {}}}
    with pytest.raises(RuleError) as error:
        rules.check_tools({"refund": argument_names(closed)})
    assert str(error.value) == "rules.yaml:2: large: refund has no argument 'amout': did you mean 'amount'?"
    assert rules.check_tools({"refund": argument_names({"properties": {"amount": {}}})}) == ()
    assert rules.check_tools({"refund": argument_names(closed | {"patternProperties": {"a": {}}})}) == ()


def test_argument_that_one_of_several_tools_lacks_is_a_warning() -> None:
    rules = RuleSet([Rule("same", before=["refund", "cancel"], need="verify", same=["order"])])
    tools = {"refund": ["order"], "cancel": ["number"], "verify": None}
    assert rules.check_tools(tools) == ("same: cancel has no argument 'order': the arguments are number",)


def test_glob_that_names_no_tool_is_a_warning() -> None:
    rules = RuleSet.parse("rules:\n  - {name: a, before: ['mail_*', '@answer'], need: '@user'}\n", "r.yaml")
    assert rules.check_tools({"read": None}) == ("r.yaml:2: a: 'mail_*' names no tool",)
    assert rules.check_tools({"mail_send": None}) == ()
