"""The workflow of `examples/review-agents.yml`: its commands run in a repository, and its token may only comment."""

import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any, Final

import pytest
import yaml

WORKFLOW: Final = Path(__file__).parents[2] / "examples" / "review-agents.yml"
BEFORE: Final = "---\nname: Refactorer\nsteps: 5\ntools: [read_file]\n---\nRefactor.\n"


def steps() -> dict[str, str]:
    """The commands of the workflow, by the names of the steps."""
    flow: dict[Any, Any] = yaml.safe_load(WORKFLOW.read_text("utf-8"))
    return {step["name"]: step["run"] for step in flow["jobs"]["review"]["steps"] if "name" in step}


def test_workflow_token_may_only_comment_and_no_secret_is_used() -> None:
    text = WORKFLOW.read_text("utf-8")
    flow = yaml.safe_load(text)
    assert flow["permissions"] == {"contents": "read"}
    assert flow["jobs"]["review"]["permissions"] == {"contents": "read", "pull-requests": "write"}
    assert "secrets." not in text
    assert "pull_request_target:" not in text
    assert not any("${{" in command for command in steps().values()), "a name in a command would run as code"


@pytest.mark.slow
@pytest.mark.skipif(None in map(shutil.which, ("git", "bash")), reason="git or bash is missing")
def test_workflow_commands_write_a_comment_and_check_the_pages(tmp_path: Path) -> None:
    person = {f"GIT_{role}_{field}": "nobody" for role in ("AUTHOR", "COMMITTER") for field in ("NAME", "EMAIL")}
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    around = {
        **os.environ,
        **person,
        "PATH": path,
        "GITHUB_STEP_SUMMARY": str(tmp_path / "summary"),
        "MARK": "<!-- m -->",
    }

    def run(command: str, **more: str) -> subprocess.CompletedProcess[str]:
        line = ["bash", "--noprofile", "--norc", "-eo", "pipefail", "-c", command]
        return subprocess.run(line, cwd=tmp_path, env=around | more, capture_output=True, text=True, check=False)

    (tmp_path / "AGENTS.md").write_text(BEFORE, encoding="utf-8")
    pages = "turnwright diagram --agents AGENTS.md --write docs/agents"
    setup = run(f"git init -q && {pages} && git add . && git commit -qm before && git rev-parse HEAD")
    assert setup.returncode == 0, setup.stderr
    base = setup.stdout.splitlines()[-1]
    (tmp_path / "AGENTS.md").write_text(BEFORE.replace("steps: 5", "steps: 20"), encoding="utf-8")
    compared = run(steps()["Compare the bounds"], BASE=base)
    assert compared.returncode == 0, compared.stderr
    comment = (tmp_path / "comment.md").read_text("utf-8")
    assert comment == (tmp_path / "summary").read_text("utf-8")
    assert comment.startswith("<!-- m -->\n| agent ")
    assert "| Refactorer | steps ▲" in comment
    checked = run(steps()["Check the pages of the agents"])
    assert (checked.returncode, checked.stdout) == (1, f"{Path('docs', 'agents', 'refactorer.md')} is stale\n")
    assert run(f"{pages} && {steps()['Check the pages of the agents']}").returncode == 0
