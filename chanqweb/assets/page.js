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

// What is seen may be old: at is when it was read, by this page's clock, and note says why it is not read again soon.
const age = document.getElementById("age");
let at = performance.now() - Number(age.dataset.age);
let note = "";
let heard = performance.now(); // when the last event came

const lasting = (s) => s < 120 ? s + " s" : s < 7200 ? Math.floor(s / 60) + " min" : Math.floor(s / 3600) + " h";

function tell() {
  const s = Math.max(0, Math.floor((performance.now() - at) / 1000));
  age.dataset.state = note ? "poll" : s <= 5 ? "fresh" : "old";
  const slow = performance.now() - heard < 5000 ? ", the database is slow" : ", the web UI does not answer";
  age.textContent = lasting(s) + " ago" + (note || (live && s > 5 && wanted ? slow : ""));
  live?.classList.toggle("old", s > 15);
}

// An event tells how old its figures are, and whether the queue is paused, for the form outside of it.
function told(event, why) {
  note = why;
  heard = performance.now();
  const selected = getSelection();
  const copies = selected && !selected.isCollapsed && live.contains(selected.anchorNode);
  if (!copies) show(event.data); // else the older figures stay, and so does their age
  const as = new DOMParser().parseFromString(event.data, "text/html").getElementById("asof");
  if (as && !copies) at = performance.now() - Number(as.dataset.age);
  if (as?.dataset.paused) {
    document.getElementById("if-paused")?.toggleAttribute("hidden", as.dataset.paused !== "true");
    document.getElementById("if-running")?.toggleAttribute("hidden", as.dataset.paused === "true");
  }
  tell();
  return as;
}

function begin() {
  if (source || !wanted || document.hidden) return;
  source = new EventSource(live.dataset.live);
  source.onmessage = (e) => told(e, "");
  source.addEventListener("poll", (e) => { // the browser asks again after the time that the event has set
    const as = told(e, ". Not live: others watch; reloads every 10 s");
    if (as) note = ". Not live: " + as.dataset.most + " others watch; reloads every 10 s";
    tell();
  });
  source.onerror = () => {
    if (source?.readyState !== EventSource.CLOSED) return; // the browser asks again
    end(); // it does not after an answer that is no stream, such as 502 of a proxy
    setTimeout(begin, 10000);
  };
}

function end() {
  source?.close();
  source = null;
}

setInterval(tell, 1000);

if (live && follow && "EventSource" in window) {
  follow.hidden = false;
  follow.addEventListener("click", () => {
    wanted = !wanted;
    follow.setAttribute("aria-pressed", String(wanted));
    follow.textContent = wanted ? "Live" : "Not live";
    note = "";
    if (wanted) begin(); else end();
  });
  document.addEventListener("visibilitychange", () => { if (document.hidden) end(); else begin(); });
  addEventListener("pagehide", end);
  begin();
}

// The result of a change, and the question before it, are shown once: their address is not loaded again.
if (new URLSearchParams(location.search).has("seal")) {
  const clean = new URL(location.href);
  for (const name of [...clean.searchParams.keys()]) if (name !== "state" && name !== "type") clean.searchParams.delete(name);
  history.replaceState(null, "", clean);
}

// The browser asks again by itself, 5 s after an answer without figures.
const again = document.getElementById("again");
if (again) {
  const began = performance.now();
  const count = () => { again.nextElementSibling.textContent = "in " + Math.max(0, Math.ceil(5 - (performance.now() - began) / 1000)) + " s"; };
  setInterval(count, 250);
  count();
}

document.querySelector(".tabs [aria-current]")?.scrollIntoView({ block: "nearest", inline: "center" });

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
