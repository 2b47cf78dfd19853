// What components of all pages do: side panels, times that grow older, colours in excerpts of logs.
"use strict";
(() => {
  const told = (seconds) => {
    for (const [size, word] of [[86400 * 365, "y"], [86400 * 30, "mo"], [86400, "d"], [3600, "h"], [60, "min"]]) {
      if (seconds >= size) return Math.floor(seconds / size) + " " + word + " ago";
    }
    return "just now";
  };
  setInterval(() => {
    for (const place of document.querySelectorAll("time[data-ago]")) {
      const seconds = (Date.now() - Date.parse(place.dateTime)) / 1000;
      if (seconds >= 0) place.textContent = told(seconds);
    }
  }, 30000);

  let opener = null;
  const close = (panel) => {
    panel.hidden = true;
    panel.replaceChildren();
    opener?.focus?.();
  };
  document.addEventListener("htmx:beforeRequest", (event) => { if (event.detail.target?.matches?.(".panel")) opener = event.detail.elt; });
  document.addEventListener("htmx:afterSwap", (event) => {
    const panel = event.detail.target;
    if (!panel.matches?.(".panel")) return;
    panel.hidden = false;
    panel.focus({ preventScroll: true });
  });
  document.addEventListener("click", (event) => {
    const panel = event.target.closest(".panel .close")?.closest(".panel");
    if (panel) close(panel);
  });
  document.addEventListener("keydown", (event) => {
    const panel = document.querySelector(".panel:not([hidden])");
    if (event.key === "Escape" && panel) close(panel);
  });

  // Arrows go along tabs.
  document.addEventListener("keydown", (event) => {
    const by = { ArrowLeft: -1, ArrowRight: 1 }[event.key];
    const tabs = [...event.target.closest?.(".tabs")?.children || []];
    if (!by || !tabs.length || event.altKey || event.ctrlKey || event.metaKey) return;
    event.preventDefault();
    tabs[(tabs.indexOf(event.target) + by + tabs.length) % tabs.length].focus();
  });

  // The end of an excerpt is what a reader looks for.
  document.addEventListener("htmx:load", (event) => {
    for (const box of [event.target, ...event.target.querySelectorAll("[data-terminal]")]) {
      if (!box.matches("[data-terminal]")) continue;
      TerminalText.of(box);
      box.scrollTop = box.scrollHeight;
    }
  });
  // Of groups of links that are wider than the screen, the current one is in view.
  document.querySelector(".groups [aria-current]")?.scrollIntoView({ block: "nearest", inline: "center" });
})();
