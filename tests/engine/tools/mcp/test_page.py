"""`docs/mcp.md`: the files of its example do what the page shows."""

import re
import sys
from pathlib import Path

from tests.servers.forked_python import Python

PAGE = Path(__file__).parents[4] / "docs" / "mcp.md"


def test_example_prints_the_output_on_the_page(tmp_path: Path, python: Python) -> None:
    blocks = re.findall(
        r"`(\w+\.\w+)`,[^`]*```json\n(.*?)```|^`(\w+\.py)`[,;].*?```python\n(.*?)```",
        PAGE.read_text(encoding="utf-8"),
        re.DOTALL | re.MULTILINE,
    )
    files = {json_name or python_name: text or code for json_name, text, python_name, code in blocks}
    assert list(files) == ["mcp.json", "stock.py", "turn.py"]
    for name, text in files.items():
        (tmp_path / name).write_text(text.replace('"python"', f'"{sys.executable}"'), encoding="utf-8")
    done = python.run("turn.py", folder=tmp_path)
    match = re.search(r"prints\n\n```text\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL)
    assert match is not None
    assert (done.stdout, done.stderr) == (match[1], "")
