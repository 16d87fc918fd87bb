"""Rules over the history of calls: six forms, conditions with three values, and the monitors that judge a call."""

from .condition import UNKNOWN, Condition, InvalidRuleError, Scene, Truth
from .history import Broken, Held, History, Judgment
from .pattern import ANSWER, USER, CallPattern
from .rule import EFFECTS, FORMS, SCOPES, Effect, Rule, RuleList, Scope, parse_rule

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
    "InvalidRuleError",
    "Judgment",
    "Rule",
    "RuleList",
    "Scene",
    "Scope",
    "Truth",
    "parse_rule",
]
