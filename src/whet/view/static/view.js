// What pages do with a script: keys, copy buttons, the theme, steps that load when the reader comes near, cross-hairs.
// Every page works without it. Text of others is never parsed: elements get text only, and HTML comes in by htmx alone.

const all = (selector, root = document) => [...root.querySelectorAll(selector)];
const one = (selector, root = document) => root.querySelector(selector);
let trace = one("[data-trace]"); // it may come later: a trace is derived when it is first looked at

// Buttons that need a script are hidden until there is one.
function showButtons(root) {
  for (const button of all("[data-copy][hidden], [data-theme-switch][hidden]", root)) button.hidden = false;
}

const copy = (text, what = "") =>
  navigator.clipboard.writeText(text).then(
    () => say(`${what} copied`),
    () => say("the browser refuses to copy"),
  );

// A few words in a corner, for a moment; screen readers hear them.
function say(words) {
  let box = one("#said");
  if (!box) {
    box = document.createElement("output");
    box.id = "said";
    document.body.append(box);
  }
  box.textContent = words;
  clearTimeout(say.timer);
  say.timer = setTimeout(() => (box.textContent = ""), 2500);
}

function copyFrom(button) {
  const box = button.closest(button.dataset.copy === "block" ? ".block" : ".command");
  copy(one(button.dataset.copy === "block" ? ".block-text" : "code", box).textContent, box.className);
}

// The theme: as the system has it, light, dark.
function switchTheme() {
  const themes = ["", "light", "dark"];
  const theme = themes[(themes.indexOf(document.documentElement.dataset.theme ?? "") + 1) % themes.length];
  if (theme) document.documentElement.dataset.theme = theme;
  else delete document.documentElement.dataset.theme;
  localStorage.setItem("whet-theme", theme);
  say(theme ? `${theme} theme` : "theme of the system");
}

// Steps of a trace. Those that are not loaded yet are in a section that knows its first and its last step.
const isSection = (section, step) => Number(section.dataset.first) <= step && step <= Number(section.dataset.last);
const stepElement = (step) => document.getElementById(`s${step}`);
const stepOf = (link) => Number(link.hash.slice(2));
let held = null; // the step that an address or a key leads to, until the reader scrolls

function approach(section) {
  if (section.dataset.asked || !section.isConnected) return;
  section.dispatchEvent(new CustomEvent("approach"));
  setTimeout(() => approach(section), 100); // htmx may not have seen the section yet
}

const near = new IntersectionObserver(
  (entries) => entries.filter((entry) => entry.isIntersecting).forEach((entry) => approach(entry.target)),
  { rootMargin: "1200px 0px" },
);

function watchSections(root) {
  for (const section of all("section.waiting", root)) near.observe(section);
}

function goTo(step, { push = true } = {}) {
  if (!step) return;
  held = step;
  all(".step.here").forEach((element) => element.classList.remove("here"));
  const section = all("section.waiting").find((each) => isSection(each, step));
  if (push) history.replaceState(null, "", `#s${step}`);
  if (section) {
    section.scrollIntoView({ block: "start" });
    approach(section);
  }
  mark(step);
}

function mark(step) {
  const element = stepElement(step);
  if (!element) return;
  element.classList.add("here");
  const fold = element.closest("details:not([open])");
  if (fold) fold.open = true;
  element.scrollIntoView({ block: "start" });
  markOutline(step);
}

function markOutline(step) {
  const outline = one(".trace-outline");
  if (!outline) return;
  all("[aria-current]", outline).forEach((link) => link.removeAttribute("aria-current"));
  const link = all("a", outline).findLast((each) => stepOf(each) <= step);
  if (!link) return;
  link.setAttribute("aria-current", "true");
  const { offsetTop } = link.closest("li");
  if (outline.scrollHeight > outline.clientHeight) outline.scrollTop = offsetTop - outline.clientHeight / 3;
}

// The step that the reader looks at: the one that was chosen while it can be seen, or else the topmost.
function currentStep() {
  const chosen = one(".step.here");
  const seen = (element) => {
    const { top, bottom } = element.getBoundingClientRect();
    return bottom > 60 && top < innerHeight;
  };
  const element = chosen && seen(chosen) ? chosen : all(".step[id]").find(seen);
  return element ? Number(element.id.slice(1)) : 0;
}

function numbers(name) {
  return all(`[data-${name}]`).flatMap((each) => each.dataset[name].split(" ").filter(Boolean).map(Number));
}

const nextOf = (steps, here, forward) =>
  forward ? steps.find((each) => each > here) : steps.findLast((each) => each < here);

function goAlong(steps, forward) {
  const step = nextOf(steps, currentStep(), forward);
  if (step) goTo(step);
  else say(forward ? "none after this step" : "none before this step");
}

function neighbour(forward) {
  const here = currentStep();
  const step = nextOf(all(".step[id]").map((element) => Number(element.id.slice(1))), here, forward);
  goTo(step ?? (forward ? Math.min(here + 1, Number(trace.dataset.last)) : Math.max(here - 1, 1)));
}

// What can be done with the step that the reader looks at.
function useStep(action) {
  const element = stepElement(currentStep());
  if (!element) return;
  if (action === "y") copy(new URL(`?at=${element.id.slice(1)}#${element.id}`, location.href).href, "link");
  else if (action === "e") all("details", element).forEach((fold) => (fold.open = !fold.open));
  else if (action === "f" && element.dataset.fork) copy(element.dataset.fork, "fork command");
  else if (action === "f") say("a fork begins at a reply of the main thread");
  else one("[data-raw]", element)?.click();
}

// Rows of tables.
function moveRow(forward) {
  const rows = all("tr.row .row-link");
  const at = rows.indexOf(document.activeElement);
  rows[at < 0 ? 0 : Math.min(Math.max(at + (forward ? 1 : -1), 0), rows.length - 1)]?.focus();
}

const currentRow = () => document.activeElement?.closest?.("tr.row");

// Keys. A page gives its own to elements by data-key. All can be switched off.
const typing = (element) => element?.closest?.("input:not([type=checkbox]), textarea, select, [contenteditable]");
const keysAreOn = () => localStorage.getItem("whet-keys") !== "off";
let prefix = "";

function press(event) {
  if (event.ctrlKey || event.metaKey || event.altKey || event.defaultPrevented) return;
  if (event.key === "Escape") return document.activeElement?.blur?.();
  if (typing(event.target) || !keysAreOn()) return;
  const key = prefix + event.key;
  prefix = event.key === "g" && !prefix ? "g " : "";
  if (prefix) return;
  const done = useKey(key) ?? true;
  if (done) event.preventDefault();
}

function useKey(key) {
  const target = all("[data-key]").findLast((element) => element.dataset.key === key);
  if (target) return activate(target);
  const up = all(".crumbs a").at(-1);
  if (key in places) return one(places[key])?.click();
  if (key === "t") return switchTheme();
  if (key === "u" && up) return up.click();
  if (trace && key in traceKeys) return traceKeys[key]();
  if (key === "j" || key === "k") return moveRow(key === "j");
  if (key === "x" && currentRow()) return one("input[type=checkbox]", currentRow())?.click();
  if (key === " " && document.activeElement.matches(".row-link")) return one("[name=peek]", currentRow())?.click();
  if (key === "o" && currentRow()) return void window.open(one(".row-link", currentRow()).href, "_blank", "noopener");
  return false;
}

function activate(element) {
  if (element.matches("input, select, textarea")) return element.focus();
  if (!element.matches("a[data-stay]")) return element.click();
  const address = new URL(element.href);
  address.searchParams.set("at", currentStep());
  address.hash = `s${currentStep()}`;
  location.assign(address);
}

const nthLink = (place) => `.top nav a:nth-of-type(${place})`;
const places = { "g r": nthLink(2), "g c": nthLink(3), "g s": nthLink(4), "g i": nthLink(5), "?": ".top > a:last-of-type" };
const traceKeys = {
  j: () => neighbour(true),
  k: () => neighbour(false),
  J: () => goAlong(numbers("calls"), true),
  K: () => goAlong(numbers("calls"), false),
  "]": () => goAlong(numbers("errors"), true),
  "[": () => goAlong(numbers("errors"), false),
  "}": () => goAlong(numbers("subs"), true),
  "{": () => goAlong(numbers("subs"), false),
  n: () => goAlong(numbers("hits"), true),
  N: () => goAlong(numbers("hits"), false),
  r: () => useStep("r"),
  e: () => useStep("e"),
  y: () => useStep("y"),
  f: () => useStep("f"),
};

// The cross-hair of a plot: the nearest point, what it shows, and the row of a table that stands for the same.
function crossHair(plot, x) {
  const away = (point) => Math.abs(point.getBoundingClientRect().x + 6 - x);
  const nearest = all("[data-x]", plot).reduce((best, point) => (best && away(best) <= away(point) ? best : point), null);
  if (nearest) pointAt(plot.closest("[data-points]") ?? plot.parentElement, nearest.dataset.x);
}

function pointAt(area, x) {
  all(".pointed", area).forEach((element) => element.classList.remove("pointed"));
  const there = all("[data-x]", area).filter((element) => element.dataset.x === x);
  there.forEach((element) => element.classList.add("pointed"));
  const words = one(".plot-words", area);
  if (words) words.textContent = there.find((element) => element.dataset.y)?.dataset.y ?? "";
}

// New steps of a trace that still grows: the reader is told, and never scrolled.
function tellNews(event) {
  const pill = one("#new-steps");
  const known = Number(trace?.dataset.last ?? 0);
  const count = Number(event.detail?.data ?? event.detail?.message?.data ?? 0) - known;
  if (!pill || !(count > 0)) return;
  pill.hidden = false;
  pill.textContent = count === 1 ? "1 new step" : `${count} new steps`;
  const { scrollHeight, clientHeight, scrollTop } = document.documentElement;
  if (scrollHeight - clientHeight - scrollTop < 40) pill.click();
}

// A live page says when it cannot be kept up to date.
function noteConnection(words) {
  all("#live-note").forEach((note) => (note.textContent = words));
}

function afterSwap() {
  showButtons(document);
  watchSections(document);
  const before = trace;
  trace = one("[data-trace]");
  const end = one("[data-last-step]");
  if (end && trace) trace.dataset.last = Math.max(Number(trace.dataset.last), Number(end.dataset.lastStep));
  if (held) mark(held);
  else if (trace && !before) goToAddress();
}

// The step that the address of the page names.
function goToAddress() {
  if (trace && /^#s\d+$/.test(location.hash)) goTo(stepOf(location), { push: false });
}

function showToken(event) {
  const token = event.target.closest?.(".token[title]");
  const tip = one(".token-tip");
  if (!token || !tip) return;
  tip.hidden = false;
  tip.textContent = `${JSON.stringify(token.textContent)} ${token.title}`;
}

document.addEventListener("keydown", press);
document.addEventListener("click", (event) => {
  const button = event.target.closest?.("[data-copy], [data-theme-switch], [data-keys-switch]");
  if (button?.dataset.copy) copyFrom(button);
  else if (button?.matches("[data-theme-switch]")) switchTheme();
  else if (button) localStorage.setItem("whet-keys", button.checked ? "on" : "off");
  const link = event.target.closest?.(".trace-outline a, .hits a, a[href^='#s']");
  if (!link || !trace || event.button || event.ctrlKey || event.metaKey || event.shiftKey) return;
  event.preventDefault();
  goTo(stepOf(link));
});
document.addEventListener("pointermove", (event) => {
  const plot = event.target.closest?.("svg.plot");
  if (plot && one("[data-x]", plot)) crossHair(plot, event.clientX);
  const row = event.target.closest?.("[data-points] tr[data-x]");
  if (row) pointAt(row.closest("[data-points]"), row.dataset.x);
});
for (const name of ["mouseover", "focusin"]) document.addEventListener(name, showToken);
for (const name of ["wheel", "touchmove", "pointerdown"]) addEventListener(name, () => (held = null), { passive: true });
addEventListener("hashchange", goToAddress);
document.addEventListener("htmx:before:request", (event) => (event.target.dataset.asked = "1"));
document.addEventListener("htmx:after:swap", afterSwap);
document.addEventListener("steps", tellNews);
document.addEventListener("htmx:sse:error", () => noteConnection("The connection to whet view is lost. Trying again …"));
document.addEventListener("htmx:sse:after:connection", () => noteConnection(""));
document.addEventListener("htmx:response:error", (event) => {
  if (event.target.id === "live") noteConnection("Too many pages are open: this one does not change by itself. Close some and load it again.");
});

showButtons(document);
watchSections(document);
all("[data-keys-switch]").forEach((box) => (box.checked = keysAreOn()));
goToAddress();
