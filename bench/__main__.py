"""Measures everything, and writes `bench/results.json`, `bench/RESULTS.md` and the plots beside it.

    python -m bench [--only PART,...] [--quick] [--report-only]

The parts are `bare_loop`, `turnwright_turns`, `streams`, `bodies`, `guard`, and the files of `bench/peers` whose
environments `make bench-peers` has made. What is not measured this time is kept as it was. `--quick` measures little,
and writes nothing: it is for seeing that all goes well.
"""

import argparse

from bench.collect import measure
from bench.plots import draw
from bench.report import page
from bench.results import FOLDER, merged, read, write


def main() -> None:
    """Measure, keep, print and write."""
    parser = argparse.ArgumentParser(description="Measures everything, and writes bench/RESULTS.md.")
    parser.add_argument(
        "--only", type=lambda text: frozenset(text.split(",")), default=frozenset[str](), metavar="PART,..."
    )
    parser.add_argument("--quick", action="store_true", help="measure little, and write nothing")
    parser.add_argument(
        "--report-only", action="store_true", help="measure nothing, and write the page and plots again"
    )
    asked = parser.parse_args()
    results = read() if asked.report_only else measure(asked.only, quick=asked.quick)
    if results is None:
        raise SystemExit("there is no bench/results.json yet")
    if asked.quick:
        print(page(results))
        return
    if not asked.report_only:
        results = merged(read() if asked.only else None, results)
        write(results)
    text = page(results)
    (FOLDER / "RESULTS.md").write_text(text)
    draw(results, FOLDER)
    print(text)


if __name__ == "__main__":
    main()
