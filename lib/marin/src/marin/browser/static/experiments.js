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
    shown.textContent = word.replace("dep_failed", "input failed"); // as `status` in parts.html
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
    let isFailed = false;
    const refresh = () => {
      due = due || setTimeout(() => {
        due = 0;
        for (const part of document.querySelectorAll("#run-head, #timeline" + (isFailed ? ", #steps" : ""))) htmx.trigger(part, "refresh");
        isFailed = false;
      }, 500);
    };
    on("steps", (data) => {
      const touched = new Set();
      for (const [number, status, seconds, note] of JSON.parse(data)) {
        if (number in steps) steps[number][0] = status;
        isFailed = isFailed || ["failed", "lost", "dep_failed"].includes(status);
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

  // --- a whole log: rows with numbers ---
  const rows = document.getElementById("log");
  if (rows) {
    const view = new LogView(rows, document.getElementById("follow") || { checked: false });
    document.getElementById("log-start").addEventListener("click", () => view.toLine(1));
    document.getElementById("log-end").addEventListener("click", () => view.toEnd());
    on("log", (data) => {
      const lines = JSON.parse(data).replaceAll("\r\n", "\n").replaceAll("\r", "\u240d").replaceAll("\x1b", "\u241b").split("\n");
      const rest = lines.pop();
      view.stream([...lines.map((text) => ({ kind: "out", text })), ...(rest ? [{ kind: "out", text: rest, partial: true }] : [])]);
    });
    on("reset", () => location.reload());
    on("over", () => { document.getElementById("log-state").textContent = "The log is complete."; });
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

  // --- metrics ---
  const number = (value) => value == null ? "–" : Math.abs(value) >= 1e5 || (value && Math.abs(value) < 1e-3) ? value.toExponential(2) : String(Number(value.toPrecision(4)));
  const HEIGHT = 190;
  const dark = matchMedia("(prefers-color-scheme: dark)");
  const MOST_IN_LEGEND = 24;
  const colour = (index, count) => count <= 8 ? getComputedStyle(body).getPropertyValue("--curve-" + (index + 1)) : "hsl(" + Math.round(360 * index / count) + " 60% 50%)";
  // A chart in a frame. `labels` name its curves; `zoomed(from, to)` is told of a new window, null for all.
  const chart = (boxes, name, labels, zoomed, colours = labels.map((_, index) => colour(index, labels.length))) => {
    const box = document.createElement("figure");
    box.className = "chart";
    const title = document.createElement("figcaption");
    const value = document.createElement("span");
    value.className = "note";
    title.append(name + " ", value);
    box.append(title);
    boxes.append(box);
    let data = [[], ...labels.map(() => [])];
    let plot = null;
    let isLog = false;
    const rest = () => labels.length === 1 ? number(data[1].findLast((point) => point != null)) : labels.length + " curves";
    const shown = () => isLog ? data.map((series, index) => index ? series.map((point) => point > 0 ? point : null) : series) : data;
    const make = () => {
      plot?.destroy();
      const style = getComputedStyle(body);
      const line = { stroke: style.getPropertyValue("--line"), width: 1 };
      const axis = { stroke: style.getPropertyValue("--muted"), font: "11px " + style.fontFamily, grid: line, ticks: line };
      plot = new uPlot({
        width: box.clientWidth - 24 || 320, height: HEIGHT, legend: { show: false }, focus: { alpha: 0.25 },
        scales: { x: { time: false }, y: { distr: isLog ? 3 : 1 } }, cursor: { focus: { prox: 24 }, drag: { x: true, y: false, setScale: !zoomed } },
        series: [{}, ...labels.map((label, index) => ({ label, stroke: colours[index], width: labels.length > 10 ? 1 : 1.5, spanGaps: true, points: { show: false } }))],
        axes: [axis, { ...axis, size: 56, values: (_, ticks) => ticks.map((tick) => tick == null ? "" : number(tick)) }],
        hooks: {
          setCursor: [(self) => {
            const at = self.cursor.idx, near = self.cursor.focus && self.cursor.focus.prox >= 0 ? self.series.findIndex((series, index) => index && series._focus) : -1;
            const which = near > 0 ? near : 1;
            value.textContent = at == null ? rest() : number(self.data[which][at]) + " at " + Math.round(self.data[0][at]) + (labels.length > 1 ? ": " + labels[which - 1] : "");
          }],
          setSelect: [(self) => {
            if (self.select.width > 2 && zoomed) zoomed(self.posToVal(self.select.left, "x"), self.posToVal(self.select.left + self.select.width, "x"));
          }],
        },
      }, shown(), box);
      // uPlot's own answer to a double click: all that it has; more is at the server.
      plot.over.addEventListener("dblclick", () => zoomed?.(null, null));
    };
    const draw = () => {
      value.textContent = rest();
      box.classList.toggle("single", data[0].length < 2);
      if (data[0].length < 2) return;
      if (plot) {
        plot.setSelect({ width: 0, height: 0 }, false);
        plot.setData(shown());
      }
      else make();
    };
    // By keyboard: + and - zoom, arrows go along, 0 shows all.
    if (zoomed) {
      box.tabIndex = 0;
      box.setAttribute("role", "group");
      box.setAttribute("aria-label", "Chart of " + name + ": plus and minus zoom, arrows go along, 0 shows all");
      box.addEventListener("keydown", (event) => {
        const { min, max } = plot?.scales.x || {};
        if (min == null) return;
        const part = (max - min) / 4;
        const [low, high] = { "+": [part, -part], "-": [-2 * part, 2 * part], ArrowLeft: [-part, -part], ArrowRight: [part, part], 0: [null, null] }[event.key] || [];
        if (low === undefined) return;
        event.preventDefault();
        if (low === null) zoomed(null, null);
        else zoomed(min + low, max + high);
      });
    }
    const observer = new ResizeObserver(() => plot?.setSize({ width: Math.max(120, box.clientWidth - 24), height: HEIGHT }));
    observer.observe(box);
    dark.addEventListener("change", () => { if (plot) make(); });
    return {
      box,
      set: (fresh) => { data = fresh; draw(); },
      log: (to) => { isLog = to; if (plot) make(); },
    };
  };

  const metrics = document.getElementById("metrics");
  if (metrics && window.uPlot) {
    const boxes = metrics.querySelector(".charts");
    const charts = new Map();
    const load = async () => {
      const answer = await fetch(metrics.dataset.metrics);
      if (!answer.ok) return;
      const found = await answer.json();
      for (const [name, [steps, values]] of Object.entries(found.metrics)) {
        metrics.hidden = false;
        if (!charts.has(name)) charts.set(name, chart(boxes, name, [name]));
        charts.get(name).set([steps, values]);
        charts.get(name).box.classList.toggle("sampled", !found.whole);
      }
      if (!found.whole) setTimeout(quietly, 1500);
    };
    const quietly = () => load().catch(() => {}); // the page says by itself when the server is gone
    quietly();
    if ("live" in metrics.dataset) setInterval(() => { if (!document.hidden) quietly(); }, 5000);
  }

  // Curves of many outputs, thinned by the server to this screen, and again for each part that is looked at.
  const overlay = (boxes) => {
    const toggle = document.getElementById("log-scale");
    const seen = new IntersectionObserver((entries) => {
      for (const entry of entries) if (entry.isIntersecting && entry.target.begin) { entry.target.begin(); entry.target.begin = null; }
    }, { rootMargin: "300px" });
    const all = Object.entries(JSON.parse(boxes.dataset.series));
    // A curve has its colour in all charts.
    const known = new Map(all.flatMap(([, series]) => series));
    const colours = new Map([...known.keys()].map((output, index) => [output, colour(index, known.size)]));
    if (known.size > 1) {
      const legend = document.createElement("ul");
      legend.className = "legend";
      for (const [output, label] of [...known].slice(0, MOST_IN_LEGEND)) {
        const entry = document.createElement("li");
        const words = document.createElement("span");
        words.textContent = label;
        entry.style.color = colours.get(output);
        entry.append(words);
        legend.append(entry);
      }
      if (known.size > MOST_IN_LEGEND) legend.append("and " + (known.size - MOST_IN_LEGEND) + " more, named below the pointer");
      boxes.before(legend);
    }
    for (const [name, series] of all) {
      let wanted = 0;
      let view = [null, null];
      const load = async () => {
        const turn = ++wanted;
        const query = new URLSearchParams([["metric", name], ["columns", String(Math.round(Math.max(100, shown.box.clientWidth - 80) / (series.length > 10 ? 2 : 1)))], ...series.map(([output]) => ["output", output])]);
        if (view[0] !== null) { query.set("from", view[0]); query.set("to", view[1]); }
        const answer = await fetch("/experiments/curves?" + query);
        if (!answer.ok || turn !== wanted) return;
        const { steps, values, whole } = await answer.json();
        shown.set([steps, ...values]);
        boxes.dataset.drawn = String(1 + Number(boxes.dataset.drawn || 0));
        shown.box.classList.toggle("sampled", !whole);
        if (!whole) setTimeout(() => { if (turn === wanted && shown.box.isConnected) load().catch(() => {}); }, 1500);
      };
      const shown = chart(boxes, name, series.map(([, label]) => label), (from, to) => { view = [from, to]; load().catch(() => {}); }, series.map(([output]) => colours.get(output)));
      shown.box.begin = () => load().catch(() => {});
      seen.observe(shown.box);
      toggle?.addEventListener("change", () => shown.log(toggle.checked));
    }
  };
  const overlays = () => {
    for (const boxes of document.querySelectorAll("[data-series]:empty")) if (boxes.childElementCount === 0 && boxes.dataset.series.startsWith("{") && window.uPlot) overlay(boxes);
  };
  overlays();
  document.addEventListener("htmx:afterSettle", overlays);

  // --- ticked runs ---
  const ticked = () => {
    const form = document.getElementById("compare-form");
    if (!form) return;
    const count = form.querySelectorAll("tbody input:checked").length;
    form.querySelector(".ticked").hidden = count < 2;
    form.querySelector(".ticked button").textContent = "Compare " + count + " runs";
  };
  document.addEventListener("change", ticked);
  document.addEventListener("htmx:afterSettle", ticked);
  ticked();
})();
