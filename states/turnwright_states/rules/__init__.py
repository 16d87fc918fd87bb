"""Rules over the history of calls: six forms, conditions with three values, and the monitors that judge a call."""

from .condition import UNKNOWN, Condition, RuleError, Scene, Truth
from .history import Broken, Held, History, Judgment
from .pattern import ANSWER, USER, CallPattern
from .rule import EFFECTS, FORMS, SCOPES, Effect, Rule, RuleSet, Scope, parse_rule

__all__ = [
    "ANSWER",
    "EFFECTS",
    "FORMS",
    "SCOPES",
    "UNKNOWN",
    "USER",
    "Broken",
    "CallPattern",
    "Condition",
    "Effect",
    "Held",
    "History",
    "Judgment",
    "Rule",
    "RuleError",
    "RuleSet",
    "Scene",
    "Scope",
    "Truth",
    "parse_rule",
]
