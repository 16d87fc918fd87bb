"""Build the wheel and check its content: both packages with their data, and nothing else."""

import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path

ROOT = Path(__file__).parent.parent


def expected() -> set[str]:
    """Every tracked file of the two packages, as the wheel names it."""
    listed = subprocess.run(["git", "ls-files", "engine", "states"], cwd=ROOT, check=True, capture_output=True)  # noqa: S607
    return {line.split("/", 1)[1] for line in listed.stdout.decode().splitlines()}


def main() -> int:
    """Return 0 if the wheel has the right content."""
    with tempfile.TemporaryDirectory() as folder:
        command = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", folder]
        subprocess.run(command, cwd=ROOT, check=True, stdout=subprocess.DEVNULL)  # noqa: S603 (our own build)
        (wheel,) = Path(folder).glob("*.whl")
        names = {name for name in zipfile.ZipFile(wheel).namelist() if ".dist-info/" not in name}
    missing, extra = sorted(expected() - names), sorted(names - expected())
    for name in missing:
        sys.stderr.write(f"not in the wheel: {name}\n")
    for name in extra:
        sys.stderr.write(f"in the wheel, and should not be: {name}\n")
    typed = all(f"{package}/py.typed" in names for package in ("turnwright", "turnwright_states"))
    if not typed:
        sys.stderr.write("py.typed is missing from a package\n")
    return 1 if missing or extra or not typed else 0


if __name__ == "__main__":
    sys.exit(main())
