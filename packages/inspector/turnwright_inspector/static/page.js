// Elements of the page, and its notices.

export const find = (selector, from = document) => from.querySelector(selector);
export const all = (selector, from = document) => [...from.querySelectorAll(selector)];

/** Announce words to screen readers. */
export function say(words) {
  const place = find("#says");
  if (place) place.textContent = words;
}

/**
 * Say in a notice what went wrong and what to do about it; `kept` is what somebody wrote and may want back.
 *
 * `about` is what it is about. What the page does by itself (`look`) never takes the place of what somebody did.
 */
export function tell(about, title, words, { kept = "" } = {}) {
  const notice = find("#notice");
  if (!notice) return;
  const open = !notice.hidden;
  if (open && about === "look" && notice.dataset.about !== "look") return;
  // A screen reader does not repeat a notice that is shown already.
  if (open && find("#notice-title").textContent === title && find("#notice-words").textContent === words) return;
  notice.dataset.about = about;
  notice.classList.toggle("is-bad", about === "action");
  notice.classList.toggle("is-warn", about !== "action");
  find("#notice-title").textContent = title;
  find("#notice-words").textContent = words;
  find("#notice-kept").textContent = kept;
  find("#notice-kept").hidden = !kept;
  find("#notice-again").hidden = about !== "look";
  notice.hidden = false;
  say(`${title} ${words}`);
}

/** Put the notice away, if it is about one of these; of none, whatever it is about. */
export function takeBack(...abouts) {
  const notice = find("#notice");
  if (!notice || notice.hidden || (abouts.length && !abouts.includes(notice.dataset.about))) return;
  const focused = notice.contains(document.activeElement);
  notice.hidden = true;
  if (focused) find("#main")?.focus({ preventScroll: true });
}
