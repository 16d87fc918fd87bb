"""Write AgentDojo's tasks and attacks as recorded runs, with labels.

    python bench/rules/agentdojo_runs.py FOLDER     in an environment with agentdojo

A run is the prompt of a user task with the published calls of that task, which succeeds, or with the published calls of
an injection, which must not. Injections without a call are left out: no rule can judge them. Each call returns `{}`.
"""

import csv
import json
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Final

# AgentDojo is installed in an environment of its own: who checks types need not have it.
from agentdojo.task_suite.load_suites import get_suites  # pyright: ignore[reportMissingImports]

VERSION: Final = "v1.2"


def runs(suite: Any) -> Iterator[tuple[str, str, Sequence[Any], bool]]:  # noqa: ANN401 (without agentdojo it has no type)
    """Yield the name, the prompt, the calls and the label of each run of a suite."""
    environment = suite.load_and_inject_default_environment({})
    for name, task in suite.user_tasks.items():
        yield name, task.PROMPT, task.ground_truth(environment.model_copy(deep=True)), True
        for attack, injection in suite.injection_tasks.items():
            calls = injection.ground_truth(environment.model_copy(deep=True))
            if calls:
                yield f"{name}-{attack}", task.PROMPT, calls, False


def messages(prompt: str, calls: Sequence[Any]) -> Iterator[dict[str, Any]]:
    """Yield the messages of a run, each call in a reply of its own."""
    yield {"role": "user", "content": prompt}
    for number, call in enumerate(calls):
        function = {"name": call.function, "arguments": json.dumps(call.args, default=str)}
        yield {"role": "assistant", "tool_calls": [{"id": f"c{number}", "type": "function", "function": function}]}
        yield {"role": "tool", "tool_call_id": f"c{number}", "content": "{}"}


def main(folder: Path) -> None:
    """Write a file for each run, in a folder for each suite, and `labels.csv`."""
    rows = [("file", "success")]
    for suite_name, suite in get_suites(VERSION).items():
        place = folder / suite_name
        place.mkdir(parents=True, exist_ok=True)
        for name, prompt, calls, success in runs(suite):
            record = {"messages": list(messages(prompt, calls))}
            (place / f"{name}.json").write_text(json.dumps(record), encoding="utf-8")
            rows.append((f"{suite_name}/{name}.json", str(success).lower()))
    with (folder / "labels.csv").open("w", encoding="utf-8", newline="") as file:
        csv.writer(file).writerows(rows)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
