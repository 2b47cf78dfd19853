// A log as rows: numbers with permalinks (#L12), older lines on scrolling up, marked matches, rows that terminals write again.
//
// <div class="log" data-more="ADDRESS" data-link="ADDRESS" data-numbered data-grep="…"> holds rows in the form of `add`.
// `data-more` answers JSON: lines from a number on (&from=12), or those before the newest (&have=1000).
"use strict";
class LogView {
  static MOST = 10000;
  #unfinished = new Map(); // by stream: a record may end in the middle of a line, as of a progress bar
  #streamed = 0; // number of the newest line, which may be below the rows on the page
  #isLoading = false;
  #isAtStart = false;
  #pattern = null;

  constructor(box, follow) {
    this.box = box;
    this.follow = follow;
    this.isNumbered = "numbered" in box.dataset;
    try { this.#pattern = box.dataset.grep && CSS.highlights ? new RegExp(box.dataset.grep, "g") : null; } catch { /* means something in Python only */ }
    for (const row of [...box.children]) this.#written(row, row.querySelector(".who")?.textContent || "", row.hasAttribute("data-partial"));
    this.#streamed = this.last;
    this.attempt = Number(box.dataset.attempt || 0);
    this.received = box.childElementCount;
    this.#isAtStart = this.isNumbered ? this.first <= 1 : this.received < 1000;
    this.#mark();
    box.scrollTop = box.scrollHeight;
    box.addEventListener("scroll", () => this.#scrolled(), { passive: true });
    box.addEventListener("click", (event) => this.#clicked(event));
    box.addEventListener("keydown", (event) => this.#pressed(event));
    window.addEventListener("hashchange", () => this.#toHash());
    this.#toHash();
  }

  get first() { return Number(this.box.querySelector("[data-n]")?.dataset.n || 0); }
  get last() { return Number([...this.box.children].findLast((row) => row.dataset.n)?.dataset.n || 0); }
  get isAtEnd() { return this.box.scrollTop + this.box.clientHeight >= this.box.scrollHeight - 30; }

  // New lines of the stream, which has no numbers. Those below a gap come when the reader scrolls there.
  stream(lines) {
    const stay = this.follow.checked && this.isAtEnd;
    for (const line of lines) {
      if (this.isNumbered && line.attempt > this.attempt) this.#next(line.attempt);
      const isNext = !this.isNumbered || this.last === this.#streamed;
      if (this.isNumbered && line.kind !== "note") line.n = this.#streamed + 1;
      if (line.n && !line.partial) this.#streamed = line.n;
      if (isNext) this.#append(line);
      this.received += 1;
    }
    this.#trim(this.box.children.length - LogView.MOST, () => this.box.firstElementChild);
    if (stay) this.box.scrollTop = this.box.scrollHeight;
    this.#mark();
  }

  async toLine(number) {
    if (!this.box.querySelector(`[data-n="${number}"]`)) {
      const lines = await this.#load({ from: Math.max(1, number - 300) });
      if (!lines) return;
      this.box.replaceChildren();
      this.#unfinished.clear();
      for (const line of lines) this.#append(line);
      this.#isAtStart = number <= 301;
      this.#mark();
    }
    this.follow.checked = false;
    for (const row of this.box.querySelectorAll(".hit")) row.classList.remove("hit");
    const row = this.box.querySelector(`[data-n="${number}"]`);
    if (!row) return;
    row.classList.add("hit");
    this.box.scrollTop += row.getBoundingClientRect().top - this.box.getBoundingClientRect().top - this.box.clientHeight / 2;
  }

  async toEnd() {
    if (this.isNumbered && this.last < this.#streamed) await this.toLine(this.#streamed);
    this.follow.checked = true;
    this.box.scrollTop = this.box.scrollHeight;
  }

  #append(line) {
    const row = LogView.#row(line, this.isNumbered);
    this.box.append(row);
    this.#written(row, line.who, line.partial);
  }

  static #row(line, isNumbered) {
    const row = document.createElement("div");
    row.className = line.kind;
    if (isNumbered) {
      const link = document.createElement("a");
      link.className = "n";
      if (line.n && !line.partial) {
        row.dataset.n = link.dataset.n = line.n;
        link.href = "#L" + line.n;
        link.tabIndex = -1;
        link.setAttribute("aria-label", "line " + line.n);
      }
      row.append(link);
    }
    for (const name of ["at", "who", "text"]) {
      if (!line[name] && name !== "text" || name === "who" && isNumbered) continue;
      const part = document.createElement("span");
      part.className = name;
      part.textContent = line[name];
      row.append(part);
    }
    return row;
  }

  // A line has the number of its end. Until then its row has none, and stays below whole lines of the other stream.
  #written(row, who, isPartial) {
    const stream = row.className + " " + who;
    const text = row.querySelector(".text");
    const begun = this.#unfinished.get(stream)?.box.isConnected ? this.#unfinished.get(stream) : null;
    if (begun) {
      const old = begun.box.parentElement;
      begun.write(text.textContent);
      if (isPartial || !this.isNumbered) row.remove();
      else {
        text.replaceWith(begun.box);
        old.remove();
      }
    }
    if (!isPartial) this.#unfinished.delete(stream);
    else if (!begun) this.#unfinished.set(stream, TerminalText.of(text));
    if (!isPartial && !begun && /[\u240d\u241b]/.test(text.textContent)) TerminalText.of(text);
    const below = [...this.#unfinished.values()].find((line) => line.box.isConnected);
    if (!isPartial && this.isNumbered && below) below.box.parentElement.before(row);
  }

  #next(attempt) {
    this.attempt = attempt;
    this.#streamed = 0;
    this.#isAtStart = true;
    this.box.replaceChildren();
    this.#append({ kind: "note", text: `Attempt ${attempt} began. Choose attempt ${attempt - 1} to see the one before.` });
    const link = new URL(this.box.dataset.link, location.href), more = new URL(this.box.dataset.more, location.href);
    for (const address of [link, more]) address.searchParams.set("attempt", attempt);
    Object.assign(this.box.dataset, { link, more });
  }

  #scrolled() {
    if (this.box.scrollTop < 600) this.#older();
    else if (this.isNumbered && this.last < this.#streamed && this.box.scrollTop + this.box.clientHeight > this.box.scrollHeight - 600) this.#newer();
  }

  async #older() {
    if (this.#isAtStart || this.#isLoading) return;
    const first = this.first;
    const begin = Math.max(1, first - 1000);
    const lines = await this.#load(this.isNumbered ? { from: begin } : { have: this.received });
    if (!lines) return;
    const wanted = this.isNumbered ? lines.slice(0, lines.findIndex((line) => line.n >= first) >>> 0) : lines;
    const isShort = this.isNumbered ? begin === 1 : wanted.length < 1000;
    const height = this.box.scrollHeight, top = this.box.scrollTop;
    // Rows that end a line begun above are made in a box of their own.
    const [now, unfinished] = [this.box, this.#unfinished];
    this.box = document.createElement("div");
    document.body.append(this.box);
    this.box.hidden = true;
    this.#unfinished = new Map();
    for (const line of wanted) this.#append(line);
    const rows = [...this.box.children];
    this.box.remove();
    [this.box, this.#unfinished] = [now, unfinished];
    this.box.prepend(...rows);
    this.box.scrollTop = top + this.box.scrollHeight - height;
    this.received += this.isNumbered ? 0 : wanted.length;
    this.#isAtStart = isShort || !wanted.length;
    if (this.isNumbered) this.#trim(this.box.children.length - LogView.MOST, () => this.box.lastElementChild);
    this.#mark();
  }

  async #newer() {
    if (this.#isLoading) return;
    const lines = await this.#load({ from: this.last + 1 });
    for (const { box } of lines ? this.#unfinished.values() : []) box.parentElement?.remove(); // they are among these
    for (const line of lines || []) this.#append(line);
    this.#streamed = Math.max(this.#streamed, this.last);
    const top = this.box.scrollTop, height = this.box.scrollHeight;
    if (this.box.children.length > LogView.MOST) this.#isAtStart = false;
    this.#trim(this.box.children.length - LogView.MOST, () => this.box.firstElementChild);
    this.box.scrollTop = top - (height - this.box.scrollHeight);
    this.#mark();
  }

  async #load(given) {
    this.#isLoading = true;
    this.box.setAttribute("aria-busy", "true");
    try {
      const address = new URL(this.box.dataset.more, location.href);
      for (const [name, value] of Object.entries(given)) address.searchParams.set(name, value);
      const answer = await fetch(address);
      return answer.ok ? await answer.json() : null;
    } catch {
      return null; // the page says by itself when the server is gone
    } finally {
      this.box.removeAttribute("aria-busy");
      this.#isLoading = false;
    }
  }

  #trim(count, next) {
    if (count > 0 && next() === this.box.firstElementChild) this.#isAtStart = false;
    for (; count > 0; count -= 1) next().remove();
  }

  #clicked(event) {
    const link = event.target.closest("a.n[href]");
    if (!link) return;
    event.preventDefault();
    history.replaceState(null, "", this.box.dataset.link + link.hash);
    this.#toHash();
  }

  // By keyboard: Enter goes from the log to the first number in view, arrows to others, Escape back to the log.
  #pressed(event) {
    const links = [...this.box.querySelectorAll("a.n[href]")];
    const at = links.indexOf(event.target);
    const top = this.box.getBoundingClientRect().top;
    const to = at < 0
      ? event.key === "Enter" && links.find((link) => link.getBoundingClientRect().top >= top)
      : event.key === "Escape" ? this.box : links[at + { ArrowUp: -1, ArrowDown: 1 }[event.key]];
    if (!to) return;
    event.preventDefault();
    to.focus();
  }

  #toHash() {
    const number = Number(/^#L(\d{1,12})$/.exec(location.hash)?.[1] || 0);
    if (number && this.isNumbered) this.toLine(number);
  }

  #mark() {
    if (!this.#pattern) return;
    const ranges = [];
    for (const text of this.box.querySelectorAll(".text")) {
      const nodes = document.createTreeWalker(text, NodeFilter.SHOW_TEXT);
      while (nodes.nextNode())
        for (const match of nodes.currentNode.data.matchAll(this.#pattern)) {
          if (!match[0]) continue;
          const range = new Range();
          range.setStart(nodes.currentNode, match.index);
          range.setEnd(nodes.currentNode, match.index + match[0].length);
          ranges.push(range);
        }
    }
    CSS.highlights.set("match", new Highlight(...ranges));
  }
}
