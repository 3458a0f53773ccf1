"use strict";
// Where scripts run the page is renewed in place, so that nothing is lost that is being read or typed; without them the
// browser loads it again. A page that can't be renewed (asleep, offline, server gone) must not pass for the present.
const every = Number(document.documentElement.dataset.refresh) * 1000;
let shownAt = Date.now();

function localize(root) {
  for (const time of root.querySelectorAll("time[datetime]")) {
    time.title = new Date(time.dateTime).toLocaleString([], { dateStyle: "medium", timeStyle: "long" });
  }
}

function renewChildren(old, fresh) {
  const kept = old.querySelector(":scope > form.filters"); // what is being typed there isn't on the server
  let before = [...old.children];
  const after = [...fresh.children];
  if (before.length === after.length) {
    after.forEach((part, place) => {
      if (before[place] !== kept && !before[place].isEqualNode(part)) before[place].replaceWith(part);
    });
    return;
  }
  before.forEach((part) => part === kept || part.remove());
  let past = false;
  for (const part of after) {
    if (kept && part.matches("form.filters")) past = true;
    else if (kept && !past) old.insertBefore(part, kept);
    else old.append(part);
  }
}

function renew(fresh) {
  const at = document.activeElement;
  const twins = (link) => [...document.querySelectorAll("a[href]")].filter((a) => a.getAttribute("href") === link);
  const link = at.closest("a[href]")?.getAttribute("href");
  const which = link ? twins(link).indexOf(at) : -1;
  const summary = at.closest("details[id]")?.id;
  localize(fresh);
  restore(fresh); // of details.js
  for (const part of [".top", "#notices", "main"]) {
    renewChildren(document.querySelector(part), fresh.querySelector(part));
  }
  document.title = fresh.title;
  if (document.activeElement === at) return;
  const again = which >= 0 ? twins(link)[which] : summary && document.getElementById(summary)?.querySelector("summary");
  again?.focus({ preventScroll: true });
}

async function refresh() {
  if (document.hidden || !getSelection().isCollapsed) return;
  let answer;
  try {
    answer = await fetch(location.href, { headers: { accept: "text/html" }, signal: AbortSignal.timeout(every) });
    if (answer.ok) renew(new DOMParser().parseFromString(await answer.text(), "text/html"));
  } catch {
    return; // it is tried again, and the page says how old it is meanwhile
  }
  if (answer.ok) seen();
  else if (answer.status < 500) location.reload(); // logged out, or no longer there: the answer itself says so
}

function seen() {
  shownAt = Date.now();
  old(false);
}

function old(is) {
  document.documentElement.classList.toggle("old", is);
  document.getElementById("old-tab").hidden = !is;
}

localize(document);
if (every) {
  setInterval(refresh, every);
  setInterval(() => old(Date.now() - shownAt > 3 * every), 1000);
  document.addEventListener("visibilitychange", () => document.hidden || Date.now() - shownAt < every || refresh());
}
