// The picture on the page: draws what is open, and answers to mouse, keys, buttons and search.
//
// In: `describe(element, part)`, which adds to the panel what it shows beside the part's details; may
// be left out. Out: {load, redraw, show}: `load` takes a picture as data, `show` a part's number.
//
// Moving changes the transform of the one element that holds the picture, so that the browser only
// shifts what it has painted. Of a large picture only what is near the window is in that element, and
// where it is seen from afar, no texts. `#node=NAME` in the address leads to a node, and follows what is chosen.
"use strict";

const fxViewer = describe => {
  const SVG = "http://www.w3.org/2000/svg";
  const LINE_HEIGHT = 15, TITLE_WIDTH = 12 * 0.605, MOST_RESULTS = 200, MOST_PIXELS = 8192;
  const MOST_AT_ONCE = 1000, NEAR = 0.8, AFAR = 0.2;  // parts; windows beyond the edge; scale
  const picture = document.getElementById("picture");
  const details = document.getElementById("details");
  const results = document.getElementById("results");
  const search = document.getElementById("search");
  const intro = [...details.childNodes];
  const view = { x: 0, y: 0, scale: 1 };
  let parts = [], edges = [], aliases = {}, reads = [], readers = [], searched = [], sideways = false;
  let canvas = null, map = null, window_ = null, root = null, boxes = new Map(), chosen = -1, found = new Set(), groups = new Map();
  let layers = [], painted = null;  // the part of a large picture that is in the canvas: left, top, right, bottom, and texts

  // Show another picture. What was chosen stays so if there is a part of that name.
  function load(data) {
    const label = chosen < 0 ? null : parts[chosen].label;
    ({ parts, edges, aliases, sideways } = data);
    parts.forEach((part, number) => { part.number = number; });
    reads = parts.map(() => []);
    readers = parts.map(() => []);
    for (const [source, target] of edges) {
      reads[target].push(source);
      readers[source].push(target);
    }
    // The line is left out: it names the operands, too.
    searched = parts.map(part => [part.label, part.title, ...part.texts.map(t => t[1]),
      ...part.details.filter(d => !["line", "in", "out"].includes(d[0])).map(d => d[1])].join("\n").toLowerCase());
    chosen = -1;
    found = new Set();
    const same = label === null ? -1 : parts.findIndex(part => part.label === label);
    details.replaceChildren(...(same < 0 ? intro.map(node => node.cloneNode(true)) : []));
    draw();
    find();
    fit();
    if (same >= 0) show(same);
    else follow();
  }

  // Go to the node that the address names, if there is one of that name, or one that stands for it.
  function follow() {
    const name = new URLSearchParams(location.hash.slice(1)).get("node");
    if (name === null) return;
    const part = parts.findIndex(part => part.label === name);
    const number = part >= 0 ? part : aliases[name];
    if (number !== undefined && number !== chosen) show(number);
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
      if (part.open) box.titleWidth = (part.title.length + 2) * TITLE_WIDTH;
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
    if (root.children.length) fxLayout(root, pairs, sideways);
  }

  // The part that is drawn for a node: itself, or the closed box it is in.
  function shown(number) {
    while (!boxes.has(number)) number = parts[number].in;
    return number;
  }

  function setOpen(number, open) {
    const part = parts[number], before = boxes.get(shown(number));
    part.open = open && part.can_open;
    const old = { x: before.x, y: before.y };
    draw();
    const now = boxes.get(shown(number));  // what was clicked stays under the mouse
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
    canvas = element("svg", { id: "canvas", class: "fx-picture", "aria-hidden": "true", width: root.width,
      height: root.height, "font-size": 12, "font-family": "ui-monospace, SFMono-Regular, Menlo, Consolas, " +
      "'DejaVu Sans Mono', monospace" });
    canvas.append(document.querySelector("#marker").content.querySelector("defs").cloneNode(true));
    layers = [0, 1, 2].map(() => ({ group: element("g", {}, canvas), has: new Map() }));  // frames, lines, nodes
    picture.replaceChildren(canvas, drawMap());
    picture.classList.add("live");
    painted = null;
    move();
  }

  // Fill the canvas with what is in an area; all of it without one. What is there already stays.
  function paint(area, texts = true) {
    const isIn = box => !area || (box.x <= area.right && box.x + box.width >= area.left
      && box.y <= area.bottom && box.y + box.height >= area.top);
    const lineIsIn = ({ x0, x1, y0, y1 }) => isIn(sideways
      ? { x: y0, y: Math.min(x0, x1), width: y1 - y0, height: Math.abs(x1 - x0) }
      : { x: Math.min(x0, x1), y: y0, width: Math.abs(x1 - x0), height: y1 - y0 });
    const near = [...boxes.values()].filter(isIn), [frames, ways, nodes] = layers;
    const lines = texts ? [root, ...near].flatMap(box => box.lines.filter(lineIsIn)) : [];
    if (painted && painted.texts !== texts) fill(nodes, [], drawNode);
    fill(frames, [], drawBox);  // outer ones first
    fill(frames, near.filter(box => box.children.length), drawBox);
    fill(ways, lines, drawLine);
    fill(nodes, near.filter(box => !box.children.length), box => drawNode(box, texts));
    groups = new Map([frames, nodes].flatMap(layer => [...layer.has].map(([box, made]) => [box.part.number, made])));
    painted = area ? { ...area, texts } : { left: -Infinity, top: -Infinity, right: Infinity, bottom: Infinity, texts };
    mark();
  }

  // Make a layer hold what is wanted: `make` draws what is missing.
  function fill(layer, wanted, make) {
    const keep = new Set(wanted);
    for (const [thing, made] of layer.has) {
      if (keep.has(thing)) continue;
      made.remove();
      layer.has.delete(thing);
    }
    for (const thing of wanted) if (!layer.has.has(thing)) layer.has.set(thing, layer.group.appendChild(make(thing)));
  }

  // What is seen, in the picture's units.
  function seen(beyond) {
    const { clientWidth: width, clientHeight: height } = picture, { x, y, scale } = view;
    return { left: (-x - beyond * width) / scale, top: (-y - beyond * height) / scale,
      right: (-x + (1 + beyond) * width) / scale, bottom: (-y + (1 + beyond) * height) / scale };
  }

  function repaint() {
    if (boxes.size <= MOST_AT_ONCE) {
      if (!painted) paint(null);
      return;
    }
    const texts = view.scale >= AFAR, now = seen(0.1);
    const isThere = painted && painted.texts === texts && painted.left <= Math.max(now.left, 0)
      && painted.top <= Math.max(now.top, 0) && painted.right >= Math.min(now.right, root.width)
      && painted.bottom >= Math.min(now.bottom, root.height);
    if (!isThere) paint(seen(NEAR), texts);
  }

  function drawBox(box) {
    const group = groupFor(box);
    if (box.part.times > 1) frame(box, group, { class: "box" }, 8, 4);
    frame(box, group, { class: "box shape" }, 8, 0);
    element("text", { class: "title handle", x: box.x + 9, y: box.y + 16 }, group, `▾ ${box.part.title}`);
    element("title", {}, group, box.part.hint);
    return group;
  }

  function drawNode(box, texts) {
    const part = box.part, group = groupFor(box), radius = part.round ? box.height / 2 : 6;
    if (part.times > 1) frame(box, group, { class: part.css }, radius, 4);
    frame(box, group, { class: `${part.css} shape` }, radius, 0);
    if (!texts) return group;
    part.texts.forEach(([css, text], index) => {
      const line = element("text", { class: css, x: box.x + box.width / 2,
        y: box.y + 1 + LINE_HEIGHT * (index + 1), "text-anchor": "middle" }, group);
      const cut = css === "name" ? text.indexOf(" ") : -1;
      const opens = css === "name" && part.can_open ? "▸ " : "";
      line.textContent = opens + (cut < 0 ? text : text.slice(0, cut));
      if (cut >= 0) element("tspan", { class: "more" }, line, text.slice(cut));
    });
    element("title", {}, group, part.hint);
    return group;
  }

  function groupFor(box) {
    return element("g", { class: "part", "data-part": box.part.number });
  }

  function frame(box, group, style, radius, shift) {
    element("rect", { ...style, x: box.x + shift, y: box.y + shift, width: box.width,
      height: box.height, rx: radius }, group);
  }

  function drawLine(line) {
    const middle = (line.bend0 + line.bend1) / 2, along = sideways ? "H" : "V";
    const at = (x, y) => sideways ? `${y},${x}` : `${x},${y}`;
    let way = `M${at(line.x0, line.y0)}`;
    if (Math.abs(line.x1 - line.x0) > 0.05) {
      way += ` ${along}${line.bend0} C${at(line.x0, middle)} ${at(line.x1, middle)} ${at(line.x1, line.bend1)}`;
    }
    const made = element("path", { class: "line", d: `${way} ${along}${line.y1}` });
    if (line.ends) made.setAttribute("marker-end", "url(#arrow)");
    return made;
  }

  // The whole in small, with a frame around what is seen; a press on it goes there.
  function drawMap() {
    const holder = document.createElement("div"), area = document.createElement("canvas");
    const most = Math.min(150, 0.22 * picture.clientWidth);
    const scale = Math.min(most / root.width, 150 / root.height, 0.25);
    holder.id = "map";
    holder.setAttribute("aria-hidden", "true");
    area.width = Math.max(root.width * scale, 8);
    area.height = Math.max(root.height * scale, 8);
    const pen = area.getContext("2d"), style = getComputedStyle(document.body);
    for (const box of boxes.values()) {
      pen.fillStyle = style.getPropertyValue(box.children.length ? "--map-box" : "--map-node");
      pen.fillRect(box.x * scale, box.y * scale, Math.max(box.width * scale, 1), Math.max(box.height * scale, 1));
    }
    window_ = document.createElement("i");
    holder.append(area, window_);
    const go = event => {
      if (!event.buttons) return;
      event.stopPropagation();
      const place = area.getBoundingClientRect(), seen = picture.getBoundingClientRect();
      view.x = seen.width / 2 - (event.clientX - place.left) / scale * view.scale;
      view.y = seen.height / 2 - (event.clientY - place.top) / scale * view.scale;
      move();
    };
    holder.addEventListener("pointerdown", go);
    holder.addEventListener("pointermove", go);
    map = { scale, width: area.width, height: area.height };
    return holder;
  }

  // Marks what is chosen, what was found, and the lines that leave what is chosen.
  function mark() {
    for (const group of groups.values()) group.classList.remove("chosen", "found");
    const groupOf = number => groups.get(shown(number));
    for (const number of found) groupOf(number)?.classList.add("found");
    if (chosen >= 0) groupOf(chosen)?.classList.add("chosen");
    for (const [line, made] of layers[1].has) {
      made.classList.toggle("near", chosen >= 0 && line.value.part.number === shown(chosen));
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
    try { history.replaceState(null, "", `#node=${encodeURIComponent(part.label)}`); } catch { /* in a frame */ }
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
      for (const name in aliases) {
        if (words.every(word => name.toLowerCase().includes(word))) found.add(aliases[name]);
      }
      add(results, "h2", `${found.size} found`);
      for (const number of [...found].slice(0, MOST_RESULTS)) link(results, number);
    }
    mark();
  }

  // -- keys along the graph -----------------------------------------------------------------------
  // The part that a key leads to from the one that is chosen: a reader, an operand, the one after or before.
  function next(key) {
    const leaves = [...boxes.values()].filter(box => !box.children.length).map(box => box.part.number);
    if (chosen < 0) return leaves[0];
    const from = shown(chosen), place = leaves.indexOf(from);
    if (key === "ArrowRight") return leaves[place + 1];
    if (key === "ArrowLeft") return place < 0 ? leaves[0] : leaves[place - 1];
    const down = key === "ArrowDown";
    const leads = edges.filter(([source, target]) => shown(down ? source : target) === from)
      .map(([source, target]) => shown(down ? target : source));
    return leads.find(number => number !== from);
  }

  function close() {
    const around = chosen < 0 ? -1 : parts[chosen].in;
    if (around < 1) return;  // the whole is no module
    choose(around, false);
    setOpen(around, false);
  }

  const actions = {
    Enter: () => { if (chosen >= 0 && parts[chosen].can_open) setOpen(chosen, !parts[chosen].open); },
    Escape: close, "+": () => middle(1.3), "=": () => middle(1.3), "-": () => middle(1 / 1.3), 0: () => fit(),
  };
  for (const key of ["ArrowDown", "ArrowUp", "ArrowLeft", "ArrowRight"]) {
    actions[key] = () => {
      const number = next(key);
      if (number !== undefined) show(number);
    };
  }
  picture.tabIndex = 0;
  picture.setAttribute("role", "application");
  picture.setAttribute("aria-label", "the graph; arrow keys lead along its edges");
  picture.addEventListener("keydown", event => {
    if (event.ctrlKey || event.metaKey || event.altKey || !(event.key in actions)) return;
    event.preventDefault();
    actions[event.key]();
  });
  document.addEventListener("keydown", event => {
    if (event.key !== "/" || /INPUT|SELECT|TEXTAREA/.test(event.target.tagName) || !picture.offsetParent) return;
    event.preventDefault();
    search.focus();
  });
  search.addEventListener("input", find);
  search.addEventListener("keydown", event => {
    if (event.key === "Enter" && found.size) show([...found][0]);
    else if (event.key === "Escape") {
      search.value = "";
      find();
    } else return;
    event.preventDefault();
    picture.focus();
  });

  // -- mouse and buttons ------------------------------------------------------------------------
  function move() {
    const { x, y, scale } = view;
    canvas.style.transform = `translate(${x}px, ${y}px) scale(${scale})`;
    repaint();
    const area = seen(0), on = (value, length) => Math.min(Math.max(value * map.scale, 0), length);
    const left = on(area.left, map.width), top = on(area.top, map.height);
    window_.style.transform = `translate(${left}px, ${top}px)`;
    window_.style.width = `${on(area.right, map.width) - left}px`;
    window_.style.height = `${on(area.bottom, map.height) - top}px`;
  }

  function fit() {
    const area = picture.getBoundingClientRect();
    const wide = (area.width - 24) / root.width, high = (area.height - 24) / root.height;
    const whole = Math.min(wide, high);  // a long graph stays readable, and begins at its beginning
    view.scale = Math.min(1.2, Math.max(whole, sideways ? Math.min(high, 0.85) : Math.min(wide, 0.85)));
    const free = (size, length) => Math.max(12, (size - length * view.scale) / 2);
    view.x = sideways ? free(area.width, root.width) : (area.width - root.width * view.scale) / 2;
    view.y = sideways ? (area.height - root.height * view.scale) / 2 : free(area.height, root.height);
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
  picture.addEventListener("pointerdown", event => {
    drag = { x: event.clientX, y: event.clientY, moved: false };
  });
  window.addEventListener("pointermove", event => {
    if (!drag || !event.buttons) return;
    const dx = event.clientX - drag.x, dy = event.clientY - drag.y;
    if (!drag.moved && Math.hypot(dx, dy) < 4) return;
    if (!drag.moved) picture.classList.add("moving");
    drag = { x: event.clientX, y: event.clientY, moved: true };
    view.x += dx;
    view.y += dy;
    move();
  });
  window.addEventListener("pointerup", () => picture.classList.remove("moving"));
  picture.addEventListener("click", event => {
    const group = event.target.closest(".part");
    if (!group || (drag && drag.moved)) return;  // a click that ends a drag is none
    const number = Number(group.dataset.part), part = parts[number];
    if (part.open) {
      choose(number, true);
      if (event.target.closest(".handle")) setOpen(number, false);
      return;
    }
    choose(number, true);
    if (part.can_open) setOpen(number, true);
  });
  picture.addEventListener("wheel", event => {
    event.preventDefault();
    const area = picture.getBoundingClientRect();
    zoom(Math.exp(-event.deltaY / 400), event.clientX - area.left, event.clientY - area.top);
  }, { passive: false });
  const middle = factor => {
    const area = picture.getBoundingClientRect();
    zoom(factor, area.width / 2, area.height / 2);
  };
  const buttons = { fit, in: () => middle(1.3), out: () => middle(1 / 1.3), "open-all": () => setAll(true),
    "close-all": () => setAll(false), turn, "save-svg": saveSvg, "save-png": savePng };
  for (const name in buttons) document.getElementById(name).addEventListener("click", buttons[name]);
  window.addEventListener("hashchange", follow);
  window.addEventListener("beforeprint", () => {  // what is printed is the whole
    paint(null);
    canvas.setAttribute("viewBox", `0 0 ${root.width} ${root.height}`);
    canvas.style.transform = "";
  });
  window.addEventListener("afterprint", () => {
    canvas.removeAttribute("viewBox");
    painted = null;
    move();
  });

  function turn() {
    sideways = !sideways;
    draw();
    fit();
  }

  // -- files ------------------------------------------------------------------------------------
  // What is open, as SVG that stands on its own.
  function svgText() {
    paint(null);
    const copy = canvas.cloneNode(true), { width, height } = root;
    painted = null;
    repaint();
    for (const group of copy.querySelectorAll(".chosen, .found, .near")) {
      group.classList.remove("chosen", "found", "near");
    }
    copy.removeAttribute("style");
    copy.removeAttribute("aria-hidden");
    copy.setAttribute("role", "img");
    copy.setAttribute("aria-label", document.title);
    copy.setAttribute("viewBox", `0 0 ${width} ${height}`);
    const page = element("rect", { class: "page", width, height });
    const style = element("style", {}, null, document.getElementById("picture-style").textContent);
    copy.prepend(style, page);
    return new XMLSerializer().serializeToString(copy);
  }

  function save(blob, ending) {
    const link = document.createElement("a");
    link.download = `${document.title}.${ending}`;
    link.href = URL.createObjectURL(blob);
    link.click();
    setTimeout(() => URL.revokeObjectURL(link.href), 10000);
  }

  function saveSvg() {
    save(new Blob([svgText()], { type: "image/svg+xml" }), "svg");
  }

  function savePng() {
    const image = new Image(), scale = Math.min(2, MOST_PIXELS / root.width, MOST_PIXELS / root.height);
    image.onload = () => {
      const area = document.createElement("canvas");
      area.width = root.width * scale;
      area.height = root.height * scale;
      area.getContext("2d").drawImage(image, 0, 0, area.width, area.height);
      area.toBlob(blob => save(blob, "png"));
    };
    image.src = `data:image/svg+xml;charset=utf-8,${encodeURIComponent(svgText())}`;
  }

  return { load, redraw: draw, show };
};
