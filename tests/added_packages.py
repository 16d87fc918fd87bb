"""Packages that a test installs: a real distribution with entry points, in a folder that continues `sys.path`."""

from collections.abc import Mapping
from pathlib import Path


def install(folder: Path, package: str, group: str, entries: Mapping[str, str], code: str) -> Path:
    """Write the distribution `package`, whose module has `code` and whose entry points are `entries` by name.

    The module is named like the package, with an underscore for each hyphen. Returns `folder`.
    """
    about = folder / f"{package.replace('-', '_')}-1.0.dist-info"
    about.mkdir(parents=True)
    (about / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {package}\nVersion: 1.0\n")
    lines = [f"[{group}]", *(f"{name} = {target}" for name, target in entries.items())]
    (about / "entry_points.txt").write_text("\n".join(lines) + "\n")
    (folder / f"{package.replace('-', '_')}.py").write_text(code)
    return folder
