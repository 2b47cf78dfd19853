// Live pages: streams of server-sent events, told to the page as DOM events `live:NAME` on <body>; what is broken is said at the
// top of the page. Elements load themselves again by hx-trigger="live:NAME from:body".
//
// <body data-events="/events?..."> follows a stream. The page hears `live:reset` when it missed something.
// `livePage.follow(ADDRESS, (name, data) => …)` follows another; `over` or `end` ends it.
// All visible tabs share one connection by a SharedWorker. Where there is none, a page polls its streams.
"use strict";
(() => {
  const body = document.body;
  const bar = document.getElementById("connection");
  const topics = new Map(); // by key
  let wasLost = false;
  let keys = 0;

  const say = (text, kind) => {
    bar.textContent = text;
    bar.className = "connection " + kind;
    bar.hidden = text === "";
  };
  const tell = (name, data) => body.dispatchEvent(new CustomEvent("live:" + name, { detail: data, bubbles: true }));

  // Whether the session is over, which the page then says.
  const isSignedOut = (status) => {
    if (status !== 401) return false;
    say("Signed out. Open a new link to sign in. ", "broken");
    const link = document.createElement("a");
    link.href = location.href;
    link.textContent = "Sign in";
    bar.append(link);
    return true;
  };

  const lost = () => {
    wasLost = true;
    say("Connection lost. Trying again …", "broken");
  };
  const mended = () => {
    if (!wasLost) return;
    wasLost = false;
    say("Connected again.", "mended");
    setTimeout(() => { if (bar.classList.contains("mended")) say("", ""); }, 4000);
  };

  // Tell what a piece of a stream says, in the wire format of events. Pieces may end within an event.
  const read = (topic, text) => {
    const blocks = (topic.begun + text).split("\n\n");
    topic.begun = blocks.pop();
    for (const block of blocks) {
      let name = "message";
      const lines = [];
      for (const line of block.split("\n")) {
        if (line.startsWith("event: ")) name = line.slice(7);
        else if (line.startsWith("data: ")) lines.push(line.slice(6));
        else if (line.startsWith("id: ")) topic.lastId = line.slice(4);
      }
      if (block.startsWith("retry:") && !lines.length || !topics.has(topic.key)) continue;
      if (name !== "trouble") { topic.tries = 0; mended(); }
      if (name === "over" || name === "end") topic.close();
      if (name !== "alive") topic.on(name, lines.join("\n"));
    }
  };

  const again = (topic, act) => {
    topic.begun = "";
    topic.tries += 1;
    setTimeout(() => { if (topics.has(topic.key) && !document.hidden) act(topic); }, Math.min(5000, 250 * 2 ** Math.min(topic.tries, 5)));
  };

  const viaWorker = () => {
    const { port } = new SharedWorker(body.dataset.liveWorker, { name: "live" });
    let isOpen = false;
    const add = (topic) => {
      topic.begun = "";
      if (isOpen) port.postMessage({ add: topic.key, address: topic.address, lastId: topic.lastId });
    };
    port.onmessage = ({ data }) => {
      if (data.state) {
        isOpen = data.state === "open";
        if (isOpen) topics.forEach(add);
        else if (data.state === "lost") lost();
        else isSignedOut(401);
        return;
      }
      const topic = topics.get(data.key);
      if (!topic) return;
      if (!data.gone) { read(topic, data.text); return; }
      lost();
      again(topic, add);
    };
    const hi = () => { if (!document.hidden && topics.size) port.postMessage({ hi: true }); };
    setInterval(hi, 10000);
    return {
      start: hi,
      add: (topic) => { hi(); add(topic); },
      drop: (topic) => port.postMessage({ drop: topic.key }),
      stop: () => { isOpen = false; port.postMessage({ bye: true }); },
    };
  };

  // A poll reads a stream until it is quiet.
  const viaPolls = () => {
    const PERIOD = 5000, QUIET = 500;
    const stops = new Map();
    const poll = async (topic) => {
      if (stops.has(topic.key)) return;
      const stop = new AbortController();
      stops.set(topic.key, stop);
      let timer = 0, isQuiet = false, status = 0;
      topic.begun = "";
      const wait = () => { clearTimeout(timer); timer = setTimeout(() => { isQuiet = true; stop.abort(); }, QUIET); };
      try {
        const answer = await fetch(topic.address, { signal: stop.signal, cache: "no-store", headers: topic.lastId ? { "Last-Event-ID": topic.lastId } : {} });
        status = answer.status;
        if (!answer.ok) throw new Error(String(status));
        const pieces = answer.body.pipeThrough(new TextDecoderStream()).getReader();
        wait();
        for (let piece = await pieces.read(); !piece.done; piece = await pieces.read()) { read(topic, piece.value); wait(); }
      } catch {
        if (!isQuiet && !stop.signal.aborted && !isSignedOut(status)) lost();
      }
      clearTimeout(timer);
      stops.delete(topic.key);
      if (status !== 401) setTimeout(() => { if (topics.has(topic.key) && !document.hidden) poll(topic); }, PERIOD);
    };
    return {
      start: () => topics.forEach(poll),
      add: poll,
      drop: (topic) => stops.get(topic.key)?.abort(),
      stop: () => stops.forEach((stop) => stop.abort()),
    };
  };

  const connection = "SharedWorker" in window && body.dataset.liveWorker ? viaWorker() : viaPolls();
  const follow = (address, on) => {
    const topic = { key: ++keys, address, on, lastId: "", begun: "", tries: 0 };
    topic.close = () => { if (topics.delete(topic.key)) connection.drop(topic); };
    topics.set(topic.key, topic);
    if (!document.hidden) connection.add(topic);
    return topic;
  };
  document.addEventListener("visibilitychange", () => { if (document.hidden) connection.stop(); else connection.start(); });
  window.addEventListener("pagehide", () => connection.stop());
  window.addEventListener("pageshow", (event) => { if (event.persisted) connection.start(); });
  window.livePage = { say, follow };

  if (body.dataset.events) {
    follow(body.dataset.events, (name, data) => {
      if (name === "hello") body.dataset.connected = "true";
      tell(name, data);
    });
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
