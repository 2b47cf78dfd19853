// Live pages: one stream of server-sent events, told to the page as DOM events `live:NAME` on <body>; what is broken is said at the
// top of the page. Elements load themselves again by hx-trigger="live:NAME from:body".
//
// <body data-events="/events?..."> opens the stream. The page hears `live:reset` when it missed something.
"use strict";
(() => {
  const body = document.body;
  const bar = document.getElementById("connection");
  let source = null;
  let lastId = "";
  let heartbeat = 10000;
  let lastSign = 0;
  let attempt = 0;
  let wasLost = false;
  let timer = 0;
  let isOver = false;

  const say = (text, kind) => {
    bar.textContent = text;
    bar.className = "connection " + kind;
    bar.hidden = text === "";
  };
  const tell = (name, data) => body.dispatchEvent(new CustomEvent("live:" + name, { detail: data, bubbles: true }));

  // Whether the session is over, which the page then says: no stream tells why it ended.
  const isSignedOut = (status) => {
    if (status !== 401) return false;
    say("Signed out. Open a new link to sign in. ", "broken");
    const link = document.createElement("a");
    link.href = location.href;
    link.textContent = "Sign in";
    bar.append(link);
    return true;
  };
  const sessionStatus = async () => (await fetch("/session", { cache: "no-store" })).status;
  window.livePage = { say, isSignedOut, sessionStatus };

  const lost = () => {
    if (source) source.close();
    source = null;
    wasLost = true;
    attempt += 1;
    say("Connection lost. Trying again …", "broken");
    const wait = Math.min(5000, 250 * 2 ** Math.min(attempt, 5));
    clearTimeout(timer);
    timer = setTimeout(probe, wait);
  };

  // An EventSource does not say why it failed: a page whose session is over must not try for ever.
  const probe = async () => {
    if (document.hidden) return;
    try {
      if (isSignedOut(await sessionStatus())) return;
    } catch {
      lost();
      return;
    }
    open();
  };

  const open = () => {
    const address = new URL(body.dataset.events, location.href);
    if (lastId) address.searchParams.set("last_event_id", lastId);
    source = new EventSource(address);
    lastSign = Date.now();
    source.onerror = lost;
    const names = (body.dataset.eventNames || "").split(" ").filter(Boolean);
    for (const name of [...new Set([...names, "hello", "alive", "reset", "over"])]) {
      source.addEventListener(name, (event) => {
        lastSign = Date.now();
        if (event.lastEventId) lastId = event.lastEventId;
        if (name === "hello") {
          heartbeat = 1000 * parseFloat(event.data) || heartbeat;
          attempt = 0;
          body.dataset.connected = "true";
          if (wasLost) say("Connected again.", "mended");
          else say("", "");
          if (wasLost) setTimeout(() => { if (bar.classList.contains("mended")) say("", ""); }, 4000);
          wasLost = false;
        }
        // No more will come: a browser would connect again and again.
        if (name === "over") {
          isOver = true;
          close();
        }
        if (name !== "alive") tell(name, event.data);
      });
    }
  };

  const close = () => {
    clearTimeout(timer);
    if (source) source.close();
    source = null;
  };

  if (body.dataset.events) {
    open();
    setInterval(() => { if (source && Date.now() - lastSign > 2.5 * heartbeat) lost(); }, 1000);
    // Browsers open six connections to a server at most, for all tabs: one that nobody sees gives its own back.
    document.addEventListener("visibilitychange", () => {
      if (document.hidden) close();
      else if (!source && !isOver) probe();
    });
    window.addEventListener("pagehide", close);
  }

  // What loads again is changed in place, so that focus, selection and what a reader has opened or typed stay.
  Idiomorph.defaults.callbacks.beforeNodeMorphed = (old, fresh) =>
    !old.matches?.("input:not([type=hidden]), textarea, select") && !(old.dataset?.since && old.dataset.since === fresh.dataset?.since);
  Idiomorph.defaults.callbacks.beforeAttributeUpdated = (name, element) => !(name === "open" && element.tagName === "DETAILS");

  document.addEventListener("htmx:configRequest", (event) => {
    event.detail.headers["X-Form-Token"] = body.dataset.formToken;
  });
  document.addEventListener("htmx:responseError", (event) => {
    const status = event.detail.xhr.status;
    if (!isSignedOut(status)) say("The server answered with an error (" + status + ").", "broken");
  });
  document.addEventListener("htmx:sendError", () => say("The server cannot be reached.", "broken"));
  document.addEventListener("htmx:afterRequest", (event) => {
    if (event.detail.successful && bar.classList.contains("broken") && !body.dataset.events) say("", "");
  });
  // A form asks before it does what cannot be undone.
  document.addEventListener("submit", (event) => {
    const question = event.target.dataset && event.target.dataset.confirm;
    if (question && !window.confirm(question)) event.preventDefault();
  });
})();
