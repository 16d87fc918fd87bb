"""The difference of two texts: what is shown is in them, and every line that differs is shown."""

from hypothesis import given
from hypothesis import strategies as st

from turnwright_inspector.views.text_diff import DiffLine, text_diff

LINES = st.lists(st.sampled_from("abc"), max_size=30)


def text(lines: list[str]) -> str:
    return "".join(f"{line}\n" for line in lines)


def shown(diff: tuple[DiffLine, ...], side: str) -> list[str | int]:
    """The lines of one side, with the number of lines in place of those that are left out."""
    kinds = {"same": True, side: True, "gap": True}
    return [int(line.text.split()[0]) if line.kind == "gap" else line.text for line in diff if line.kind in kinds]


@given(LINES, LINES)
def test_diff_contains_both_texts(old: list[str], new: list[str]) -> None:
    diff = text_diff(text(old), text(new))
    assert bool(diff) is (old != new)
    for side, lines in (("left", old), ("right", new)) if diff else ():
        rest = list(lines)
        for line in shown(diff, side):
            if isinstance(line, int):
                rest = rest[line:]
            else:
                assert rest.pop(0) == line
        assert rest == []


def test_long_equal_stretches_are_left_out() -> None:
    lines = [str(number) for number in range(100)]
    diff = text_diff(text(lines), text([*lines[:50], "new", *lines[50:]]))
    assert [line.kind for line in diff] == ["gap", "same", "same", "same", "right", "same", "same", "same", "gap"]
    assert (diff[0].text, diff[-1].text) == ("47 equal lines", "47 equal lines")


def test_overlong_diff_is_cut_with_a_notice() -> None:
    diff = text_diff(text(["a"] * 700), text(["b"] * 600))
    assert diff[-1] == DiffLine("gap", "200 more lines are not compared")


def test_secret_of_several_lines_is_hidden() -> None:
    diff = text_diff('password: "one\ntwo\nthree" and a', 'password: "one\ntwo\nthree" and b')
    assert not any("two" in line.text for line in diff)
