"""`turnwright demo`: four scenes, with nothing configured."""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from .conftest import Cli


def test_four_turns_that_could_have_gone_wrong_end_clearly(cli: "Cli") -> None:
    nothing = {"OPENAI_API_KEY": None, "OPENAI_BASE_URL": None, "TMPDIR": str(cli.folder)}
    done = cli.run("demo", env=nothing)
    assert (done.code, done.err) == (0, "")
    cap, doom, pause, crash, end = (scene for scene in done.out.split("=" * 78) if scene.strip())
    assert "Stopped at the step limit (3 of 3)." in cap
    assert "(CHECK > STREAM > TOOL_EXEC > CONTINUE) x3 > CHECK > CONCLUDE > CAP_HIT" in cap
    assert "outcome:  doom_loop: doom_loop" in doom
    assert "delete_file waits: approval-1" in pause
    assert "Done in 2 steps (1 tool call, " in pause
    assert "--  kill -9; another process resumes the turn" in crash
    assert crash.count("record(order 17)") == 1
    assert "upload(invoice 17) attempt 2" in crash
    assert "Four turns ended clearly" in end
    assert list(cli.folder.iterdir()) == []
