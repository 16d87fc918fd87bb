"""A person runs a turn again with changes, compares both, and judges a turn, in a real browser."""

from playwright.sync_api import Page, expect

from turnwright.model import asks_for

from .stage import PHONE, Stage


def test_edited_step_runs_again_and_both_turns_are_compared(page: Page, stage: Stage) -> None:
    turn = stage.play(asks_for(("look_up", {"word": "alpha"})), "It is not there.")
    page.goto(stage.url(turn, "?step=2"))
    page.get_by_role("link", name="Edit and run again").click()
    expect(page.get_by_label("Begin")).to_contain_text("Before the model call of step 2")
    page.get_by_label("Prompt").fill("Find the letter.")
    page.locator("summary").filter(has_text="Step 1: look_up").click()
    page.get_by_role("textbox", name="Step 1: look_up").fill("alpha: a letter\nof the Greeks")
    page.get_by_role("button", name="Fork and run").click()
    expect(page.locator(".turn-name .badge")).to_contain_text("finished")
    expect(page.locator(".relations")).to_contain_text("with another prompt")
    page.get_by_role("link", name="compare", exact=True).click()
    expect(page.locator(".diff-right").filter(has_text="Find the letter.").first).to_be_visible()
    page.get_by_role("link", name="text in pair 2").click()
    expect(page.get_by_role("group", name="Difference of: request")).to_contain_text("of the Greeks")


def test_judgment_of_a_turn_is_given_and_withdrawn(page: Page, stage: Stage) -> None:
    turn = stage.play("Done.")
    page.goto(stage.url(turn))
    page.get_by_role("button", name="Good").click()
    expect(page.locator(".annotation")).to_contain_text("success 1")
    page.get_by_text("Tag, note or score").click()
    page.get_by_role("textbox", name="Tag").fill("slow")
    page.locator("#tag-add").click()
    expect(page.locator(".annotation")).to_have_count(2)
    page.get_by_role("button", name="Remove the score success").click()
    expect(page.locator(".annotation")).to_have_count(1)


def test_two_runs_are_compared_on_a_phone_in_two_clicks(page: Page, stage: Stage) -> None:
    other_turn = stage.play("It is a word.", prompt="Define it.", name="Definer")
    turn = stage.play("It is not a word.", prompt="Define it.", name="Definer")
    page.set_viewport_size(PHONE)
    page.goto(stage.address)
    page.get_by_role("link", name="Define it.").first.click()
    page.get_by_role("link", name="Compare", exact=True).click()
    expect(page.get_by_role("group", name="Difference of: answer")).to_contain_text("It is a word.")
    expect(page.get_by_label("Left turn")).to_have_value(other_turn)
    expect(page.get_by_label("Right turn")).to_have_value(turn)
