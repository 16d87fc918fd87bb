"""`python -m tests.campaigns.faults`: the campaign of kills, and its report."""

import argparse
import sys
from functools import partial
from pathlib import Path

import anyio
from rich.console import Console
from rich.progress import Progress as Bar

from turnwright.errors import ConfigError

from .audit import Audit, audit
from .campaign import run_campaign
from .report import put_into
from .trial import run_trial


def main() -> int:
    """Run the campaign or one trial. Exit code 0 without a violation, 1 with one, 2 for misuse."""
    options = _arguments().parse_args()
    if options.trial is not None:
        return _show(options.seed, options.trial)
    console = Console(stderr=True)
    faults: list[str] = []
    with Bar(console=console, transient=True, disable=not console.is_terminal) as bar:
        counts = {"sqlite": options.sqlite, "postgres": options.postgres}
        tasks = {name: bar.add_task(name, total=number) for name, number in counts.items() if number}

        def progress(kind: str, trial_audit: Audit) -> None:
            bar.advance(tasks[kind])
            for claim, claim_faults in trial_audit.faults.items():
                faults.extend(f"{kind}, trial {trial_audit.number}: {claim}: {fault}" for fault in claim_faults)

        try:
            report = run_campaign(
                sqlite=options.sqlite,
                postgres=options.postgres,
                seed=options.seed,
                processes=options.processes,
                progress=progress,
            )
        except ConfigError as error:
            sys.stderr.write(f"{error}\n")
            return 2
    if options.json is not None:
        options.json.write_text(report.to_json(), encoding="utf-8")
    if options.page is not None:
        options.page.write_text(put_into(options.page.read_text(encoding="utf-8"), report), encoding="utf-8")
    sys.stdout.write(f"{report.tables()}\n")
    for fault in faults:
        sys.stderr.write(f"{fault}\n")
    return 1 if report.faults else 0


def _arguments() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m tests.campaigns.faults", description=__doc__)
    parser.add_argument("--sqlite", type=int, default=500, metavar="N", help="trials on SQLite (%(default)s)")
    parser.add_argument("--postgres", type=int, default=200, metavar="N", help="trials on PostgreSQL (%(default)s)")
    parser.add_argument("--seed", type=int, default=1, metavar="S", help="which trials (%(default)s)")
    parser.add_argument("--processes", type=int, default=2, metavar="N", help="trials at once (%(default)s)")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the report there")
    parser.add_argument("--page", type=Path, metavar="FILE", help="put the tables into this page, between its marks")
    parser.add_argument("--trial", type=int, metavar="N", help="run this one trial on SQLite, and print what was seen")
    return parser


def _show(seed: int, number: int) -> int:
    """Run one trial, and print its plan, its witness, its journal, and its violations."""
    evidence = anyio.run(partial(run_trial, seed, number))
    result = audit(evidence)
    lines = [repr(evidence.plan), ""]
    lines += [" ".join((str(line.process), *line.words)) for line in evidence.lines]
    lines += ["", *(f"{seq:>4}  {fact.kind:<15} {fact.payload()}" for seq, fact in evidence.facts), "", result.ending]
    lines += [f"{claim}: {fault}" for claim, faults in result.faults.items() for fault in faults]
    sys.stdout.write("\n".join(lines) + "\n")
    return 1 if any(result.faults.values()) else 0


if __name__ == "__main__":
    sys.exit(main())
