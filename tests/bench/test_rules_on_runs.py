"""The tables of `docs/what-rules-promise.md` are those of the last measurement, and count each run once."""

from pathlib import Path
from typing import Any

import msgspec
import pytest
from bench.rules.__main__ import Broken, Figures, Policy, figures_of, policies, put_into

from turnwright.rules import RuleSet

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "what-rules-promise.md").read_text(encoding="utf-8")
FIGURES = msgspec.json.decode((ROOT / "docs" / "rules-on-runs.json").read_bytes(), type=dict[str, Figures])

RUNS: list[dict[str, Any]] = [
    {"file": "a/1.json", "success": False, "calls": 2, "rules": [{"rule": "first"}, {"rule": "noted"}]},
    {"file": "a/2.json", "success": True, "calls": 3, "rules": [{"rule": "noted"}]},
    {"file": "b/1.json", "success": None, "calls": 4, "rules": [{"rule": "outside"}]},
    {"file": "b/2.json", "success": False, "calls": 5},
]


def summary(**failed: int) -> dict[str, Any]:
    effects = {"first": "refuse", "outside": "ask", "noted": "report"}
    counts = {"first": (1, 1, 0), "outside": (1, 0, 0), "noted": (2, 1, 1)}
    rules = [
        {"rule": name, "effect": effect} | dict(zip(("runs", "failed", "succeeded"), counts[name], strict=True))
        for name, effect in effects.items()
    ]
    return {"rules": {"broken": {"runs": 2, "failed": 1, "succeeded": 0} | failed, "by_rule": rules}}


def test_tables_equal_the_last_measurement() -> None:
    assert put_into(PAGE, FIGURES) == PAGE
    assert list(FIGURES) == [policy.name for policy in policies()]


def test_page_of_the_guide_counts_policies_and_runs() -> None:
    guide = (ROOT / "docs" / "how-to" / "audit-your-runs.md").read_text(encoding="utf-8")
    assert f"[Six policies on {sum(figures.runs for figures in FIGURES.values()):,} runs]" in guide
    assert len(FIGURES) == 6


def test_run_counts_once_and_a_report_breaks_nothing() -> None:
    policy = Policy("p", "r.yaml", "runs", outside=("outside",), by_folder=True)
    figures = figures_of(policy, RUNS, summary())
    assert (figures.runs, figures.succeeded, figures.failed, figures.calls) == (4, 1, 2, 14)
    assert figures.broken == Broken(2, 1, 0)
    assert figures.without_outside == Broken(1, 1, 0)
    assert figures.folders == {"a": (1, 1, Broken(1, 1, 0)), "b": (0, 1, Broken(1, 0, 0))}


def test_summary_with_another_count_is_an_error() -> None:
    with pytest.raises(ValueError, match=r"p: all rules: .* in the summary"):
        figures_of(Policy("p", "r.yaml", "runs"), RUNS, summary(failed=2))


def test_policies_are_rules_that_load() -> None:
    for policy in policies():
        path = ROOT / policy.rules
        assert RuleSet.load(path).rules
        assert "# Not here, and why:\n# - " in path.read_text(encoding="utf-8"), path
