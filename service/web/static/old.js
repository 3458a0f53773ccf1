"use strict";
// A tab that no longer refreshes (asleep, offline) must not pass for the present.
const shownAt = Date.now();
const limit = Number(document.documentElement.dataset.refresh) * 3000;
setInterval(() => {
  if (Date.now() - shownAt > limit) {
    document.documentElement.classList.add("old");
    document.getElementById("old-tab").hidden = false;
  }
}, 1000);
