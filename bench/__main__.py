"""Measures everything, and writes `bench/results.json`, `bench/RESULTS.md`, `bench/DETAILS.md` and the plots.

    python -m bench [--only PART,...] [--measures NAME,...] [--full] [--resume] [--quick] [--report-only]

Parts are the files of subjects (`bare`, `turnwright_turns`, and those of `bench/peers` whose environments `make
bench-peers` has made), `streams`, `bodies`, `guard`, `reads`, `startup`, `lists`, `replay` and `walk`. Measurements of
subjects are `steps`, `results`, `queue`, `calls`, `bytes`, `peak`, `flight`, `session` and `import`. Of the peers only
the first three are measured, unless others are named or with `--full`. Each result is kept at once. Where parts or
measurements are named, what is not measured this time stays; else all results are of this run. `--resume` continues
with the last run. `--quick` measures little, and writes nothing.
"""

import argparse

from bench.collect import Run
from bench.plots import draw
from bench.report import details, page
from bench.results import FOLDER, empty, read, write


def main() -> None:
    """Measure, keep, print and write."""
    parser = argparse.ArgumentParser(description="Measures everything, and writes bench/RESULTS.md.")
    parser.add_argument("--only", type=_names, default=frozenset(), metavar="PART,...")
    parser.add_argument("--measures", type=_names, default=frozenset(), metavar="NAME,...")
    parser.add_argument("--full", action="store_true", help="measure all of the peers")
    parser.add_argument("--resume", action="store_true", help="leave out what the last run has measured")
    parser.add_argument("--quick", action="store_true", help="measure little, and write nothing")
    parser.add_argument("--report-only", action="store_true", help="measure nothing, and write page and plots again")
    options = parser.parse_args()
    keeps = options.report_only or options.resume or options.only or options.measures
    results = (None if options.quick or not keeps else read()) or empty()
    keep = (lambda _: None) if options.quick else write
    if not options.report_only:
        flags = {"quick": options.quick, "resume": options.resume, "full": options.full}
        Run(results, keep, options.only, options.measures, **flags).measure()
    text = page(results)
    if not options.quick:
        (FOLDER / "RESULTS.md").write_text(text)
        (FOLDER / "DETAILS.md").write_text(details(results))
        draw(results, FOLDER)
    print(text)


def _names(text: str) -> frozenset[str]:
    return frozenset(filter(None, text.split(",")))


if __name__ == "__main__":
    main()
