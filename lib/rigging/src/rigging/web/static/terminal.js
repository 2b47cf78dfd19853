// Text of a terminal in an element: colours, and a line that carriage returns write again. It makes text nodes only.
//
// Pages write "\u241b" and "\u240d" for ESC and carriage return, which HTML has no form for.
"use strict";
class TerminalText {
  static #TOKEN = /(?<lines>[^\r\x1b\u240d\u241b]*\n)|(?:\r|\u240d)(?<end>\n)|(?<back>[\r\u240d])|[\x1b\u241b]\[(?<codes>[\d;?]*)(?<kind>[A-Za-z])|(?<text>[^\n\r\x1b\u240d\u241b]+|[\x1b\u241b])/g;
  static #UNFINISHED = /(?:[\r\u240d]|[\x1b\u241b](?:\[[\d;?]*)?)$/;
  #line = []; // the nodes of the last line
  #rest = "";
  #isBack = false;
  #look = new Map();

  constructor(box) { this.box = box; }

  // What an element has been given as plain text, as a terminal shows it.
  static of(box) {
    const text = box.textContent;
    box.replaceChildren();
    const made = new TerminalText(box);
    made.write(text);
    return made;
  }

  write(text) {
    text = this.#rest + text;
    this.#rest = (text.match(TerminalText.#UNFINISHED) || [""])[0];
    for (const { groups } of text.slice(0, text.length - this.#rest.length).matchAll(TerminalText.#TOKEN)) {
      if (groups.back) this.#isBack = true;
      else if (groups.kind === "m") this.#colour(groups.codes);
      else if (!groups.kind) this.#add(groups.lines || groups.end || groups.text);
    }
  }

  #add(text) {
    if (this.#isBack && text !== "\n") for (const node of this.#line.splice(0)) node.remove();
    this.#isBack = false;
    let node = document.createTextNode(text);
    if (this.#look.size) {
      const shown = document.createElement("span");
      shown.className = [...this.#look.values()].join(" ");
      shown.append(node);
      node = shown;
    }
    this.box.append(node);
    if (text.endsWith("\n")) this.#line = [];
    else this.#line.push(node);
  }

  #colour(codes) {
    const numbers = codes.split(";").map(Number);
    while (numbers.length) {
      const code = numbers.shift();
      if (code === 0) this.#look.clear();
      else if (code === 38 || code === 48) numbers.splice(0, numbers[0] === 2 ? 4 : 2); // of 256 or all colours: left out
      else if (code >= 30 && code <= 37) this.#look.set("colour", "ansi-" + (code - 30));
      else if (code >= 90 && code <= 97) this.#look.set("colour", "ansi-" + (code - 90));
      else if (code === 39) this.#look.delete("colour");
      else if (code === 1) this.#look.set("weight", "ansi-bold");
      else if (code === 22) this.#look.delete("weight");
      else if (code === 4) this.#look.set("under", "ansi-under");
      else if (code === 24) this.#look.delete("under");
    }
  }
}
