// The command palette: every page, tab, step and button of what is shown by its name, and a search for turns.

import { all, find } from "./page.js";

const MOST = 12;
const PLACES = {
  page: ".top nav a",
  view: ".views a",
  tab: "#tabs a",
  step: "#steps a.step",
  action: "main a.button, main button.button:not([aria-disabled=true]), .top-tools button",
};

const field = () => find("#palette-field");
let offered = [];
let at = 0;

/** The name of a link or a button; of a step, its title and what it did. */
const nameOf = (element) =>
  (all(".step-title, .step-what", element).map((one) => one.textContent).join(": ") || element.textContent).replace(/\s+/g, " ").trim().slice(0, 120);

/** Press a button, or follow a link. A form is only gone to: nobody sends one that they do not see. */
function run({ element, href }) {
  find("#palette").close();
  if (href) return location.assign(href);
  if (!element.closest("form")) return element.click();
  element.scrollIntoView({ block: "center" });
  element.focus();
}

function commands(asked) {
  const words = asked.toLowerCase().split(/\s+/).filter(Boolean);
  const found = Object.entries(PLACES)
    .flatMap(([kind, selector]) => all(selector).map((element) => ({ kind, element, name: nameOf(element) })))
    .filter(({ element, name }) => name && element.checkVisibility())
    .filter(({ kind, name }) => words.every((word) => `${kind} ${name}`.toLowerCase().includes(word)))
    .slice(0, MOST);
  if (!words.length) return found;
  const href = `${field().dataset.search}?${new URLSearchParams({ q: asked.trim() })}`;
  return [...found, { kind: "search", href, name: `Turns with “${asked.trim()}”` }];
}

function choose(place) {
  at = Math.min(Math.max(place, 0), offered.length - 1);
  for (const [number, option] of all("#palette-list > li").entries()) {
    option.setAttribute("aria-selected", String(number === at));
    if (number === at) option.scrollIntoView({ block: "nearest" });
  }
  if (at < 0) field().removeAttribute("aria-activedescendant");
  else field().setAttribute("aria-activedescendant", `palette-${at}`);
}

function offer() {
  offered = commands(field().value);
  const options = offered.map(({ kind, name }, number) => {
    const option = document.createElement("li");
    const words = document.createElement("span");
    const what = document.createElement("span");
    option.id = `palette-${number}`;
    option.setAttribute("role", "option");
    [words.className, what.className] = ["cut", "quiet small"];
    [words.textContent, what.textContent] = [name, kind];
    option.append(words, " ", what);
    return option;
  });
  find("#palette-list").replaceChildren(...options);
  choose(0);
}

export function openPalette() {
  if (!find("#palette") || find("dialog[open]")) return false;
  field().value = "";
  find("#palette").showModal();
  offer();
  return true;
}

document.addEventListener("input", (event) => event.target.id === "palette-field" && offer());
document.addEventListener("click", (event) => {
  const option = event.target.closest("#palette-list > li");
  if (option) run(offered[all("#palette-list > li").indexOf(option)]);
});
document.addEventListener("keydown", (event) => {
  if ((event.ctrlKey || event.metaKey) && event.key.toLowerCase() === "k" && openPalette()) event.preventDefault();
  if (event.target.id !== "palette-field") return;
  const by = { ArrowDown: 1, ArrowUp: -1 }[event.key];
  if (by) choose(at + by);
  else if (event.key === "Enter" && offered[at]) run(offered[at]);
  else return;
  event.preventDefault();
});
