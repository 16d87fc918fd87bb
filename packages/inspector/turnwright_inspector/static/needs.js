// How many turns need somebody: in the navigation, in the title, and as a notification if one is wanted.

import { all, find } from "./page.js";

const EVERY = 10_000;
const KEY = "turnwright-notify";
const link = find("#needs-link");
const wanted = () => window.Notification?.permission === "granted" && localStorage.getItem(KEY) === "yes";
let known = Number(find("#needs-count")?.textContent || 0);

function show(count) {
  const place = find("#needs-count");
  place.textContent = count || "";
  place.hidden = !count;
  document.title = (count ? `(${count}) ` : "") + document.title.replace(/^\(\d+\) /, "");
  if (count > known && wanted()) {
    const notice = new Notification("Turnwright", { body: count === 1 ? "A turn needs you." : `${count} turns need you.`, tag: KEY });
    notice.addEventListener("click", () => {
      window.focus();
      location.assign(link.href);
    });
  }
  known = count;
}

async function look() {
  try {
    const response = await fetch(link.dataset.count);
    if (response.ok) show((await response.json()).count);
  } catch {
    // The page says by itself that the inspector cannot be reached.
  }
}

// A page that nobody looks at asks only for a notification.
if (link) setInterval(() => (!document.hidden || wanted()) && look(), EVERY);

// ---- the page of these turns ----

const notify = find("#notify");
const mark = () => notify?.setAttribute("aria-pressed", String(wanted()));
if (notify && window.Notification) notify.hidden = false;
mark();
notify?.addEventListener("click", async () => {
  const on = !wanted() && (await Notification.requestPermission()) === "granted";
  localStorage.setItem(KEY, on ? "yes" : "no");
  mark();
});

/** The question of each box when it was chosen: a question that came later was not chosen. */
const chosen = new WeakMap();
document.addEventListener("change", ({ target }) => {
  if (target.id === "choose-all") {
    for (const box of all("[name=chosen]")) {
      box.checked = target.checked;
      chosen.set(box, box.value);
    }
  }
  if (target.name === "chosen") chosen.set(target, target.value);
});
document.addEventListener(
  "submit",
  ({ target }) => {
    if (target.id !== "all-form") return;
    for (const box of all("[name=chosen]:checked")) if (chosen.get(box) !== box.value) box.checked = false;
  },
  true,
);
