// The transcript of a turn: its end, which stays in view while it grows, its chosen step, and its pictures.

import { find } from "./page.js";

/** How far, in pixels, the end may be below the view of somebody who still follows it. */
const NEAR = 48;

/** The rows of a turn that continues, if its last ones are on the page. */
const tail = () => find("#turn[data-live] #lines[data-tail]");
/** Where the view ends: the slider covers the foot of the window. */
const foot = () => find(".replay")?.getBoundingClientRect().top ?? innerHeight;

let known = { turn: null, rows: 0 };
const pill = document.createElement("button");
pill.type = "button";
pill.className = "button primary pill";
pill.textContent = "↓ New";
pill.hidden = true;
pill.addEventListener("click", () => toEnd());
document.body.append(pill);

function toEnd() {
  pill.hidden = true;
  const below = (tail()?.getBoundingClientRect().bottom ?? 0) + 24 - foot();
  if (below > 0) scrollBy({ top: below, behavior: "instant" });
}

/** Whether the end of a turn that continues is in view: then it stays there. To be asked before something is added. */
export function atEnd() {
  const list = tail();
  return list !== null && list.getBoundingClientRect().bottom <= foot() + NEAR;
}

/** Look after the end when something may have been added. `followed` is whether it was in view, `more` whether text came. */
export function keepEnd(followed, more = false) {
  const list = tail();
  const now = { turn: find("#turn")?.dataset.turn ?? null, rows: Number(list?.dataset.rows ?? 0) };
  const grew = more || (known.turn === now.turn && known.rows < now.rows && known.rows > 0);
  known = now;
  if (!list) pill.hidden = true;
  else if (followed) toEnd();
  else if (grew) pill.hidden = false;
}

/** Scroll to what the chosen step has in this tab, if it begins outside of the view. */
export function showChosen() {
  const first = find("#tab .line.chosen, #tab .lane.chosen");
  if (!first) return;
  const { top } = first.getBoundingClientRect();
  if (top < 64 || top > foot() - 96) first.scrollIntoView({ block: "start", behavior: "instant" });
}

/** Show a picture in its full size. Without scripts its link does. */
function enlarge(thumb) {
  const [box, picture, close] = ["dialog", "img", "button"].map((name) => document.createElement(name));
  box.className = "lightbox";
  box.setAttribute("aria-label", find("img", thumb).alt);
  [picture.src, picture.alt] = [thumb.href, find("img", thumb).alt];
  [close.type, close.className, close.textContent] = ["button", "button", "Close"];
  box.append(picture, close);
  box.addEventListener("click", () => box.close());
  box.addEventListener("close", () => {
    box.remove();
    thumb.focus();
  });
  document.body.append(box);
  box.showModal();
}

document.addEventListener("click", (event) => {
  const thumb = event.target.closest(".thumb");
  if (!thumb || event.ctrlKey || event.metaKey || event.shiftKey) return;
  event.preventDefault();
  enlarge(thumb);
});
document.addEventListener("scroll", () => {
  if (!pill.hidden && atEnd()) pill.hidden = true;
});
