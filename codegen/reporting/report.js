// The page of a report: tabs, the two graphs and their colours, and the panel of a node.
"use strict";

(() => {
  const data = JSON.parse(document.getElementById("report").textContent);
  const LINE_HEIGHT = 15, NOTE_WIDTH = 11 * 0.605, PADDING = 18;
  const slider = document.getElementById("stage");
  const colour = document.getElementById("colour");
  const legend = document.getElementById("legend");
  const search = document.getElementById("search");
  const viewer = fxViewer(describe);
  let stage = null;

  function add(parent, name, text = "", css = "") {
    const made = document.createElement(name);
    made.textContent = text;
    if (css) made.className = css;
    parent.append(made);
    return made;
  }

  // -- tabs -------------------------------------------------------------------------------------
  const tabs = [...document.querySelectorAll("nav button")];
  function open(name) {
    for (const tab of tabs) {
      const is_open = tab.id === `tab-${name}`;
      tab.setAttribute("aria-selected", is_open);
      tab.tabIndex = is_open ? 0 : -1;
      document.getElementById(tab.id.slice(4)).classList.toggle("open", is_open);
    }
  }
  for (const [place, tab] of tabs.entries()) {
    tab.addEventListener("click", () => open(tab.id.slice(4)));
    tab.addEventListener("keydown", event => {
      const step = { ArrowRight: 1, ArrowLeft: -1 }[event.key];
      if (!step) return;
      const next = tabs[(place + step + tabs.length) % tabs.length];
      open(next.id.slice(4));
      next.focus();
    });
  }
  document.body.classList.add("live-page");
  open("graph");

  // -- stage and colours ------------------------------------------------------------------------
  // Each part keeps what it says in all colourings, and gets the colour and note of this one.
  function paint() {
    const way = colour.value;
    for (const part of stage.parts) {
      const [number, note] = part.paint[way];
      part.css = stage.palette[number];
      part.plain ??= { texts: part.texts, width: part.width, height: part.height };
      const { texts, width, height } = part.plain;
      part.texts = note ? [...texts, ["note", note]] : texts;
      part.width = Math.max(width, note ? note.length * NOTE_WIDTH + PADDING : 0);
      part.height = height + (note ? LINE_HEIGHT : 0);
    }
    const { legend: rows, remark } = stage.colours[way];
    legend.replaceChildren();
    for (const [name, number] of rows) {
      const row = add(legend, "span", "", "fx-picture");
      add(row, "i", "", stage.palette[number]);
      row.append(name);
    }
    add(legend, "span", `${stage.count}${remark ? `; ${remark}` : ""}`);
  }

  function setStage(number) {
    stage = data.stages[number];
    slider.value = number;
    slider.setAttribute("aria-valuetext", stage.title);
    for (const name of document.querySelectorAll(".slider span")) {
      name.classList.toggle("now", name.textContent === stage.title);
    }
    const wanted = colour.value;
    colour.replaceChildren();
    for (const name of Object.keys(stage.colours)) add(colour, "option", name);
    if (wanted in stage.colours) colour.value = wanted;
    paint();
    viewer.load(stage);
  }
  slider.addEventListener("input", () => setStage(Number(slider.value)));
  colour.addEventListener("change", () => { paint(); viewer.redraw(); });

  // -- the panel --------------------------------------------------------------------------------
  function describe(panel, part) {
    const facts = part.facts;
    table(panel, "Operands", facts.inputs);
    table(panel, "Cost", facts.cost);
    table(panel, "Time", facts.time);
    if (facts.source) code(panel, facts.source);
    if (facts.history) {
      add(panel, "h3", "Passes");
      const list = add(panel, "ul");
      for (const text of facts.history) add(list, "li", text);
    }
    const shared = facts.others ? `, and ${facts.others} for the other copies` : "";
    for (const number of facts.kernels || []) kernel(panel, data.kernels[number], shared);
    if (facts.runs) {
      add(panel, "h3", "Kernels");
      for (const number of facts.runs) {
        const { name, root } = data.kernels[number];
        nodeLink(add(panel, "div"), 1, root, name);
      }
    }
  }

  function table(panel, title, rows) {
    if (!rows) return;
    add(panel, "h3", title);
    const made = add(panel, "table");
    for (const cells of rows) {
      const row = add(made, "tr");
      for (const text of cells) add(row, "td", text);
    }
  }

  function code(panel, { file, line, columns }) {
    const { name, lines } = data.files[file];
    add(panel, "h3", `${name}:${line}`);
    const block = add(panel, "pre", "", "source");
    const around = Object.keys(lines).map(Number).filter(n => Math.abs(n - line) <= 6);
    const indent = Math.min(...around.filter(n => lines[n].trim()).map(
      n => lines[n].length - lines[n].trimStart().length));
    for (const number of around) {
      const row = add(block, "span", "", number === line ? "code-line here" : "code-line");
      add(row, "span", `${String(number).padStart(4)}  `, "line-number");
      const text = lines[number];
      if (number === line && columns) {
        row.append(text.slice(indent, columns[0]));
        add(row, "mark", text.slice(...columns));
        row.append(text.slice(columns[1]));
      } else row.append(text.slice(indent));
      row.append("\n");
    }
  }

  function kernel(panel, { name, function: called, nodes }, shared) {
    add(panel, "h3", `Kernel${shared}`);
    const block = add(panel, "details");
    block.open = true;
    add(block, "summary", called === name ? name : `${name}, which calls ${called}`);
    if (nodes.length > 1) {
      const list = add(block, "div", "computes ", "computes");
      for (const node of nodes) {
        nodeLink(list, 1, node, node);
        list.append(" ");
      }
    }
    add(block, "pre", data.functions[called], "kernel");
  }

  // -- links to nodes, and keys -----------------------------------------------------------------
  function nodeLink(parent, number, node, text) {
    const made = add(parent, "a", text, "node");
    made.style.display = "inline";
    follow(made, number, node);
  }

  function follow(link, number, node) {
    link.tabIndex = 0;
    const go = () => goTo(number, node);
    link.addEventListener("click", go);
    link.addEventListener("keydown", event => { if (event.key === "Enter") go(); });
  }

  // A node of a folded part has no part of its own: its first copy is drawn, the search finds it.
  function goTo(number, node) {
    open("graph");
    if (data.stages[number] !== stage) setStage(number);
    const part = stage.parts.findIndex(part => part.label === node && part.kind === "node");
    const drawn = part >= 0 ? part : stage.aliases[node];
    if (drawn !== undefined) viewer.show(drawn);
  }
  for (const link of document.querySelectorAll("a[data-node]")) {
    follow(link, Number(link.dataset.stage), link.dataset.node);
  }

  document.addEventListener("keydown", event => {
    if (event.key !== "/" || /INPUT|SELECT/.test(event.target.tagName)) return;
    event.preventDefault();
    open("graph");
    search.focus();
  });

  // -- rewrites ---------------------------------------------------------------------------------
  const rewrites = [...document.querySelectorAll(".rewrite")];
  let shown = 0;
  function step(number) {
    shown = Math.min(Math.max(number, 0), rewrites.length - 1);
    for (const [place, rewrite] of rewrites.entries()) {
      rewrite.classList.toggle("shown", place === shown);
    }
    document.getElementById("step-where").textContent = `${shown + 1} of ${rewrites.length}`;
  }
  function nextPass() {
    const next = rewrites.findIndex((r, place) => place > shown && r.dataset.number === "1");
    step(next < 0 ? rewrites.length - 1 : next);
  }
  if (rewrites.length) {
    document.getElementById("step-back").addEventListener("click", () => step(shown - 1));
    document.getElementById("step-next").addEventListener("click", () => step(shown + 1));
    document.getElementById("step-pass").addEventListener("click", nextPass);
    step(0);
    document.addEventListener("keydown", event => {
      const is_open = document.getElementById("rewrites").classList.contains("open");
      if (!is_open || /INPUT|SELECT/.test(event.target.tagName)) return;
      if (event.target.getAttribute?.("role") === "tab" && event.key.startsWith("Arrow")) return;
      if (event.ctrlKey || event.metaKey || event.altKey) return;
      if (event.key === "n" || event.key === "ArrowRight") step(shown + 1);
      else if (event.key === "b" || event.key === "ArrowLeft") step(shown - 1);
      else if (event.key === "p") nextPass();
      else return;
      event.preventDefault();
    });
  }

  setStage(0);
})();
