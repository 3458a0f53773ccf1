"use strict";
// The page refreshes itself: what a reader has opened or closed stays so.
for (const details of document.querySelectorAll("details[id]")) {
  const key = `${location.pathname}#${details.id}`;
  const kept = sessionStorage.getItem(key);
  if (kept !== null) details.open = kept === "open";
  details.querySelector("summary").addEventListener("click", () => {
    sessionStorage.setItem(key, details.open ? "closed" : "open"); // a click turns it round
  });
}
