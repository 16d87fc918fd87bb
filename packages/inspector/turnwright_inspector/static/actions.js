// The forms of a turn's actions. A click that was meant for one button never sends another form.

import { all, find, say, takeBack, tell } from "./page.js";

// A button that appears or moves below the pointer takes no click for this long. A person who was about to press
// another button, or who clicks twice, has not read what the new one does, and could approve a call unread.
const UNREAD = 500;
// A form that leads to another page is sent once: its second click would start another turn.
const LEAVING = 10_000;

/** The forms that take no submit yet, each with the timer that ends it. */
const held = new Map();

export const isHeld = (form) => held.has(form);

function hold(form, time = UNREAD) {
  clearTimeout(held.get(form));
  const mark = (on) => {
    for (const one of all("button", form)) on ? one.setAttribute("aria-disabled", "true") : one.removeAttribute("aria-disabled");
  };
  mark(true);
  held.set(
    form,
    setTimeout(() => {
      held.delete(form);
      mark(false);
    }, time),
  );
}

const buttons = () => all("#actions form.action button");
const questions = () => new Set(all("#actions .asked").map((one) => one.id));

function placeOf(button) {
  const { left, top } = button.getBoundingClientRect();
  return { left, top };
}

/** What of the forms is to be known before they are exchanged. `sent` is the one that was sent, if one was. */
export function noteActions(sent = null) {
  const { activeElement } = document;
  const typed = all("#actions textarea").filter((one) => one.form !== sent && one.value.trim() && one.value !== one.defaultValue);
  return {
    turn: find("#turn")?.dataset.turn,
    places: new Map(buttons().map((one) => [one, placeOf(one)])),
    asked: questions(),
    typed: new Map(typed.map((one) => [one.id, one.value])),
    // A button that is switched off while its form is under way gives its focus to nobody.
    focused: Boolean(find("#actions")?.contains(activeElement)) || (sent !== null && activeElement === document.body),
  };
}

/** Look after the forms that have come or moved, and after what went with those that are gone. */
export function tendActions(before) {
  if (find("#turn")?.dataset.turn !== before.turn) return;
  for (const one of buttons()) {
    const [was, is] = [before.places.get(one), placeOf(one)];
    if (!was || Math.hypot(was.left - is.left, was.top - is.top) > 4) hold(one.form);
  }
  // The focus never moves to another question by itself: a second press of the same key would answer that one too.
  if (before.focused && document.activeElement === document.body) find("#actions")?.focus({ preventScroll: true });
  if (before.asked.size && [...questions()].some((id) => !before.asked.has(id))) say("There is another question now.");
  for (const [id, words] of before.typed) {
    if (!document.getElementById(id)) tell("lost", "That question is closed.", "Your text:", { kept: words });
  }
}

// A person who comes back finds the page as it was.
addEventListener("pagehide", () => {
  for (const form of [...held.keys()]) hold(form, 0);
});

// A long question is in a box that scrolls. It can be approved only after its end was seen.
const seen = new WeakMap();
const hidesEnd = (box) => box.scrollHeight - box.scrollTop - box.clientHeight > 4;

document.addEventListener(
  "scroll",
  ({ target: box }) => {
    if (!box.matches?.(".question") || hidesEnd(box)) return;
    seen.set(box, box.textContent);
    takeBack("unread");
  },
  true,
);

/** Return the box of a question that a form would approve, and whose end was not seen. */
function unread(form) {
  const asked = form.id === "all-form" ? all(".waiting:has([name=chosen]:checked) .question") : all(".question", form.closest(".asked"));
  return asked.find((box) => hidesEnd(box) && seen.get(box) !== box.textContent);
}

document.addEventListener(
  "submit",
  (event) => {
    const box = event.submitter?.value === "approve" && unread(event.target);
    if (!box && !isHeld(event.target)) {
      if (event.target.method === "post" && !event.target.hasAttribute("hx-post")) hold(event.target, LEAVING);
      return;
    }
    event.preventDefault();
    event.stopImmediatePropagation();
    if (!box) return;
    tell("unread", "Not approved.", "There is more of the question: read it to its end first.");
    box.scrollIntoView({ block: "nearest" });
    box.focus({ preventScroll: true });
  },
  true,
);
