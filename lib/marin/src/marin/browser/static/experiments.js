// The experiment pages: states of nodes and rows as the run tells them, zoom and search in the graph, the end of a growing log.
"use strict";
(() => {
  const body = document.body;
  const ORDER = ["failed", "lost", "died", "dep_failed", "stopped", "retrying", "running", "queued", "-", "succeeded", "cached"];
  const MOST_LOG = 4 << 20;
  const on = (name, act) => body.addEventListener("live:" + name, (event) => act(event.detail));
  const badge = (word) => {
    const shown = document.createElement("span");
    shown.className = "status s-" + word.replace(/[^a-z_]/g, "");
    shown.textContent = word;
    return shown;
  };
  const took = (seconds) => {
    if (seconds === null) return null;
    if (seconds < 59.95) return seconds.toFixed(1) + " s";
    const minutes = Math.floor(Math.round(seconds) / 60);
    return minutes < 60 ? minutes + " min " + (Math.round(seconds) % 60) + " s" : Math.floor(minutes / 60) + " h " + (minutes % 60) + " min";
  };

  // --- how long what runs has taken so far, by this page's own clock from when the server wrote it ---
  const opened = performance.now();
  setInterval(() => {
    for (const place of document.querySelectorAll("[data-since]")) {
      const begun = Number(place.dataset.here || opened);
      place.textContent = took(place.dataset.now - place.dataset.since + (performance.now() - begun) / 1000);
    }
  }, 1000);
  body.addEventListener("htmx:load", (event) => {
    for (const place of event.target.querySelectorAll("[data-since]")) place.dataset.here = place.dataset.here || performance.now();
  });

  const ticking = () => {
    const place = document.createElement("span");
    Object.assign(place.dataset, { since: "0", now: "0", here: String(performance.now()) });
    place.textContent = took(0);
    return place;
  };

  // --- states of steps ---
  const run = document.getElementById("run");
  if (run) {
    const given = document.getElementById("run-steps");
    const steps = given ? JSON.parse(JSON.parse(given.textContent)) : [];
    const nodes = [...document.querySelectorAll("#graph .node")];
    const nodeOf = new Map();
    for (const node of nodes) {
      node.members = node.dataset.steps.split(" ").map(Number);
      for (const number of node.members) nodeOf.set(number, node);
    }
    const showNode = (node) => {
      const counts = new Map();
      for (const number of node.members) counts.set(steps[number][0], (counts.get(steps[number][0]) || 0) + 1);
      const worst = ORDER.find((word) => counts.has(word)) || "-";
      node.setAttribute("class", "node n-" + (worst === "-" ? "none" : worst) + (node.members.length > 1 ? " family" : "") + (node.classList.contains("hit") ? " hit" : "") + (node.classList.contains("is-open") ? " is-open" : ""));
      const title = node.querySelector("title");
      const lines = title.textContent.split("\n");
      lines[1] = node.members.length > 1 ? [...counts].sort().map(([word, count]) => count + " " + word).join(", ") : worst;
      title.textContent = lines.join("\n");
    };
    // What the server draws from many events: at most twice a second, and always after the last.
    let due = 0;
    const refresh = () => {
      due = due || setTimeout(() => {
        due = 0;
        for (const part of document.querySelectorAll("#run-head, #timeline")) htmx.trigger(part, "refresh");
      }, 500);
    };
    on("steps", (data) => {
      const touched = new Set();
      for (const [number, status, seconds, note] of JSON.parse(data)) {
        if (number in steps) steps[number][0] = status;
        if (nodeOf.has(number)) touched.add(nodeOf.get(number));
        const row = document.querySelector(`tr[data-step="${number}"]`);
        if (!row) continue;
        row.querySelector(".step-status").replaceChildren(badge(status));
        const time = row.querySelector(".step-seconds");
        if (seconds !== null) time.textContent = took(seconds);
        else if (status !== "running") time.textContent = "-";
        else if (!time.firstElementChild) time.replaceChildren(ticking(), " so far");
        row.querySelector(".step-note").textContent = note;
      }
      touched.forEach(showNode);
      refresh();
      body.dataset.changes = String(1 + Number(body.dataset.changes || 0));
    });
    // Steps that the page does not know yet need another graph.
    let again = 0;
    let isEnded = false;
    on("over", () => { if (!isEnded) location.reload(); });
    on("run", (data) => {
      if (data === "grown") again = again || setTimeout(() => location.reload(), 3000);
      else isEnded = true;
    });
    on("reset", () => location.reload());

    // --- zoom ---
    const svg = document.getElementById("graph");
    const box = document.getElementById("graph-box");
    if (svg) {
      const width = svg.viewBox.baseVal.width;
      const height = svg.viewBox.baseVal.height;
      let scale = 1;
      const zoom = (to) => {
        const middle = (box.scrollLeft + box.clientWidth / 2) / scale;
        const centre = (box.scrollTop + box.clientHeight / 2) / scale;
        scale = Math.min(4, Math.max(0.05, to));
        svg.setAttribute("width", String(width * scale));
        svg.setAttribute("height", String(height * scale));
        box.scrollLeft = middle * scale - box.clientWidth / 2;
        box.scrollTop = centre * scale - box.clientHeight / 2;
      };
      for (const button of document.querySelectorAll("[data-zoom]")) {
        button.addEventListener("click", () => {
          const by = button.dataset.zoom;
          if (by === "fit") zoom(Math.min(box.clientWidth / width, (0.7 * window.innerHeight) / height, 1));
          else zoom(by === "0" ? 1 : scale * Number(by));
        });
      }
      box.addEventListener("keydown", (event) => {
        if (event.key === "+" || event.key === "-") {
          zoom(scale * (event.key === "+" ? 1.25 : 0.8));
          event.preventDefault();
        }
      });
      box.addEventListener("wheel", (event) => {
        if (!event.ctrlKey) return;
        zoom(scale * (event.deltaY < 0 ? 1.1 : 0.9));
        event.preventDefault();
      }, { passive: false });

      // --- search ---
      const find = document.getElementById("find");
      const found = document.getElementById("found");
      let hits = [];
      let at = 0;
      const look = () => {
        const node = hits[at];
        if (!node) return;
        const place = node.getBoundingClientRect();
        const frame = box.getBoundingClientRect();
        box.scrollLeft += place.left - frame.left - box.clientWidth / 2 + place.width / 2;
        box.scrollTop += place.top - frame.top - box.clientHeight / 2;
        found.textContent = at + 1 + " of " + hits.length;
      };
      const search = () => {
        const words = find.value.toLowerCase().split(/\s+/).filter(Boolean);
        hits = [];
        for (const node of nodes) {
          const hit = words.length > 0 && node.members.some((number) => words.every((word) => steps[number][1].toLowerCase().includes(word)));
          node.classList.toggle("hit", hit);
          if (hit) hits.push(node);
        }
        at = 0;
        found.textContent = words.length ? (hits.length ? "" : "nothing found") : "";
        look();
      };
      find.addEventListener("input", search);
      find.addEventListener("keydown", (event) => {
        if (event.key !== "Enter" || !hits.length) return;
        event.preventDefault();
        at = (at + (event.shiftKey ? hits.length - 1 : 1)) % hits.length;
        look();
        hits[at].scrollIntoView({ block: "nearest", inline: "nearest" }); // on a phone the graph may be off the screen
      });
    }
  }
  // Steps open beside the graph and the timeline; with a modifier key, or from the panel, their pages.
  document.addEventListener("click", (event) => {
    const link = event.target.closest("[data-panel]");
    if (!link || event.button || event.ctrlKey || event.metaKey || event.shiftKey) return;
    event.preventDefault();
    document.querySelectorAll(".is-open").forEach((other) => other.classList.remove("is-open"));
    link.classList.add("is-open");
    htmx.ajax("GET", link.dataset.panel, { source: link, target: "#panel", swap: "innerHTML" });
  });
  for (const select of document.querySelectorAll("select[data-goto]")) {
    select.addEventListener("change", () => location.assign(select.value));
  }

  // --- log ---
  const log = document.getElementById("log-text");
  if (log) {
    const box = document.getElementById("log-box");
    const follow = document.getElementById("follow");
    const toEnd = () => { box.scrollTop = box.scrollHeight; };
    const terminal = TerminalText.of(log);
    document.addEventListener("htmx:load", (event) => { if (event.target.matches("#log-box pre")) TerminalText.of(event.target); });
    toEnd();
    on("log", (data) => {
      terminal.write(JSON.parse(data));
      // A page must not hold a log of gigabytes; what goes is in the file.
      let size = 0;
      for (const piece of log.childNodes) size += piece.textContent.length;
      while (size > MOST_LOG && log.childNodes.length > 1) {
        size -= log.firstChild.textContent.length;
        log.firstChild.remove();
      }
      if (!follow || follow.checked) toEnd();
    });
    if (follow) box.addEventListener("wheel", (event) => { if (event.deltaY < 0) follow.checked = false; });
    on("reset", () => location.reload());
    on("over", () => { if (document.getElementById("step-status")) location.reload(); });
  }

  // --- metrics: drag in a chart to zoom, double-click to see all again ---
  const COLOURS = ["--busy", "--good", "--warn", "--bad"];
  const number = (value) => value == null ? "–" : Math.abs(value) >= 1e5 || (value && Math.abs(value) < 1e-3) ? value.toExponential(2) : String(Number(value.toPrecision(4)));
  const chart = (boxes, name, curves) => { // curves: [label, steps, values]
    const style = getComputedStyle(document.body);
    const box = document.createElement("figure");
    box.className = "chart";
    const title = document.createElement("figcaption");
    const value = document.createElement("b");
    title.append(name + " ", value);
    box.append(title);
    boxes.append(box);
    const rest = () => curves.length === 1 ? number(curves[0][2].at(-1)) : "";
    const data = () => uPlot.join(curves.map(([, steps, values]) => [steps, values]));
    const line = { stroke: style.getPropertyValue("--line"), width: 1 };
    const axis = { stroke: style.color, grid: line, ticks: line };
    const colour = (index) => curves.length <= COLOURS.length ? style.getPropertyValue(COLOURS[index]) || style.color : "hsl(" + Math.round(360 * index / curves.length) + " 65% 45%)";
    const plot = curves.every(([, steps]) => steps.length < 2) ? null : new uPlot({
      width: box.clientWidth || 320, height: 180, legend: { show: false }, scales: { x: { time: false } }, focus: { alpha: 0.25 }, cursor: { focus: { prox: 24 } },
      series: [{}, ...curves.map(([label], index) => ({ label, stroke: colour(index), width: 2, spanGaps: true, points: { show: false } }))],
      axes: [axis, { ...axis, size: 64, values: (_, ticks) => ticks.map(number) }],
      hooks: { setCursor: [(self) => {
        const at = self.cursor.idx, near = self.cursor.focus && self.cursor.focus.prox >= 0 ? self.series.findIndex((series, index) => index && series._focus) : -1;
        const which = near > 0 ? near : 1;
        value.textContent = at == null ? rest() : number(self.data[which][at]) + " at " + self.data[0][at] + (curves.length > 1 ? ": " + curves[which - 1][0] : "");
      }] },
    }, data(), box);
    value.textContent = rest();
    const fit = () => plot?.setSize({ width: box.clientWidth || 320, height: 180 });
    window.addEventListener("resize", fit);
    return { set: (fresh) => { curves = fresh; value.textContent = rest(); plot?.setData(data()); }, fit };
  };
  const metrics = document.getElementById("metrics");
  if (metrics && window.uPlot) {
    const boxes = metrics.querySelector(".charts");
    const charts = new Map();
    const load = async () => {
      const answer = await fetch(metrics.dataset.metrics);
      if (!answer.ok) return;
      for (const [name, [steps, values]] of Object.entries(await answer.json())) {
        metrics.hidden = false;
        if (charts.has(name)) charts.get(name).set([[name, steps, values]]);
        else charts.set(name, chart(boxes, name, [[name, steps, values]]));
      }
      for (const { fit } of charts.values()) fit();
    };
    const quietly = () => load().catch(() => {}); // the page says by itself when the server is gone
    quietly();
    if ("live" in metrics.dataset) setInterval(() => { if (!document.hidden) quietly(); }, 5000);
  }
  document.addEventListener("htmx:afterSettle", () => {
    const boxes = document.querySelector("[data-curves]:empty");
    if (!boxes || !window.uPlot) return;
    const charts = Object.entries(JSON.parse(boxes.dataset.curves)).map(([name, curves]) => chart(boxes, name, curves));
    for (const { fit } of charts) fit(); // the first had all the room
  });
})();
