// The cluster's pages: running times that go on, trees that unfold, logs that are followed, charts of usage.
"use strict";
(() => {
  const body = document.body;
  const bar = document.getElementById("connection");
  const { say, follow: followStream } = window.livePage;

  // Times of what still runs.
  const words = (seconds) => seconds < 60 ? seconds.toFixed(0) + " s" : seconds < 3600
    ? Math.floor(seconds / 60) + " min " + Math.floor(seconds % 60) + " s" : Math.floor(seconds / 3600) + " h " + Math.floor(seconds % 3600 / 60) + " min";
  const tick = () => {
    for (const element of document.querySelectorAll("[data-since]"))
      element.textContent = words(Math.max(0, (Date.now() - Number(element.dataset.since)) / 1000));
  };
  setInterval(tick, 1000);
  tick();
  document.addEventListener("htmx:afterSwap", tick);

  // The controller behind this server.
  body.addEventListener("live:away", () => say("The controller is away. This page updates again when it is back.", "broken"));
  body.addEventListener("live:back", () => { say("The controller is back.", "mended"); setTimeout(() => { if (bar.classList.contains("mended")) say("", ""); }, 3000); });

  document.addEventListener("click", (event) => {
    const button = event.target.closest("[data-copy]");
    if (button) navigator.clipboard?.writeText(document.querySelector(button.dataset.copy).textContent).then(() => { button.textContent = "Copied"; }, () => {});
  });

  // Trees: a second press folds what the first has unfolded.
  document.addEventListener("click", (event) => {
    const button = event.target.closest(".unfold");
    if (!button || button.getAttribute("aria-expanded") !== "true") return;
    event.preventDefault();
    event.stopImmediatePropagation();
    const row = button.closest("tr");
    const depth = Number(row.dataset.depth);
    while (row.nextElementSibling && Number(row.nextElementSibling.dataset.depth) > depth) row.nextElementSibling.remove();
    button.setAttribute("aria-expanded", "false");
  }, true);
  document.addEventListener("htmx:configRequest", (event) => {
    if (event.target.id !== "jobs") return;
    event.detail.parameters.open = [...event.target.querySelectorAll(".unfold[aria-expanded=true]")].map((button) => button.closest("tr").dataset.job);
  });
  document.addEventListener("htmx:afterRequest", (event) => {
    const button = event.target.closest && event.target.closest(".unfold");
    if (!button || !event.detail.successful) return;
    button.setAttribute("aria-expanded", "true");
    // A list that was asked for before this would fold it again.
    const list = button.closest("#jobs.htmx-request");
    if (!list) return;
    htmx.trigger(list, "htmx:abort");
    setTimeout(() => body.dispatchEvent(new CustomEvent("live:jobs")), 600);
  });

  // Logs.
  const log = document.getElementById("log");
  if (log) {
    const follow = document.getElementById("follow");
    const state = document.getElementById("log-state");
    const view = new LogView(log, follow);
    document.getElementById("log-start")?.addEventListener("click", () => { if (view.isNumbered) view.toLine(1); else log.scrollTop = 0; });
    document.getElementById("log-end")?.addEventListener("click", () => view.toEnd());
    // How it ended is in the head of the page.
    const ended = async () => {
      const answer = await fetch(location.href).catch(() => null);
      const fresh = answer?.ok && new DOMParser().parseFromString(await answer.text(), "text/html").getElementById("state");
      if (fresh) document.getElementById("state").replaceWith(fresh);
    };
    followStream(log.dataset.follow, (name, data) => {
      if (name === "hello") log.dataset.connected = "true";
      if (name === "lines") {
        view.stream(JSON.parse(data));
        if (state.textContent === "No lines yet.") state.textContent = "";
      }
      if (name === "end") { state.textContent = "The log is complete."; ended(); }
      if (name === "trouble") state.textContent = data;
    });
  }

  // Usage of what runs, as long as the page is open.
  const charts = document.querySelector(".charts[data-usage]");
  if (charts && window.uPlot) {
    const digits = (value) => String(Number(value.toPrecision(3)));
    const size = (bytes) => bytes >= 2 ** 30 ? digits(bytes / 2 ** 30) + " GiB" : bytes >= 2 ** 20 ? digits(bytes / 2 ** 20) + " MiB" : digits(bytes / 2 ** 10) + " KiB";
    // A time of this browser's zone in ISO 8601: day, time of day.
    const iso = (seconds) => {
      const at = new Date(1000 * seconds);
      return new Date(at - 60000 * at.getTimezoneOffset()).toISOString().slice(0, 19).split("T");
    };
    const clock = (ticks) => {
      const apart = ticks.length > 1 ? ticks[1] - ticks[0] : 60;
      return (tick) => {
        const [day, time] = iso(tick);
        return apart >= 86400 || (time === "00:00:00" && ticks.length > 1) ? day : apart < 60 ? time : time.slice(0, 5);
      };
    };
    const data = { at: [], cpu: [], memory: [] };
    const plots = {};
    const empty = charts.querySelector("[data-empty]");
    const legend = charts.querySelector("[data-legend]");
    const show = (any = data.at.length > 0) => { for (const box of charts.querySelectorAll(".chart")) box.hidden = !any; };
    const draw = () => {
      const style = getComputedStyle(body);
      legend.hidden = false;
      for (const box of charts.querySelectorAll("[data-series]")) {
        const name = box.dataset.series;
        // The mean; of a whole life the peak and what was asked for, too.
        const parts = [[name, "--busy", {}], [name + "_peak", "--busy", { width: 1, dash: [2, 3] }], [name + "_asked", "--warn", { width: 1, dash: [8, 4] }]].filter(([part]) => data[part]);
        const values = [data.at, ...parts.map(([part]) => data[part])];
        if (plots[name]) { plots[name].setData(values); continue; }
        const note = box.closest(".chart").querySelector("figcaption").appendChild(document.createElement("span"));
        note.className = "note";
        const text = name === "cpu" ? (value) => value.toFixed(1) : size;
        const axis = { stroke: style.color, grid: { stroke: style.getPropertyValue("--line") }, ticks: { stroke: style.getPropertyValue("--line") } };
        plots[name] = new uPlot({
          width: box.clientWidth || 320, height: 160, cursor: { points: { show: false }, drag: { x: false, y: false }, sync: { key: "usage" } }, legend: { show: false },
          hooks: { setCursor: [(plot) => {
            const at = plot.cursor.idx, value = at == null ? null : plot.data[1][at];
            note.textContent = value == null ? "" : text(value) + " at " + iso(plot.data[0][at]).join(" ");
          }] },
          // All of the life that the server tells; a first sample has no width of its own, upon which the axis would span years.
          scales: { x: { range: () => data.to > data.from ? [Math.min(data.from, data.at[0]), Math.max(data.to, data.at.at(-1))] : [Math.min(data.at[0], data.at.at(-1) - 60), data.at.at(-1)] }, y: { range: (plot, low, high) => [0, high > 0 ? high * 1.1 : 1] } },
          series: [{}, ...parts.map(([part, colour, look]) => ({ label: part, stroke: style.getPropertyValue(colour), width: 2, points: { show: false }, ...(data.stepped && { paths: uPlot.paths.stepped({ align: 1 }) }), ...look }))],
          axes: [{ ...axis, space: 80, values: (plot, ticks) => ticks.map(clock(ticks)) }, { ...axis, size: 70, ...(name === "memory" && { incrs: Array.from({ length: 36 }, (_, i) => 2 ** (i + 10)) }), values: (plot, ticks) => ticks.map(text) }],
        }, values, box);
      }
    };
    matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => {
      for (const name of Object.keys(plots)) { plots[name].destroy(); delete plots[name]; }
      for (const note of charts.querySelectorAll("figcaption .note")) note.remove();
      if (data.at.length) draw();
    });
    followStream(charts.dataset.usage, (name, text) => {
      if (name === "history") {
        Object.assign(data, JSON.parse(text));
        empty.hidden = data.at.length > 0;
        show();
        if (empty.hidden) draw();
      }
      if (name !== "usage") return;
      const sample = JSON.parse(text);
      empty.hidden = sample.tasks > 0;
      if (!sample.tasks) return;
      show(true);
      data.at.push(sample.at); data.cpu.push(sample.cpu); data.memory.push(sample.memory);
      for (const list of [data.at, data.cpu, data.memory]) if (list.length > 600) list.shift();
      draw();
    });
    window.addEventListener("resize", () => { for (const [name, plot] of Object.entries(plots)) plot.setSize({ width: charts.querySelector('[data-series="' + name + '"]').clientWidth, height: 160 }); });
  }
})();
