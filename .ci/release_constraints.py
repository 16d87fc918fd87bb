"""Write the versions and hashes of every package that the release job installs.

    python .ci/release_constraints.py

Resolves the build tools and the run-time dependencies of pyproject.toml to their newest wheels, and writes
`release-constraints.txt` beside this file. Run it with the Python version and on the platform of the release job, since
a wheel of another one has another hash. Needs the network.
"""

import json
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Final

HERE: Final = Path(__file__).parent
TARGET: Final = HERE / "release-constraints.txt"
HEADER: Final = "# Written by .ci/release_constraints.py, for Python {}.{} on Linux (x86-64). Do not edit.\n"


def wanted() -> list[str]:
    """Return the packages of the release job: the build's tools, and the requirements of the built package."""
    document = tomllib.loads((HERE.parent / "pyproject.toml").read_text(encoding="utf-8"))
    return ["build>=1.2", *document["build-system"]["requires"], *document["project"]["dependencies"]]


def main() -> None:
    """Resolve and write."""
    resolve = ["install", "--dry-run", "--ignore-installed", "--only-binary", ":all:", "--quiet", "--report", "-"]
    command = [sys.executable, "-m", "pip", "--disable-pip-version-check", *resolve, *wanted()]
    report = json.loads(subprocess.run(command, stdout=subprocess.PIPE, check=True).stdout)  # noqa: S603 (our own)
    lines = [
        f"{package['metadata']['name'].lower().replace('_', '-')}=={package['metadata']['version']}"
        f" --hash=sha256:{package['download_info']['archive_info']['hashes']['sha256']}\n"
        for package in report["install"]
    ]
    TARGET.write_text(HEADER.format(*sys.version_info) + "".join(sorted(lines)), encoding="utf-8")


if __name__ == "__main__":
    main()
