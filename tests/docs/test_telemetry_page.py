"""The example of docs/telemetry.md prints the output that the page shows, and the page lists every exported name."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

from turnwright.otel import OpenTelemetry, names
from turnwright.otel.instruments import Instruments

PAGE = (Path(__file__).parents[2] / "docs" / "telemetry.md").read_text(encoding="utf-8")
_LISTED = [value for name, value in vars(names).items() if name.isupper()]
NAMES = sorted(name for group in _LISTED for name in (group.values() if isinstance(group, dict) else [group]))


def test_example_prints_the_output_of_the_page() -> None:
    example = PAGE.split("```python\n")[1].split("```", 1)[0]
    promised = PAGE.split("```text\n")[1].split("```", 1)[0]
    ran = subprocess.run([sys.executable, "-W", "error", "-c", example], capture_output=True, text=True, check=True)
    assert ran.stdout == promised


@pytest.mark.parametrize("name", NAMES)
def test_every_exported_name_is_mentioned(name: str) -> None:
    assert f"`{name}`" in PAGE


def test_every_metric_is_mentioned() -> None:
    source = Path(sys.modules[Instruments.__module__].__file__ or "").read_text(encoding="utf-8")
    metrics = set(re.findall(r'"((?:gen_ai|turnwright)\.[a-z_.]+)"', source))
    assert len(metrics) == 10
    assert [name for name in metrics if f"| `{name}` |" not in PAGE] == []


def test_every_mentioned_name_exists() -> None:
    known_names = {f"gen_ai.client.inference.{part}.input_tokens" for part in ("operation", "usage")}
    known_names |= {*NAMES, "turnwright.otel", "turnwright.telemetry.Telemetry", "turnwright.turns"}
    known_names |= set(re.findall(r"^\| `(\S+)` \| `", PAGE, re.MULTILINE))
    page_names = set(re.findall(r"`((?:gen_ai|turnwright)\.[A-Za-z_.]+)`", PAGE))
    assert page_names - known_names == set()
    assert OpenTelemetry.__doc__ is not None
