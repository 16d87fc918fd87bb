"""`turnwright annotate`: tags, scores and notes are written, listed and removed, and `audit` reads the score."""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tests.engine.cli.fixtures import Cli, Endpoint


def test_turn_is_annotated_and_audited(cli: "Cli", endpoint: "Endpoint") -> None:
    endpoint.says("Done.")
    turn = cli.run("run", "Tidy up", "--json").turn
    none = cli.run("annotate", turn)
    assert (none.code, none.err) == (0, "no tags, notes and scores\n")
    flags = ("--tag", "slow", "--score", "success=0", "--note", "It did the wrong room.")
    annotations = cli.run("annotate", turn, *flags, "--json").events
    assert [(annotation["kind"], annotation["value"], annotation["text"]) for annotation in annotations] == [
        ("note", None, "It did the wrong room."),
        ("score", 0.0, ""),
        ("tag", None, ""),
    ]
    listed = cli.run("annotate", turn, "--remove", "slow").out.splitlines()
    assert [line.split()[0] for line in listed] == ["KIND", "note", "score"]
    assert cli.run("audit", "turns.db", "--json").events[0]["success"] is False
    assert cli.run("annotate", turn, "--score", "success=1").code == 0
    assert cli.run("audit", "turns.db", "--json").events[0]["success"] is True


def test_annotation_mistake_is_a_single_line(cli: "Cli", endpoint: "Endpoint") -> None:
    endpoint.says("Done.")
    turn = cli.run("run", "Tidy up", "--json").turn
    wrong = cli.run("annotate", turn, "--score", "success")
    assert (wrong.code, wrong.err) == (2, "turnwright: --score success: write it as NAME=NUMBER, such as success=1\n")
    unknown = cli.run("annotate", turn, "--remove", "fast", "--tag", "slow")
    assert f"--remove fast: turn {turn} has no tag, score or note of this name" in unknown.err
    assert cli.run("annotate", turn).err == "no tags, notes and scores\n"
    assert "there is no turn 'nobody' in this store" in cli.run("annotate", "nobody").err
    assert "a note needs a text" in cli.run("annotate", turn, "--note", " ").err
