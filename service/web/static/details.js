"use strict";
// The page refreshes itself: what a reader has opened or closed stays so.
const key = (details) => `${location.pathname}#${details.id}`;

function restore(root) {
  for (const details of root.querySelectorAll("details[id]")) {
    const kept = sessionStorage.getItem(key(details));
    if (kept !== null) details.open = kept === "open";
  }
}

restore(document);
document.addEventListener("click", (event) => {
  const details = event.target.closest("summary")?.closest("details[id]");
  if (details) sessionStorage.setItem(key(details), details.open ? "closed" : "open"); // a click turns it round
});
