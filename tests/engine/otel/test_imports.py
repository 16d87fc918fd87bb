"""OpenTelemetry is imported only on request; without the package, the error says what to install."""

import subprocess
import sys

import pytest

#: Runs one turn in memory, with a telemetry only if it is asked for.
TURN = """
import asyncio, sys
from turnwright import Agent, Engine
from turnwright.model import ScriptedModel
async def run():
    async with Engine(model=ScriptedModel("done")) as engine:
        assert (await engine.run(Agent(name="A"), "Look")).text == "done"
asyncio.run(run())
"""
LOADED = """
import sys
print([m for m in sys.modules if m.partition(".")[0] == "opentelemetry" or m.startswith("turnwright.otel")])
print("turnwright.telemetry" in sys.modules)
"""


@pytest.mark.slow
@pytest.mark.parametrize("code", ["from turnwright import Engine", TURN], ids=["import", "turn"])
def test_opentelemetry_is_not_loaded_by_default(code: str) -> None:
    ran = subprocess.run([sys.executable, "-c", code + LOADED], capture_output=True, text=True, check=True)
    assert ran.stdout.split("\n")[:2] == ["[]", "False"]


@pytest.mark.slow
def test_api_without_the_sdk_runs_and_records_nothing() -> None:
    """Without the SDK everything runs, and nothing is recorded."""
    code = TURN.replace('("done"))', '("done"), telemetry=OpenTelemetry())').replace(
        "import asyncio, sys", "import asyncio, sys; sys.modules['opentelemetry.sdk'] = None"
    )
    code = code.replace("async def run", "from turnwright.otel import OpenTelemetry\nasync def run")
    ran = subprocess.run([sys.executable, "-W", "error", "-c", code], capture_output=True, text=True, check=False)
    assert (ran.returncode, ran.stderr) == (0, "")


@pytest.mark.slow
def test_import_without_the_api_tells_the_package_to_install() -> None:
    code = "import sys; sys.modules['opentelemetry'] = None; import turnwright.otel"
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    last = ran.stderr.splitlines()[-1]
    assert last.startswith("ImportError: turnwright.otel needs OpenTelemetry's API")
    assert last.endswith("pip install 'turnwright[otel]'")
