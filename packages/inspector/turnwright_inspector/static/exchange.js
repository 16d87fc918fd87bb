// What is shown is exchanged: by links and forms, by the replay, and by itself while turns go on.

import { isHeld, noteActions, tendActions } from "./actions.js";
import { all, find, takeBack, tell } from "./page.js";
import { atEnd, keepEnd } from "./transcript.js";

/** What of the page is exchanged: a turn, or the list of turns. */
const part = () => find("#turn, #turns");
const here = () => location.pathname + location.search;
/** Parse a page. That of a refusal has a style in it, which the policy of this one forbids. */
const read = (html) => new DOMParser().parseFromString(html.replace(/<style>.*?<\/style>/s, ""), "text/html");

// ---- what stays as it is ----

let dragging = false;

/** What a morph must leave alone: what the reader unfolded, typed, or holds. */
function leaveAlone(name, node) {
  if (name === "open" && node.localName === "details") return true;
  if (name === "value" && node.id === "place") return dragging;
  if (name === "value" && node.matches("textarea, input:not([type=hidden])")) return node.value !== node.defaultValue;
  if (name === "checked" && node.matches("input")) return node.checked !== node.defaultChecked;
  return name === "aria-disabled" && isHeld(node.form);
}

if (window.Idiomorph) {
  const { callbacks } = window.Idiomorph.defaults;
  callbacks.beforeAttributeUpdated = (name, node) => !leaveAlone(name, node);
  // A refresh keeps the text that is being written, and each time that a script shows in the reader's time zone.
  const told = ({ localName, dateTime, dataset }) => (localName === "time" ? dateTime : dataset?.since);
  callbacks.beforeNodeMorphed = (node, fresh) =>
    !(node.id === "writing" && fresh.id === "writing") && !(told(node) && told(node) === told(fresh));
}

// ---- failures ----

const clock = new Intl.DateTimeFormat(undefined, { timeStyle: "medium" });
let seen = new Date();

/** Return why a response is not the requested one; status 0 means none. */
function reason(status, page) {
  if (status === 0) return "The inspector cannot be reached.";
  if (status === 401) return "Your session has ended. Open this page in another tab, enter the token there, and return here.";
  const words = ["h1", "h1 ~ p"].map((place) => find(place, page)?.textContent.trim().slice(0, 300)).filter(Boolean);
  if (status < 400) return words.length ? `The server sent another page: ${words[0]}.` : "The server sent another page.";
  const said = words.join(": ") || `The server answered with ${status}`;
  return /[.!?]$/.test(said) ? said : `${said}.`;
}

/** Say that the page stays as it is, and why. `about`: a `look` by itself, a `way` to another view, or a `action`. */
function failed(about, status, page) {
  if (about === "action") {
    const unknown = "The inspector did not respond. The page shows the result when the inspector can be reached again.";
    const old = "This page was too old for that, and is being updated.";
    const why = { 0: unknown, 403: old }[status] ?? reason(status, page);
    tell("action", status === 0 ? "Perhaps not done." : "Not done.", `${why} What you wrote is still here; try again.`);
  } else if (about === "way") {
    tell("way", "Not shown.", `${reason(status, page)} The page is unchanged; try again.`);
  } else if (status === 404) {
    tell("gone", "It no longer exists.", `${reason(status, page)} This is its last known state.`);
  } else {
    const then = status === 401 ? "" : " The page tries again by itself.";
    tell("look", "Not up to date.", `${reason(status, page)} This is the state of ${clock.format(seen)}.${then}`);
  }
}

// ---- asking for what is shown ----

/** Every request of somebody that is under way. What the page asks by itself waits for them. */
const ways = new Set();
let going = null;
let looking = null;
let due = false;

function setOut(way) {
  ways.add(way);
  document.documentElement.dataset.busy = "";
  // What is asked for now was not asked for when the look was sent: its answer would undo this one.
  if (!looking) return;
  due = true;
  looking.abort();
}

function arrive(way) {
  ways.delete(way);
  if (!ways.size) delete document.documentElement.dataset.busy;
  if (due && !ways.size) refresh();
}

/** Show what an address has. Gives what became of it: `shown`, `failed`, `gone`, or `left` if it was called off. */
async function show(address, { signal }, about) {
  let [status, html] = [0, ""];
  try {
    const response = await fetch(address, { signal });
    [status, html] = [response.status, await response.text()];
  } catch {
    // Nothing came, or not the whole of it.
  }
  if (signal.aborted) return "left";
  // A pointer that came to a row while this was under way keeps the row where it is, until it leaves.
  if (about === "look" && pointed()) {
    due = true;
    return "left";
  }
  const [page, target] = [read(html), part()];
  if (!target || !page.getElementById(target.id)) {
    failed(about, status, page);
    return status === 404 ? "gone" : "failed";
  }
  const [before, followed] = [noteActions(), atEnd()];
  // A look is not an answer to what somebody did: why that was not done stays.
  const refused = about === "look" ? find("#said") : null;
  const how = { swapStyle: "morph:outerHTML", swapDelay: 0, settleDelay: 20 };
  window.htmx.swap(target, html, how, { select: `#${target.id}`, contextElement: target });
  if (refused && !find("#said")) find("#actions")?.prepend(refused);
  tendActions(before);
  arrived(page, about);
  keepEnd(followed);
  return "shown";
}

/** Take over of a page what stands outside the part that is shown. `about` is what it was asked for. */
function arrived(page, about) {
  seen = new Date();
  // Who was let in anew has another session, and what is sent from now on must be of that one.
  document.body.setAttribute("hx-headers", page.body.getAttribute("hx-headers") ?? "{}");
  takeBack("look", ...(about === "look" ? [] : ["way", "action", "gone"]));
}

/** Show another address of this page in place of what is shown; with `push` the way back leads here. Gives whether. */
export async function go(href, { push = false } = {}) {
  if (!part()) return location.assign(href);
  const way = new AbortController();
  going?.abort();
  window.htmx.trigger("#turn", "htmx:abort");
  going = way;
  setOut(way);
  const done = (await show(href, way, "way")) === "shown";
  // What is left is found again by htmx, which knows its own entries.
  if (done && push) history.replaceState({ htmx: true }, "");
  if (done) history[push ? "pushState" : "replaceState"]({ htmx: true }, "", href);
  if (going === way) going = null;
  arrive(way);
  return done;
}

let waiting = null;
let failures = 0;

/** Look at what the address of the page has by now: soon, and after a failure when it is time to try again. */
function refresh() {
  // A failed look has a time of its own to be tried again.
  if (failures && waiting !== null) return;
  clearTimeout(waiting);
  waiting = setTimeout(look, failures ? Math.min(30_000, 500 * 2 ** failures) : 60);
}

/** Look at once, however often it has failed. */
export function lookNow() {
  clearTimeout(waiting);
  look();
}

const hovers = matchMedia("(hover: hover)");
/** Whether the pointer is on a row of a list. Rows do not move below it: a click would open another one. */
const pointed = () => hovers.matches && find("#turns tbody tr:hover") !== null;
const caughtUp = () => due && !pointed() && refresh();
document.addEventListener("pointerover", caughtUp);
document.documentElement.addEventListener("pointerleave", caughtUp);

async function look() {
  waiting = null;
  const target = part();
  // The past does not change, unless a form on it has expired.
  if (!target || document.hidden || ("cut" in target.dataset && find("#notice")?.hidden)) return;
  due = Boolean(dragging || looking || ways.size || pointed());
  if (due) return;
  looking = new AbortController();
  const old = stale;
  const became = await show(here(), looking, "look");
  looking = null;
  // What was written is on the page now.
  if (became === "shown" && old && stale) written(null);
  if (became === "shown") failures = 0;
  if (became === "failed") failures += 1;
  if (became === "failed" || due) refresh();
}

// ---- what htmx asks for ----

/** The address that a request was sent from. */
const from = new WeakMap();
let noted = null;

const aboutOf = (element) => (element?.matches("form.action") ? "action" : "way");

document.addEventListener("htmx:beforeSend", ({ detail: { xhr, requestConfig } }) => {
  if (requestConfig.verb === "get") going?.abort();
  from.set(xhr, here());
  setOut(xhr);
  xhr.addEventListener("loadend", () => arrive(xhr));
});

document.addEventListener("htmx:beforeSwap", ({ detail }) => {
  const { xhr, target, requestConfig } = detail;
  const [page, about] = [read(detail.serverResponse), aboutOf(requestConfig.elt)];
  const fresh = target.id ? page.getElementById(target.id) : null;
  detail.isError = false;
  detail.shouldSwap = fresh !== null;
  if (!fresh) {
    failed(about, xhr.status, page);
    // It brings what the page needs to try again, and what became of the action.
    if (about === "action" && xhr.status !== 404) lookNow();
    return;
  }
  noted = noteActions(about === "action" ? requestConfig.elt : null);
  // What was done need not be typed again; what was not stays.
  if (about === "action" && xhr.status < 400) requestConfig.elt.reset();
  if (about === "action" && from.get(xhr) !== here()) {
    // Somebody has gone elsewhere meanwhile, and the answer is the page that they left.
    detail.shouldSwap = false;
    const why = find("[role=alert]", fresh);
    if (why) tell("action", "Not done.", why.textContent.replace("Not done.", "").trim());
    due = true;
    return;
  }
  // Nothing that was unfolded, typed or focused in one turn is another one's.
  if (fresh.dataset.turn !== target.dataset.turn) detail.swapOverride = "outerHTML show:window:top";
  arrived(page, about);
});

document.addEventListener("htmx:afterSwap", () => {
  if (noted) tendActions(noted);
  noted = null;
});

for (const name of ["htmx:sendError", "htmx:timeout"]) {
  document.addEventListener(name, ({ detail }) => {
    const about = aboutOf(detail.requestConfig.elt);
    failed(about, 0, document);
    if (about === "action") lookNow();
  });
}

// A view has one entry and a short address, however often it was asked for.
document.addEventListener("htmx:beforeHistoryUpdate", ({ detail: { history: entry } }) => {
  const url = new URL(entry.path, location.href);
  for (const [name, value] of [...url.searchParams]) if (!value) url.searchParams.delete(name);
  entry.path = url.pathname + url.search;
  if (entry.path === here()) entry.type = "replace";
});

// The address is the other one's already: its page says what is wrong with it.
document.addEventListener("htmx:historyCacheMissLoadError", () => location.reload());
addEventListener("popstate", () => {
  going?.abort();
  if (looking) due = true;
  looking?.abort();
});

// ---- while turns go on ----

let stream = null;
let heard = null;
let breaks = 0;
let said = "text";
/** Whether what is being written belongs to a reply that is over. It stays in view until the page has that reply. */
let stale = false;

function written(text) {
  const box = find("#writing");
  if (text === null) [stale, said] = [false, "text"];
  if (!box) return;
  const [words, followed] = [find("#written"), atEnd()];
  words.textContent = text === null ? "" : words.textContent + text;
  box.hidden = !words.textContent;
  keepEnd(followed, text !== null);
}

function hush() {
  stream?.close();
  [stream, heard] = [null, null];
}

/** Listen to what happens to the part that is shown. */
export function listen() {
  const address = document.hidden ? null : part()?.dataset.live;
  const name = address ? (part().dataset.turn ?? part().id) : null;
  if (name === heard && stream?.readyState !== EventSource.CLOSED) return;
  hush();
  written(null);
  if (!name) return;
  heard = name;
  stream = new EventSource(address);
  const on = (kind, then) => stream.addEventListener(kind, (event) => then(event.data ? JSON.parse(event.data) : {}));
  on("changed", refresh);
  on("grown", () => {
    stale = true;
    refresh();
  });
  on("piece", ({ kind, text }) => {
    if (kind === "restarted" || stale) written(null);
    if (kind === "restarted" || kind === "reasoning") return;
    // The arguments of a call are on lines of their own, after the name of its tool.
    const begins = kind === said ? "" : `\n${kind.replace(/^(text|call \d+: )/, "")} `.trimEnd() + (kind === "text" ? "\n" : " ");
    said = kind;
    written(`${begins}${text}`);
  });
  on("progress", ({ call, message, progress, total }) => {
    const words = message || (total ? `${progress} of ${total}` : String(progress ?? ""));
    for (const one of all(`[data-progress="${CSS.escape(call ?? "")}"]`)) one.textContent = words;
  });
  on("trouble", refresh);
  on("ended", () => {
    hush();
    refresh();
  });
  on("gone", () => {
    hush();
    tell("gone", "The turn was deleted.", "This is its last known state.");
  });
  on("open", () => {
    breaks = 0;
  });
  // A refresh shows whether the server answers, and whether there is a stream to follow.
  on("error", () => {
    breaks += 1;
    setTimeout(refresh, Math.min(30_000, 500 * 2 ** breaks));
  });
}

// A browser has six connections to a server, and a page that nobody looks at needs none.
document.addEventListener("visibilitychange", () => {
  if (document.hidden) hush();
  else if (part()) {
    lookNow();
    listen();
  }
});
addEventListener("online", lookNow);
document.addEventListener("pointerdown", (event) => {
  if (event.target.id === "place") dragging = true;
});
for (const name of ["pointerup", "pointercancel"]) {
  document.addEventListener(name, () => {
    dragging = false;
    if (due) refresh();
  });
}
