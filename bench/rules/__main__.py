"""Policies compared with recorded runs: `docs/rules-on-runs.json`, and the tables of `docs/what-rules-promise.md`.

    python -m bench.rules RUNS     measure the policies of bench/rules/policies.toml whose folder is in RUNS
    python -m bench.rules          write the tables again

`turnwright audit --rules --outcomes` reads the runs. The counts are made again from its report of each run, and must be
those of its summary.
"""

import argparse
import json
import subprocess
import sys
import tomllib
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path, PurePath
from typing import Any, Final

import msgspec
from bench.evidence import put_tables, table_head, table_row
from msgspec import Struct

ROOT: Final = Path(__file__).parents[2]
_FIGURES: Final = ROOT / "docs" / "rules-on-runs.json"
_PAGE: Final = ROOT / "docs" / "what-rules-promise.md"


class Policy(Struct, frozen=True):
    """A file of rules, and the folder with the runs that they are compared with.

    `outside` names the rules whose ground is partly in no result. With `by_folder`, each folder of runs is counted too.
    """

    name: str
    rules: str
    folder: str
    outcomes: str = ""
    outside: tuple[str, ...] = ()
    by_folder: bool = False


class Broken(Struct, frozen=True):
    """The runs that break a rule, or any rule, those of them that failed, and those that succeeded."""

    runs: int
    failed: int
    succeeded: int


class Figures(Struct, frozen=True):
    """The runs of a policy with their labels, and what breaks its rules.

    `rules` has each rule that some run breaks. `folders` has the runs that succeeded, and that failed, of each folder.
    """

    rule_count: int
    runs: int
    succeeded: int
    failed: int
    calls: int
    broken: Broken
    without_outside: Broken | None
    rules: dict[str, Broken]
    folders: dict[str, tuple[int, int, Broken]]


def policies() -> list[Policy]:
    """The policies that the file names."""
    tables = tomllib.loads((ROOT / "bench" / "rules" / "policies.toml").read_text(encoding="utf-8"))
    return msgspec.convert(tables["policy"], list[Policy])


def audit(policy: Policy, folder: Path) -> Figures:
    """Audit the runs in a folder with the rules of a policy."""
    command = [sys.executable, "-m", "turnwright", "audit", str(folder), "--rules", policy.rules, "--json"]
    if policy.outcomes:
        command += ["--outcomes", str(folder / policy.outcomes)]
    printed = subprocess.run(  # noqa: S603 (our own command)
        command, cwd=ROOT, check=True, stdout=subprocess.PIPE, text=True
    ).stdout
    *runs, summary = map(json.loads, printed.splitlines())
    return figures_of(policy, runs, summary)


def figures_of(policy: Policy, runs: Sequence[Mapping[str, Any]], summary: Mapping[str, Any]) -> Figures:
    """Count the runs of a report. Raises `ValueError` if its summary has another count."""
    by_rule = {rule["rule"]: rule for rule in summary["rules"]["by_rule"]}
    enforcing = {name for name, rule in by_rule.items() if rule["effect"] != "report"}
    rules = {name: _count(runs, {name}) for name in by_rule}
    broken = _count(runs, enforcing)
    counted = {name: msgspec.to_builtins(rule) for name, rule in rules.items()} | {"": msgspec.to_builtins(broken)}
    reported = {**by_rule, "": summary["rules"]["broken"]}
    for name, count in counted.items():
        if any(reported[name][key] != value for key, value in count.items()):
            raise ValueError(f"{policy.name}: {name or 'all rules'}: {count} runs, and {reported[name]} in the summary")
    labels = Counter(run["success"] for run in runs)
    folders: dict[str, list[Mapping[str, Any]]] = {}
    for run in runs if policy.by_folder else ():
        folders.setdefault(PurePath(run["file"]).parent.name, []).append(run)
    return Figures(
        len(by_rule),
        len(runs),
        labels[True],
        labels[False],
        sum(run["calls"] for run in runs),
        broken,
        _count(runs, enforcing.difference(policy.outside)) if policy.outside else None,
        {name: rule for name, rule in rules.items() if rule.runs},
        {name: (*_labels(members), _count(members, enforcing)) for name, members in sorted(folders.items())},
    )


def _count(runs: Sequence[Mapping[str, Any]], rules: set[str]) -> Broken:
    breaking = [run for run in runs if not rules.isdisjoint(rule["rule"] for rule in run.get("rules", ()))]
    succeeded, failed = _labels(breaking)
    return Broken(len(breaking), failed, succeeded)


def _labels(runs: Sequence[Mapping[str, Any]]) -> tuple[int, int]:
    labels = Counter(run["success"] for run in runs)
    return labels[True], labels[False]


def put_into(page: str, figures: Mapping[str, Figures]) -> str:
    """Return the page with the tables between its marks. Raises `ValueError` if a mark is missing."""
    tables = {"policies": _policies(figures), "rules": _rules(figures), "folders": _folders(figures)}
    return put_tables(page, tables)


def _policies(figures: Mapping[str, Figures]) -> Iterator[str]:
    yield from table_head(
        ("runs and rules",), "runs", "failed", "break a rule", "of these failed", "of all failures", "of all successes"
    )
    for policy in policies():
        if policy.name in figures:
            measured = figures[policy.name]
            yield _policy_row(f"[{policy.name}, {measured.rule_count}](../{policy.rules})", measured, measured.broken)
            if measured.without_outside is not None:
                count = measured.rule_count - len(policy.outside)
                yield _policy_row(
                    f"without {' and '.join(policy.outside)}, {count}", measured, measured.without_outside
                )


def _policy_row(name: str, measured: Figures, broken: Broken) -> str:
    if not measured.succeeded + measured.failed:
        return table_row(name, f"{measured.runs:,}", "?", f"{broken.runs:,}", "?", "?", "?")
    return table_row(
        name,
        *(f"{number:,}" for number in (measured.runs, measured.failed, broken.runs)),
        f"{broken.failed:,} ({_share(broken.failed, broken.runs)})",
        _share(broken.failed, measured.failed),
        f"{broken.succeeded:,} of {measured.succeeded:,}",
    )


def _rules(figures: Mapping[str, Figures]) -> Iterator[str]:
    yield from table_head(("rule",), "runs", "failed")
    for policy in policies():
        if policy.name in figures:
            measured = figures[policy.name]
            for name, rule in sorted(measured.rules.items(), key=lambda item: -item[1].runs):
                failed = f"{rule.failed:,}" if rule.failed + rule.succeeded else "?"
                yield table_row(f"{policy.folder}: {name}", f"{rule.runs:,}", failed)


def _folders(figures: Mapping[str, Figures]) -> Iterator[str]:
    yield from table_head(("suite",), "tasks where a rule acts", "attacks stopped")
    for policy in policies():
        if policy.by_folder and policy.name in figures:
            measured = figures[policy.name]
            all_of = (measured.succeeded, measured.failed, measured.broken)
            for name, (tasks, attacks, broken) in [*measured.folders.items(), ("all", all_of)]:
                yield table_row(name, f"{broken.succeeded} of {tasks}", f"{broken.failed} of {attacks}")


def _share(part: int, whole: int) -> str:
    return f"{part / whole:.0%}" if whole else "?"


def main(arguments: Sequence[str]) -> None:
    """Measure, or read what was measured, and write the page."""
    parser = argparse.ArgumentParser(prog="python -m bench.rules")
    parser.add_argument("runs", type=Path, nargs="?")
    folder: Path | None = parser.parse_args(arguments).runs
    figures = msgspec.json.decode(_FIGURES.read_bytes(), type=dict[str, Figures]) if _FIGURES.exists() else {}
    if folder is not None:
        for policy in policies():
            if (folder / policy.folder).is_dir():
                figures[policy.name] = audit(policy, (folder / policy.folder).resolve())
            else:
                print(f"{policy.name}: {folder} has no folder {policy.folder}; its figures stay as they are")
        _FIGURES.write_bytes(msgspec.json.format(msgspec.json.encode(figures), indent=2) + b"\n")
    _PAGE.write_text(put_into(_PAGE.read_text(encoding="utf-8"), figures), encoding="utf-8")


if __name__ == "__main__":
    main(sys.argv[1:])
