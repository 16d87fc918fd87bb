"""Rules over the history of calls: six forms, conditions with three values, and the monitors that judge a call."""

from turnwright_states.verdict import Broken, Effect

from .condition import UNKNOWN, Condition, InvalidRuleError, Scene, Truth
from .history import Held, History, Judgment, RuleState
from .pattern import ANSWER, USER, CallPattern
from .rule import (
    EFFECTS,
    FORMS,
    LANGUAGE,
    SCOPES,
    Rule,
    RuleLanguageError,
    RuleList,
    Scope,
    parse_rule,
    read_rules,
    resolve_rules,
)

__all__ = [
    "ANSWER",
    "EFFECTS",
    "FORMS",
    "LANGUAGE",
    "SCOPES",
    "UNKNOWN",
    "USER",
    "Broken",
    "CallPattern",
    "Condition",
    "Effect",
    "Held",
    "History",
    "InvalidRuleError",
    "Judgment",
    "Rule",
    "RuleLanguageError",
    "RuleList",
    "RuleState",
    "Scene",
    "Scope",
    "Truth",
    "parse_rule",
    "read_rules",
    "resolve_rules",
]
