// The picture on the page: draws what is open, and answers to mouse, keys, buttons and search.
//
// In: `describe(element, part)`, which adds to the panel what it shows beside the part's details; may
// be left out. Out: {load, redraw, show}: `load` takes a picture as data, `show` a part's number.
"use strict";

const fxViewer = describe => {
  const SVG = "http://www.w3.org/2000/svg";
  const LINE_HEIGHT = 15, TITLE_WIDTH = 10.5 * 0.605, MOST_RESULTS = 200;
  const picture = document.getElementById("picture");
  const details = document.getElementById("details");
  const results = document.getElementById("results");
  const search = document.getElementById("search");
  const intro = [...details.childNodes];
  const view = { x: 0, y: 0, scale: 1 };
  let parts = [], edges = [], reads = [], readers = [], searched = [];
  let root = null, boxes = new Map(), chosen = -1, found = new Set(), groups = new Map();

  // Show another picture. What was chosen stays so if there is a part of that name.
  function load(data) {
    const label = chosen < 0 ? null : parts[chosen].label;
    ({ parts, edges } = data);
    parts.forEach((part, number) => { part.number = number; });
    reads = parts.map(() => []);
    readers = parts.map(() => []);
    for (const [source, target] of edges) {
      reads[target].push(source);
      readers[source].push(target);
    }
    // The line is left out: it names the operands, too.
    searched = parts.map(part => [part.label, part.title, ...part.texts.map(t => t[1]),
      ...part.details.filter(d => d[0] !== "line").map(d => d[1])].join("\n").toLowerCase());
    chosen = -1;
    found = new Set();
    const same = label === null ? -1 : parts.findIndex(part => part.label === label);
    details.replaceChildren(...(same < 0 ? intro.map(node => node.cloneNode(true)) : []));
    draw();
    find();
    fit();
    if (same >= 0) show(same);
  }

  // -- what is open -----------------------------------------------------------------------------
  function build() {
    boxes = new Map();
    root = { children: [], width: 0, height: 0, titleWidth: 0, part: null, lines: [] };
    for (const part of parts) {  // outer parts come first
      const parent = part.in < 0 ? root : boxes.get(part.in);
      if (!parent || (parent.part && !parent.part.open)) continue;
      const box = { part, children: [], width: part.width, height: part.height, titleWidth: 0,
        entries: new Map(), exits: new Map(), lines: [] };
      if (part.open) box.titleWidth = part.title.length * TITLE_WIDTH;
      boxes.set(part.number, box);
      parent.children.push(box);
    }
    const seen = new Set(), pairs = [];
    for (const [source, target] of edges) {
      const a = shown(source), b = shown(target), key = `${a} ${b}`;
      if (a === b || seen.has(key)) continue;
      seen.add(key);
      pairs.push([boxes.get(a), boxes.get(b)]);
    }
    if (root.children.length) fxLayout(root, pairs);
  }

  // The part that is drawn for a node: itself, or the closed box it is in.
  function shown(number) {
    while (!boxes.has(number)) number = parts[number].in;
    return number;
  }

  function setOpen(number, open) {
    const part = parts[number], before = boxes.get(number);
    part.open = open && part.can_open;
    const old = { x: before.x, y: before.y };
    draw();
    const now = boxes.get(number);  // what was clicked stays under the mouse
    view.x += (old.x - now.x) * view.scale;
    view.y += (old.y - now.y) * view.scale;
    move();
  }

  function setAll(open) {
    for (const part of parts) if (part.kind === "box") part.open = open && part.can_open;
    draw();
    fit();
  }

  // Open the boxes around a part, choose it and bring it to the middle.
  function show(number) {
    for (let box = parts[number].in; box >= 0; box = parts[box].in) parts[box].open = true;
    choose(number, false);
    draw();
    const box = boxes.get(number), area = picture.getBoundingClientRect();
    view.scale = Math.max(view.scale, 0.8);
    view.x = area.width / 2 - (box.x + box.width / 2) * view.scale;
    view.y = area.height / 2 - (box.y + box.height / 2) * view.scale;
    move();
  }

  // -- drawing ----------------------------------------------------------------------------------
  function element(name, attributes, parent, text) {
    const made = document.createElementNS(SVG, name);
    for (const key in attributes) made.setAttribute(key, attributes[key]);
    if (text !== undefined) made.textContent = text;
    if (parent) parent.append(made);
    return made;
  }

  function draw() {
    build();
    const svg = element("svg", { "font-family": "ui-monospace, SFMono-Regular, Menlo, Consolas, " +
      "'DejaVu Sans Mono', monospace", "font-size": 12 });
    svg.append(document.querySelector("#marker").content.querySelector("defs").cloneNode(true));
    const canvas = element("g", { id: "canvas" }, svg);
    groups = new Map();
    for (const box of boxes.values()) if (box.children.length) drawBox(box, canvas);
    for (const box of [root, ...boxes.values()]) {
      for (const line of box.lines) drawLine(line, canvas);
    }
    for (const box of boxes.values()) if (!box.children.length) drawNode(box, canvas);
    picture.replaceChildren(svg);
    picture.classList.add("live");
    mark();
    move();
  }

  function drawBox(box, canvas) {
    const group = groupFor(box, canvas);
    if (box.part.times > 1) frame(box, group, { class: "box" }, 8, 4);
    frame(box, group, { class: "box shape" }, 8, 0);
    const handle = element("text", { class: "title handle", x: box.x + 9, y: box.y + 14 }, group,
      `▾ ${box.part.title}`);
    handle.addEventListener("click", () => clicked(() => setOpen(box.part.number, false)));
  }

  function drawNode(box, canvas) {
    const part = box.part, group = groupFor(box, canvas), radius = part.round ? box.height / 2 : 6;
    const colours = { fill: part.fill, stroke: part.border };
    if (part.times > 1) frame(box, group, colours, radius, 4);
    frame(box, group, { ...colours, class: "shape" }, radius, 0);
    part.texts.forEach(([css, text], index) => {
      const line = element("text", { class: css, x: box.x + box.width / 2,
        y: box.y + 1 + LINE_HEIGHT * (index + 1), "text-anchor": "middle" }, group);
      const cut = css === "name" && part.kind === "node" ? text.indexOf(" ") : -1;
      if (css === "name" && part.can_open) text = `▸ ${text}`;
      line.textContent = cut < 0 ? text : text.slice(0, cut);
      if (cut >= 0) element("tspan", { class: "more" }, line, text.slice(cut));
    });
    element("title", {}, group, part.details.length ? part.details[0][1] : part.title);
    group.addEventListener("click", () => clicked(() => {
      choose(part.number, true);
      if (part.can_open) setOpen(part.number, true);
    }));
  }

  function groupFor(box, canvas) {
    const group = element("g", { class: "part", "data-part": box.part.number }, canvas);
    groups.set(box.part.number, group);
    return group;
  }

  function frame(box, group, style, radius, shift) {
    element("rect", { ...style, x: box.x + shift, y: box.y + shift, width: box.width,
      height: box.height, rx: radius }, group);
  }

  function drawLine(line, canvas) {
    const middle = (line.bend0 + line.bend1) / 2;
    let way = `M${line.x0},${line.y0}`;
    if (Math.abs(line.x1 - line.x0) > 0.05) {
      way += ` V${line.bend0} C${line.x0},${middle} ${line.x1},${middle} ${line.x1},${line.bend1}`;
    }
    const made = element("path", { class: "line", d: `${way} V${line.y1}` }, canvas);
    made.dataset.from = line.value.part.number;
    if (line.ends) made.setAttribute("marker-end", "url(#arrow)");
  }

  // Marks what is chosen, what was found, and the lines that leave what is chosen.
  function mark() {
    for (const group of groups.values()) group.classList.remove("chosen", "found");
    const groupOf = number => groups.get(shown(number));
    for (const number of found) groupOf(number).classList.add("found");
    if (chosen >= 0) groupOf(chosen).classList.add("chosen");
    for (const line of picture.querySelectorAll(".line")) {
      line.classList.toggle("near", chosen >= 0 && Number(line.dataset.from) === shown(chosen));
    }
  }

  // -- the panel --------------------------------------------------------------------------------
  function add(parent, name, text) {
    const made = document.createElement(name);
    made.textContent = text;
    parent.append(made);
    return made;
  }

  function link(parent, number) {
    const made = add(parent, "a", parts[number].label);
    made.dataset.part = number;
    made.tabIndex = 0;
    made.addEventListener("click", () => show(number));
    made.addEventListener("keydown", event => { if (event.key === "Enter") show(number); });
  }

  function choose(number, redraw) {
    chosen = number;
    const part = parts[number];
    details.replaceChildren();
    add(details, "h2", part.kind === "box" ? part.title : part.label);
    const list = add(details, "dl", "");
    for (const [name, text] of part.details) {
      add(list, "dt", name);
      add(list, "dd", text);
    }
    for (const [name, others] of [["reads", reads[number]], ["read by", readers[number]]]) {
      if (!others.length) continue;
      add(list, "dt", name);
      const cell = add(list, "dd", "");
      for (const other of others.slice(0, MOST_RESULTS)) link(cell, other);
    }
    if (describe) describe(details, part);
    details.parentElement.scrollTop = 0;
    if (redraw) mark();
  }

  function find() {
    const words = search.value.toLowerCase().split(/\s+/).filter(Boolean);
    found = new Set();
    results.replaceChildren();
    if (words.length) {
      searched.forEach((text, number) => {
        if (words.every(word => text.includes(word))) found.add(number);
      });
      add(results, "h2", `${found.size} found`);
      for (const number of [...found].slice(0, MOST_RESULTS)) link(results, number);
    }
    mark();
  }

  // -- mouse and buttons ------------------------------------------------------------------------
  function move() {
    const { x, y, scale } = view;
    document.getElementById("canvas")
      .setAttribute("transform", `translate(${x} ${y}) scale(${scale})`);
  }

  function fit() {
    const area = picture.getBoundingClientRect();
    const wide = (area.width - 24) / root.width, high = (area.height - 24) / root.height;
    view.scale = Math.min(1.2, wide, Math.max(high, 0.7));  // a long graph stays readable
    view.x = (area.width - root.width * view.scale) / 2;
    view.y = Math.max(12, (area.height - root.height * view.scale) / 2);
    move();
  }

  function zoom(factor, x, y) {
    const scale = Math.min(Math.max(view.scale * factor, 0.02), 8);
    view.x = x - (x - view.x) * scale / view.scale;
    view.y = y - (y - view.y) * scale / view.scale;
    view.scale = scale;
    move();
  }

  let drag = null;
  // A click that ends a drag is none.
  function clicked(action) { if (!drag || !drag.moved) action(); }
  picture.addEventListener("pointerdown", event => {
    drag = { x: event.clientX, y: event.clientY, moved: false };
  });
  window.addEventListener("pointermove", event => {
    if (!drag || !event.buttons) return;
    const dx = event.clientX - drag.x, dy = event.clientY - drag.y;
    if (!drag.moved && Math.hypot(dx, dy) < 4) return;
    drag = { x: event.clientX, y: event.clientY, moved: true };
    picture.classList.add("moving");
    view.x += dx;
    view.y += dy;
    move();
  });
  window.addEventListener("pointerup", () => picture.classList.remove("moving"));
  picture.addEventListener("wheel", event => {
    event.preventDefault();
    const area = picture.getBoundingClientRect();
    zoom(Math.exp(-event.deltaY / 400), event.clientX - area.left, event.clientY - area.top);
  }, { passive: false });
  const middle = factor => {
    const area = picture.getBoundingClientRect();
    zoom(factor, area.width / 2, area.height / 2);
  };
  document.getElementById("fit").addEventListener("click", fit);
  document.getElementById("in").addEventListener("click", () => middle(1.3));
  document.getElementById("out").addEventListener("click", () => middle(1 / 1.3));
  document.getElementById("open-all").addEventListener("click", () => setAll(true));
  document.getElementById("close-all").addEventListener("click", () => setAll(false));
  search.addEventListener("input", find);
  search.addEventListener("keydown", event => {
    if (event.key === "Enter" && found.size) show([...found][0]);
  });

  picture.tabIndex = 0;
  picture.addEventListener("keydown", event => {
    const steps = { ArrowLeft: [60, 0], ArrowRight: [-60, 0], ArrowUp: [0, 60], ArrowDown: [0, -60] };
    const step = steps[event.key];
    if (step) {
      view.x += step[0];
      view.y += step[1];
      move();
    } else if (event.key === "+" || event.key === "-") middle(event.key === "+" ? 1.3 : 1 / 1.3);
    else if (event.key === "0") fit();
    else return;
    event.preventDefault();
  });

  return { load, redraw: draw, show };
};
