// What the pages do beyond their links and forms. Everything that a reader needs works without it.

import { go, listen, lookNow } from "./exchange.js";
import { all, find, say, takeBack } from "./page.js";
import { openPalette } from "./palette.js";
import { tellHowLong } from "./timeline.js";
import { keepEnd, showChosen } from "./transcript.js";

const root = document.documentElement;
const turn = () => find("#turn");
const calm = matchMedia("(prefers-reduced-motion: reduce)");

// ---- the theme ----

function remember(key, value) {
  try {
    localStorage.setItem(key, value);
  } catch {
    // Storage may be forbidden: then it holds as long as the page.
  }
}

function changeTheme() {
  const now = root.dataset.theme ?? (matchMedia("(prefers-color-scheme: dark)").matches ? "dark" : "light");
  root.dataset.theme = now === "dark" ? "light" : "dark";
  remember("theme", root.dataset.theme);
}

// ---- when something else is shown ----

let before = { taken: new Set(), what: null, turn: null };

/** Return what is highlighted now, so that what is new can be found afterwards. */
function noted() {
  const shown = turn();
  if (!shown) return { taken: new Set(), what: null, turn: null };
  return {
    taken: new Set(all(".chart-picture .taken", shown).map((one) => one.id)),
    what: shown.dataset.what,
    turn: shown.dataset.turn,
    place: Number(slider()?.value),
    tab: find("#tab", shown)?.dataset.tab + Boolean(find("#chart-view", shown)?.search.includes("chart=full")),
    step: find("#steps [aria-current=step]", shown)?.closest("[data-step]").dataset.step ?? null,
  };
}

function settled() {
  tellTimes(document);
  tellHowLong();
  listen();
  const shown = turn();
  if (!shown) return;
  const now = noted();
  if (before.turn === now.turn && before.tab === now.tab) {
    for (const one of all(".chart-picture .taken", shown)) one.classList.toggle("new", !before.taken.has(one.id));
    if (now.place > before.place) follow(find("#chart-box", shown)?.dataset.last?.split(" ") ?? []);
    if (before.what !== now.what && !("cut" in shown.dataset)) say(shown.dataset.says);
  } else {
    showPlace();
    showTab();
  }
  markTabs();
  showStep();
  if (before.turn !== now.turn || before.step !== now.step) showChosen();
  keepEnd(false);
  before = now;
}

// ---- times, copying, zoom ----

const moments = new Intl.DateTimeFormat(undefined, { dateStyle: "medium", timeStyle: "medium" });
const minute = { month: "short", day: "numeric", hour: "numeric", minute: "2-digit" };
const thisYear = new Intl.DateTimeFormat(undefined, minute);
const anyYear = new Intl.DateTimeFormat(undefined, { ...minute, year: "numeric" });

function told(at, short) {
  if (!short) return moments.format(at);
  return (at.getFullYear() === new Date().getFullYear() ? thisYear : anyYear).format(at);
}

function tellTimes(from) {
  for (const time of all("time[datetime]", from)) {
    const at = new Date(time.dateTime);
    if (Number.isNaN(at.getTime())) continue;
    const words = told(at, "short" in time.dataset);
    if (time.textContent !== words) {
      time.title = time.dateTime;
      time.textContent = words;
    }
  }
}

async function copy(button) {
  const text = button.dataset.copy || find("pre", button.closest(".code") ?? document)?.textContent || "";
  const word = find(".copy-word", button);
  try {
    await navigator.clipboard.writeText(text);
    button.classList.add("done");
    if (word) word.textContent = "Copied";
    say("Copied");
  } catch {
    if (word) word.textContent = "Not allowed";
  }
  setTimeout(() => {
    button.classList.remove("done");
    if (word) word.textContent = "Copy";
  }, 1500);
}

function zoom(size) {
  if (size === "1") delete root.dataset.zoom;
  else root.dataset.zoom = size;
  for (const one of all("[data-zoom]", find(".chart-bar") ?? document)) one.setAttribute("aria-pressed", String(one.dataset.zoom === size));
  showPlace();
}

/** Scroll the steps in their box to the chosen one. */
function showStep() {
  const [box, step] = [find(".steps"), find("#steps [aria-current]")];
  if (!box || !step) return;
  const [outer, inner] = [box.getBoundingClientRect(), step.getBoundingClientRect()];
  if (inner.top < outer.top || inner.bottom > outer.bottom) box.scrollTop += inner.top - outer.top - outer.height / 3;
  const list = find("#steps");
  if (inner.left < outer.left || inner.right > outer.right) list.scrollLeft += inner.left - outer.left - 16;
}

/** Scroll the tabs in their row to the chosen one. The page stays where it is. */
function showTab() {
  const [row, tab] = [find("#tabs"), find("#tabs [aria-current]")];
  if (!row || !tab) return;
  const [outer, inner] = [row.getBoundingClientRect(), tab.getBoundingClientRect()];
  row.scrollLeft += inner.left + inner.width / 2 - outer.left - outer.width / 2;
}

/** Note where a row is marked on which of its sides there is more of it: its edges fade there. */
function markSides(row, place, name) {
  const [left, most] = row ? [row.scrollLeft, row.scrollWidth - row.clientWidth] : [0, 0];
  const sides = [left > 1 && "before", left < most - 1 && "after"].filter(Boolean).join(" ");
  if (sides) place.dataset[name] = sides;
  else delete place.dataset[name];
}

// A morph leaves the root alone.
const markTabs = () => markSides(find("#tabs"), root, "tabs");

for (const row of all(".top nav, .views")) {
  const here = find("[aria-current]", row);
  if (here) row.scrollLeft = here.offsetLeft - row.offsetLeft - (row.clientWidth - here.offsetWidth) / 2;
  const mark = () => markSides(row, row, "more");
  row.addEventListener("scroll", mark, { passive: true });
  new ResizeObserver(mark).observe(row);
}

/** Scroll the chart in its box to where the turn stands, with as much of its way around that as there is room for. */
function showPlace() {
  const box = find("#chart-box");
  const here = box && find(".here", box);
  if (!here) return;
  const [outer, inner] = [box.getBoundingClientRect(), here.getBoundingClientRect()];
  box.scrollTop += inner.top + inner.height / 2 - outer.top - outer.height / 2;
  const parts = all(".state.taken, .card.taken", box).map((one) => one.getBoundingClientRect());
  const seen = (left) => parts.filter((one) => one.left >= left && one.right <= left + outer.width).length;
  const middle = inner.left + inner.width / 2 - outer.left - outer.width / 2;
  let [best, most] = [middle, seen(middle + outer.left)];
  for (const by of [inner, ...parts].flatMap((one) => [one.left - 8, one.right + 8 - outer.width])) {
    if (by > inner.left || by + outer.width < inner.right) continue;
    if (seen(by) > most) [best, most] = [by - outer.left, seen(by)];
  }
  box.scrollLeft += best;
}

let moving = 0;

/** Move a dot along these rows of the chart. */
function follow(rows) {
  cancelAnimationFrame(moving);
  find(".chart-picture .token")?.remove();
  const ways = rows.filter(Boolean).flatMap((row) => all(`.chart-picture .arrow[data-rows~="${row}"] > path:not(.reach)`));
  if (!ways.length || calm.matches) return;
  const token = document.createElementNS(ways[0].namespaceURI, "circle");
  token.setAttribute("class", "token");
  token.setAttribute("r", "6");
  (ways[0].closest(".graph") ?? ways[0].closest("svg")).append(token);
  const lengths = ways.map((way) => way.getTotalLength());
  const whole = lengths.reduce((sum, length) => sum + length, 0);
  const began = performance.now();
  const on = (now) => {
    const share = Math.min(Math.max(now - began, 0) / 380, 1);
    let [at, left] = [0, share * whole];
    while (at < ways.length - 1 && left > lengths[at]) left -= lengths[at++];
    const { x, y } = ways[at].getPointAtLength(left);
    token.setAttribute("cx", x);
    token.setAttribute("cy", y);
    if (share < 1) moving = requestAnimationFrame(on);
    else token.remove();
  };
  moving = requestAnimationFrame(on);
}

// ---- hover, both ways ----

const numbers = (element) => (element.dataset.rows ?? "").split(" ").filter(Boolean);

function light(source) {
  for (const one of all(".lit")) one.classList.remove("lit");
  if (!source) return;
  const rows = new Set(numbers(source));
  const ofState = source.classList.contains("state");
  const ofStep = source.classList.contains("step-item");
  for (const one of all("[data-rows]")) {
    // A state lights the arrows at it, and not the states behind them; a step lights nothing of another step.
    if (one !== source && ofState && one.classList.contains("state")) continue;
    if (ofStep && one.dataset.step && one.dataset.step !== source.dataset.step) continue;
    if (one === source || numbers(one).some((row) => rows.has(row))) one.classList.add("lit");
  }
  const { step } = source.dataset;
  if (step) for (const one of all(`[data-step="${CSS.escape(step)}"]`)) one.classList.add("lit");
}

const lightable = (target) => target?.closest?.("[data-hover], .chart-picture [data-rows]") ?? null;
let under = null;

function point(target) {
  const source = lightable(target);
  if (source === under) return;
  under = source;
  light(source);
}

// ---- the keys ----

const typing = (target) => target.closest?.("input, textarea, select, [contenteditable], dialog") !== null;

function walk(list, by, current) {
  const links = all(list);
  if (!links.length) return false;
  const at = links.findIndex((one) => one.hasAttribute("aria-current"));
  const next = by === Infinity ? links.length - 1 : by === -Infinity ? current : at + by;
  const link = links[Math.max(0, Math.min(links.length - 1, next))];
  if (!link || link.hasAttribute("aria-current")) return true;
  link.click();
  return true;
}

const walkSteps = (by) => walk("#steps a.step", by, 1);
const ROWS = "main tbody tr:not(.md *), .waiting, .talk > li";
/** Move the focus along the rows of a list; Enter opens the row's link. */
function walkRows(by) {
  const links = all(ROWS).map((row) => find("a.cover, h2 a, :scope > p > a", row) ?? find("a", row)).filter((link) => link?.checkVisibility());
  const row = document.activeElement?.closest(ROWS);
  const now = links.findIndex((link) => link.closest(ROWS) === row);
  const next = links[Math.max(0, Math.min(links.length - 1, now < 0 ? 0 : now + by))];
  next?.focus();
  return Boolean(next);
}

const walkOn = (by) => (turn() ? walkSteps(by) : walkRows(by));
const walkTabs = (by) => walk("#tabs a", by, 0);
const press = (selector) => () => {
  find(selector)?.click();
  return find(selector) !== null;
};

const KEYS = {
  ArrowUp: () => walkSteps(-1),
  k: () => walkOn(-1),
  ArrowDown: () => walkSteps(1),
  j: () => walkOn(1),
  Home: () => walkSteps(-Infinity),
  End: () => walkSteps(Infinity),
  ArrowLeft: () => walkTabs(-1),
  "[": () => walkTabs(-1),
  ArrowRight: () => walkTabs(1),
  "]": () => walkTabs(1),
  Escape: () => (stopPlaying() ? true : press("#whole:not([aria-current])")()),
  ",": press("a#place-before"),
  ".": press("a#place-after"),
  p: press("#play"),
  t: () => (changeTheme(), true),
  "?": () => (find("#help")?.showModal(), true),
  "/": () => {
    const search = find("input[type=search]");
    search?.focus();
    return Boolean(search);
  },
};
const ONLY_ON_A_TURN = new Set(["ArrowUp", "ArrowDown", "ArrowLeft", "ArrowRight", "Home", "End", "[", "]"]);

function onKey(event) {
  if (event.defaultPrevented || event.ctrlKey || event.metaKey || event.altKey) return;
  if (typing(event.target)) return;
  if (ONLY_ON_A_TURN.has(event.key) && !turn()) return;
  // A box that scrolls by itself keeps the keys that scroll it.
  const box = event.target.closest?.("[tabindex='0']:not(a):not(g)");
  if (box && /^(Arrow|Home|End)/.test(event.key) && (box.scrollHeight > box.clientHeight || box.scrollWidth > box.clientWidth)) return;
  if (KEYS[event.key]?.()) event.preventDefault();
}

// ---- the replay ----

let playing = null;

const slider = () => find("#place");

function placeHref(index) {
  const range = slider();
  const places = range.dataset.places.split(" ");
  const url = new URL(range.dataset.href, location.href);
  if (index < places.length - 1) url.searchParams.set("at", places[index]);
  return url.pathname + url.search;
}

let wanted = null;
let walking = false;

/** Go to a place; of several that are asked for while one is on its way, to the last. */
async function goToPlace(index) {
  wanted = index;
  if (walking) return;
  walking = true;
  try {
    while (wanted !== null) {
      const next = wanted;
      wanted = null;
      if (!(await go(placeHref(next)))) stopPlaying();
    }
  } finally {
    walking = false;
  }
}

function stopPlaying() {
  if (playing === null) return false;
  clearTimeout(playing);
  playing = null;
  find("#play")?.setAttribute("aria-pressed", "false");
  return true;
}

function play() {
  if (stopPlaying()) return;
  const range = slider();
  let index = Number(range.value) >= Number(range.max) ? 0 : Number(range.value) + 1;
  const on = async () => {
    await goToPlace(index);
    find("#play")?.setAttribute("aria-pressed", "true");
    if (playing === null) find("#play")?.setAttribute("aria-pressed", "false");
    else if (index >= Number(slider()?.max ?? 0)) stopPlaying();
    else {
      index += 1;
      playing = setTimeout(on, calm.matches ? 1200 : 400);
    }
  };
  playing = setTimeout(on, 0);
}

// ---- what calls what ----

document.addEventListener("click", (event) => {
  // htmx leaves the links of pictures alone.
  const link = event.target.closest("svg a[href]")?.getAttribute("href");
  if (link && link.startsWith(location.pathname + "?") && !link.includes("#") && !(event.ctrlKey || event.metaKey || event.shiftKey)) {
    event.preventDefault();
    go(link, { push: true });
  }
  const copies = event.target.closest("[data-copy]");
  if (copies) copy(copies);
  const zooms = event.target.closest(".chart-bar [data-zoom]");
  if (zooms) zoom(zooms.dataset.zoom);
  if (event.target.closest("#theme")) changeTheme();
  if (event.target.closest("#palette-opens")) openPalette();
  if (event.target.closest("#help-opens")) find("#help")?.showModal();
  if (event.target.closest("#play")) play();
  if (event.target.closest("#notice-again")) lookNow();
  if (event.target.closest("#notice-close")) takeBack();
});
document.addEventListener("keydown", onKey);
// A scroll that moves the page below the pointer does not count as pointing.
document.addEventListener("pointermove", (event) => point(event.target));
document.addEventListener("pointerleave", () => point(null));
document.addEventListener("focusin", (event) => point(event.target));
document.addEventListener("input", (event) => {
  if (event.target.id !== "place") return;
  stopPlaying();
  goToPlace(Number(event.target.value));
});
// A scroll of a box does not bubble.
document.addEventListener("scroll", (event) => event.target.id === "tabs" && markTabs(), true);
addEventListener("resize", markTabs);
document.addEventListener("htmx:afterSettle", settled);
document.addEventListener("htmx:historyRestore", settled);
settled();
