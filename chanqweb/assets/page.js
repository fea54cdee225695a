// What a page does beyond its links and forms: it follows the figures, and it can be used
// by keys.
"use strict";

// The part that changes comes anew from the server, where all of it is escaped.
const live = document.getElementById("live");
const follow = document.getElementById("follow");
let source = null;
let wanted = true;

function show(html) {
  const focused = document.activeElement && live.contains(document.activeElement) ? document.activeElement.id : "";
  const open = [...live.querySelectorAll("details[open][id]")].map((d) => d.id);
  live.innerHTML = html;
  for (const id of open) document.getElementById(id)?.setAttribute("open", "");
  if (focused) document.getElementById(focused)?.focus({ preventScroll: true });
}

// What is seen may be old: well is when it last came.
let well = new Date();

function tell(state, text) {
  if (state === "on") well = new Date();
  follow.dataset.state = state;
  follow.textContent = text;
  live.classList.toggle("old", state === "away");
}

function begin() {
  if (source || !wanted || document.hidden) return;
  source = new EventSource(live.dataset.live);
  source.onmessage = (e) => {
    tell("on", "Live");
    const selected = getSelection();
    if (selected && !selected.isCollapsed && live.contains(selected.anchorNode)) return; // somebody copies
    show(e.data);
  };
  source.onerror = () => tell("away", "No figures since " + well.toLocaleTimeString());
}

function end() {
  source?.close();
  source = null;
}

if (live && follow && "EventSource" in window) {
  follow.hidden = false;
  follow.addEventListener("click", () => {
    wanted = !wanted;
    follow.setAttribute("aria-pressed", String(wanted));
    tell("", wanted ? "Live" : "Not live");
    if (wanted) begin(); else end();
  });
  document.addEventListener("visibilitychange", () => { if (document.hidden) end(); else begin(); });
  addEventListener("pagehide", end);
  begin();
}

// Choosing all messages of a list.
const all = document.getElementById("all");
if (all) {
  all.hidden = false;
  all.addEventListener("change", () => {
    for (const box of document.querySelectorAll("input[name=id][type=checkbox]")) box.checked = all.checked;
  });
}

// Keys: j and k move through what can be opened, / finds, u goes up, n turns the page, ? says so.
const find = document.getElementById("find");
const help = document.getElementById("help");
if (location.hash === "#find") find?.focus();

// A page without a field to find something leads to the one that has it.
function seek() {
  const messages = document.getElementById("to-messages");
  if (find) find.focus();
  else if (messages) location.href = messages.href + "#find";
}

function move(by) {
  const links = [...document.querySelectorAll("main th[scope=row] a, main .causes a")];
  if (!links.length) return;
  const at = links.indexOf(document.activeElement);
  const next = links[at < 0 ? (by > 0 ? 0 : links.length - 1) : Math.min(Math.max(at + by, 0), links.length - 1)];
  next.focus();
  next.scrollIntoView({ block: "nearest" });
}

document.addEventListener("keydown", (e) => {
  if (e.ctrlKey || e.metaKey || e.altKey || e.target.closest("input:not([type=checkbox]), textarea, select")) return;
  const keys = {
    j: () => move(1),
    k: () => move(-1),
    "/": seek,
    "?": () => { if (help.open) help.close(); else help.showModal(); },
    u: () => document.getElementById("up")?.click(),
    n: () => document.getElementById("next")?.click(),
  };
  if (!keys[e.key] || (help.open && e.key !== "?")) return;
  e.preventDefault();
  keys[e.key]();
});
