// One connection for all visible tabs of this server, which a browser lets have six: it opens a channel at the server,
// and hands each piece of a topic to its tab. It knows nothing of events; tabs ask again from their last one.
//
// A tab sends `hi` while it is visible, `bye` when it is not, `add` (a key, an address, the last event's id) and `drop`.
"use strict";
const owners = new Map(); // [tab, key] by topic number
const heard = new Map(); // time of the last message by tab
let source = null, channel = "", heartbeat = 10000, sign = 0, tries = 0, timer = 0, next = 0, changes = null;

const tellAll = (state) => { for (const tab of heard.keys()) tab.postMessage({ state }); };

const close = () => {
  source?.close();
  source = null;
  channel = "";
  changes = null;
  owners.clear();
};

const lost = () => {
  close();
  tries += 1;
  tellAll("lost");
  clearTimeout(timer);
  timer = setTimeout(probe, Math.min(5000, 250 * 2 ** Math.min(tries, 5)));
};

// An EventSource does not say why it failed: who is signed out must not try for ever.
const probe = async () => {
  if (heard.size) {
    try {
      const { status } = await fetch("/session", { cache: "no-store" });
      if (status === 401) tellAll("signed out");
      else open();
    } catch {
      lost();
      return;
    }
  }
  timer = 0;
};

const open = () => {
  source = new EventSource("/live");
  source.onerror = lost;
  sign = Date.now();
  const on = (name, act) => source.addEventListener(name, (event) => { sign = Date.now(); act(event.data && JSON.parse(event.data)); });
  on("alive", () => {});
  on("channel", ([id, seconds]) => {
    channel = id;
    heartbeat = 1000 * seconds;
    tries = 0;
    tellAll("open");
  });
  on("topic", ([number, text]) => {
    const owner = owners.get(number);
    if (owner) owner[0].postMessage({ key: owner[1], text });
  });
  on("gone", ([number, status]) => {
    const owner = owners.get(number);
    owners.delete(number);
    if (owner) owner[0].postMessage({ key: owner[1], gone: status });
  });
};

// What tabs ask for while a request is under way goes with the next.
const change = async (kind, what) => {
  const isSending = changes !== null;
  changes = changes || { add: [], drop: [] };
  changes[kind].push(what);
  if (isSending) return;
  await null;
  while (changes && changes.add.length + changes.drop.length) {
    const body = JSON.stringify({ channel, ...changes });
    const now = channel;
    changes = { add: [], drop: [] };
    try {
      const answer = await fetch("/live/topics", { method: "POST", body });
      if (!answer.ok && channel === now) lost();
    } catch {
      if (channel === now) lost();
    }
    if (channel !== now) return;
  }
  changes = null;
};

const drop = (wanted) => {
  for (const [number, [tab, key]] of owners) {
    if (!wanted(tab, key)) continue;
    owners.delete(number);
    change("drop", number);
  }
};

const forget = (tab) => {
  heard.delete(tab);
  drop((other) => other === tab);
};

self.onconnect = ({ ports: [tab] }) => {
  tab.onmessage = ({ data }) => {
    if (data.bye) { forget(tab); return; }
    const isNew = !heard.has(tab);
    heard.set(tab, Date.now());
    if (data.hi && channel && isNew) tab.postMessage({ state: "open" });
    if (data.hi && !source && !timer) open();
    if (data.drop) drop((other, key) => other === tab && key === data.drop);
    if (data.add && channel) {
      owners.set(++next, [tab, data.add]);
      change("add", [next, data.address, data.lastId]);
    }
  };
};

let quiet = 0;
setInterval(() => {
  // Tabs that crashed say no bye.
  for (const [tab, at] of heard) if (Date.now() - at > 30000) forget(tab);
  quiet = heard.size ? 0 : quiet + 1;
  if (source && quiet > 2) close();
  else if (source && Date.now() - sign > 2.5 * heartbeat) lost();
}, 1000);
