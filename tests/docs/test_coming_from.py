"""Run docs/coming-from.md: our example prints what it shows, and the others give the same answer.

Those of the OpenAI Agents SDK and of LangChain run in environments of their own, which `make bench-peers` makes.
"""

import ast
import json
import os
import subprocess
from pathlib import Path

import pytest

from .chat_server import calls, says, serving
from .page_blocks import blocks_of

PAGE = "coming-from.md"
BLOCKS = blocks_of(PAGE)
PYTHON = {block.title: block.text for block in BLOCKS if block.language in {"python", "py"}}
PRINTED = next(block.text for block in BLOCKS if block.language == "text")
ANSWER = PRINTED.removeprefix("finished ")
PEERS = Path(__file__).parents[2] / ".venv-peers"


def printed(code: str, capsys: pytest.CaptureFixture[str]) -> str:
    exec(compile(code, "an example", "exec"), {"__name__": "__main__"})  # noqa: S102 (our own page)
    return capsys.readouterr().out


def test_own_example_prints_the_output_of_the_page(capsys: pytest.CaptureFixture[str]) -> None:
    assert printed(PYTHON["with_turnwright.py"], capsys) == PRINTED


def test_pydantic_ai_example_gives_the_same_answer(capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("pydantic_ai", reason="needs pydantic-ai: pip install 'turnwright[pydantic-ai]'")
    assert printed(PYTHON["with_pydantic_ai.py"], capsys) == ANSWER


def shared_classes() -> str:
    """Return `Deps` and `Offer` of the examples, with their imports."""
    classes = [node for node in ast.parse(PYTHON["with_turnwright.py"]).body if isinstance(node, ast.ClassDef)]
    imports = ("import asyncio", "from dataclasses import dataclass", "from pydantic import BaseModel")
    return "\n".join([*imports, *map(ast.unparse, classes)])


def run_beside(peer: str, code: str, folder: Path, **environment: str) -> str:
    """Run the code in the environment of a peer, and return what it printed."""
    python = PEERS / peer / "bin" / "python"
    if not python.exists():
        pytest.skip(f"needs {peer}: make bench-peers")
    (folder / "example.py").write_text(code, encoding="utf-8")
    ran = subprocess.run(
        [python, "example.py"], cwd=folder, env=os.environ | environment, capture_output=True, text=True, check=False
    )
    assert ran.returncode == 0, ran.stderr
    return ran.stdout


def test_openai_agents_sdk_example_gives_the_same_answer(tmp_path: Path) -> None:
    code = f"""{shared_classes()}
{PYTHON["with_openai_agents.py"]}

from agents import set_default_openai_api, set_tracing_disabled
set_default_openai_api("chat_completions")
set_tracing_disabled(True)
asyncio.run(main())
"""
    with serving(calls("price_of", part="wheel"), says(json.dumps({"part": "wheel", "price": 20}))) as address:
        output = run_beside("openai-agents", code, tmp_path, OPENAI_BASE_URL=address, OPENAI_API_KEY="none")
    assert output == ANSWER


#: A model in place of OpenAI's, whose package is not installed: it asks for the price, then gives the answer.
FAKE_CHAT = """
from langchain_core.language_models.fake_chat_models import GenericFakeChatModel
from langchain_core.messages import AIMessage

class Fake(GenericFakeChatModel):
    def bind_tools(self, tools, **options):
        return self

def asks(name, **arguments):
    return AIMessage(content="", tool_calls=[{"id": name, "name": name, "args": arguments}])

FAKE = Fake(messages=iter([asks("price_of", part="wheel"), asks("Offer", part="wheel", price=20)]))
"""


def test_langchain_example_gives_the_same_answer(tmp_path: Path) -> None:
    example = PYTHON["with_langchain.py"].replace('"openai:gpt-5-mini"', "FAKE")
    code = f"{shared_classes()}\n{FAKE_CHAT}\n{example}\nmain()"
    assert run_beside("langgraph", code, tmp_path) == ANSWER


def test_every_framework_has_a_section() -> None:
    assert [block.title for block in BLOCKS if block.language in {"python", "py", "ts"}] == [
        "with_turnwright.py",
        "with_pydantic_ai.py",
        "with_openai_agents.py",
        "with_langchain.py",
        "with_ai.ts",
    ]
