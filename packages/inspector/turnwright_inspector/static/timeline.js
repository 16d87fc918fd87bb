// The timeline: a bar leads to its step, a drag chooses a part of the time, and what runs now says for how long.

import { go } from "./exchange.js";
import { all, find } from "./page.js";

const NARROWEST = 6;

function span(seconds) {
  if (seconds < 60) return `${Math.round(seconds)} s`;
  const minutes = Math.floor(seconds / 60);
  return minutes < 60 ? `${minutes} min ${Math.round(seconds % 60)} s` : `${Math.floor(minutes / 60)} h ${minutes % 60} min`;
}

export function tellHowLong() {
  for (const one of all("[data-since]")) {
    const words = `for ${span(Math.max(0, Date.now() / 1000 - Number(one.dataset.since)))}`;
    if (one.textContent !== words) one.textContent = words;
  }
}

// ---- a part of the time ----

let drag = null;

/** The picture with the times below the pointer, and the times of its edges. */
function timesBelow(target) {
  const box = find("#timeline");
  const picture = target.closest?.(".strip, .scale .lane-bars");
  if (!box || !picture) return null;
  const { began, ended, whole } = box.dataset;
  const [low, high] = picture.matches(".strip") ? [0, Number(whole)] : [Number(began), Number(ended)];
  return { box, picture, low, high };
}

function placesOf(event) {
  const { left, width } = drag.picture.getBoundingClientRect();
  return [drag.from, event.clientX].map((x) => Math.min(Math.max((x - left) / width, 0), 1)).sort((a, b) => a - b);
}

document.addEventListener("pointerdown", (event) => {
  const times = event.button === 0 && timesBelow(event.target);
  if (!times) return;
  event.preventDefault();
  drag = { ...times, from: event.clientX };
  drag.picture.setPointerCapture(event.pointerId);
});
document.addEventListener("pointermove", (event) => {
  if (!drag) return;
  let mark = find(".drag", drag.picture);
  if (!mark) {
    mark = document.createElementNS(drag.picture.namespaceURI, "rect");
    mark.setAttribute("class", "drag");
    mark.setAttribute("height", "100%");
    drag.picture.append(mark);
  }
  const [from, to] = placesOf(event);
  mark.setAttribute("x", `${from * 100}%`);
  mark.setAttribute("width", `${(to - from) * 100}%`);
});
document.addEventListener("pointerup", (event) => {
  if (!drag) return;
  const [from, to] = placesOf(event);
  const { box, low, high } = drag;
  find(".drag", drag.picture)?.remove();
  const far = Math.abs(event.clientX - drag.from) >= NARROWEST;
  drag = null;
  if (!far) return;
  const url = new URL(box.dataset.zoomHref, location.href);
  url.searchParams.set("zoom", [from, to].map((place) => (low + place * (high - low)).toFixed(9)).join("-"));
  go(url.pathname + url.search, { push: true });
});
document.addEventListener("pointercancel", () => {
  find(".drag")?.remove();
  drag = null;
});

document.addEventListener("click", (event) => {
  const href = event.target.closest?.(".lane-bars [data-href]")?.dataset.href;
  if (!href) return;
  const here = new URL(href, location.href).pathname === location.pathname;
  if (here && !(event.ctrlKey || event.metaKey)) go(href, { push: true });
  else if (here) open(href);
  else location.assign(href);
});

setInterval(tellHowLong, 1000);
