// Layered layout of nested boxes: layout.py in JavaScript, step for step, so that a page can open
// and close boxes. A test compares the positions of both.
//
// In: a root box {children, width, height, titleWidth} and edges, pairs of leaves, all forward in
// the order of the tree. Out: x and y of all boxes, and `lines` in each box.
"use strict";

const fxLayout = (() => {
  const PAD = 14, TITLE = 24, SPACE = 18, GAP = 26, TIP = 6, SWEEPS = 12;

  function layout(root, edges, sideways = false) {
    const ways = new Map(), order = [], stack = [[root]];
    while (stack.length) {
      const way = stack.pop(), box = way[way.length - 1];
      if (box.children.length) {
        order.push(box);
        for (const child of box.children) stack.push([...way, child]);
      } else {
        ways.set(box, way);
        if (sideways) turn(box);
      }
    }
    const inner = new Map(order.map(box => [box, new Edges()]));
    for (const [source, target] of edges) {
      const a = ways.get(source), b = ways.get(target);
      let common = 0;
      while (a[common] === b[common]) common++;
      for (let i = common; i + 1 < a.length; i++) inner.get(a[i]).add(a[i + 1], null, source);
      for (let i = common; i + 1 < b.length; i++) inner.get(b[i]).add(null, b[i + 1], source);
      inner.get(a[common - 1]).add(a[common], b[common], source);
    }
    for (const box of order.slice().reverse()) arrange(box, inner.get(box).list, box === root, sideways);
    root.x = root.y = 0;
    for (const box of order) {
      for (const child of box.children) { child.x += box.x; child.y += box.y; }
      for (const line of box.lines) {
        for (const key of ["x0", "x1"]) line[key] += box.x;
        for (const key of ["y0", "bend0", "bend1", "y1"]) line[key] += box.y;
      }
    }
    if (sideways) for (const box of [...order, ...ways.keys()]) turn(box);
  }

  function turn(box) {
    [box.width, box.height, box.x, box.y] = [box.height, box.width, box.y, box.x];
  }

  // Edges inside one box, each once: [child or null for its entry, child or null, value].
  class Edges {
    constructor() { this.list = []; this.known = new Map(); }
    add(source, target, value) {
      if (!this.known.has(source)) this.known.set(source, new Map());
      const targets = this.known.get(source);
      if (!targets.has(target)) targets.set(target, new Set());
      if (targets.get(target).has(value)) return;
      targets.get(target).add(value);
      this.list.push([source, target, value]);
    }
  }

  const slotFor = (value, box, more) =>
    ({ value, box, isEntry: false, isExit: false, layer: 0, x: 0, above: [], below: [], ...more });
  const width = slot => slot.box ? slot.box.width : 0;
  const isSource = slot => slot.box !== null && slot.above.length === 0;
  const entry = (box, value) => box.entries.has(value) ? box.entries.get(value) : box.width / 2;
  const exit = (box, value) => box.exits.has(value) ? box.exits.get(value) : box.width / 2;
  const top = (slot, value) => slot.x + (slot.box ? entry(slot.box, value) : 0);
  const bottom = (slot, value) => slot.x + (slot.box ? exit(slot.box, value) : 0);

  function arrange(box, edges, isRoot, sideways) {
    const layers = layersOf(box, edges);
    orderLayers(layers);
    place(layers);
    const slots = layers.flat();
    const entries = layers[0].filter(s => s.isEntry);
    const exits = layers[layers.length - 1].filter(s => s.isExit);
    const pad = isRoot ? 4 : PAD;
    const across = sideways ? 0 : box.titleWidth;
    let left = least(slots.map(s => s.x)) - (sideways && !isRoot ? TITLE : pad);
    if (entries.length && !sideways) left = Math.min(left, least(entries.map(s => s.x)) - across - PAD);
    const right = Math.max(most(slots.map(s => s.x + width(s))) + pad, left + across + PAD);
    for (const slot of slots) slot.x -= left;
    const strip = sideways ? 0 : TITLE;
    const start = entries.length ? 0 : isRoot || sideways ? pad : TITLE;
    const [tops, bottoms] = rows(layers, start, strip);
    const last = bottoms.length - 1;
    const missing = box.titleWidth + PAD - bottoms[last] - (exits.length ? 0 : pad);
    if (sideways && missing > 0) {
      bottoms[last] += missing;
      tops[last] += missing;
    }
    box.width = right - left;
    box.height = bottoms[last] + (exits.length ? 0 : pad);
    box.entries = new Map(entries.map(s => [s.value, s.x]));
    box.exits = new Map(exits.map(s => [s.value, s.x]));
    box.lines = [];
    for (const slot of slots) {
      if (!slot.box) continue;
      const middle = (tops[slot.layer] + bottoms[slot.layer]) / 2;
      slot.box.x = slot.x;
      slot.box.y = middle - slot.box.height / 2;
    }
    for (const slot of slots) for (const [above, value] of slot.above) {
      const from = bottom(above, value), isLeaf = slot.box && !slot.box.children.length;
      let end = top(slot, value);
      if (isLeaf && slot.above.length > 1) {
        const reach = width(slot) * 0.3;
        end = Math.min(Math.max(from, end - reach), end + reach);
      }
      box.lines.push({
        value, x0: from, y0: above.box ? above.box.y + above.box.height : (above.isEntry ? tops : bottoms)[above.layer],
        bend0: bottoms[above.layer], x1: end, bend1: tops[slot.layer] - (isLeaf ? TIP : 0),
        y1: slot.box ? slot.box.y : bottoms[slot.layer], ends: Boolean(isLeaf),
      });
    }
  }

  function rows(layers, start, strip) {
    const tops = [], bottoms = [];
    for (const layer of layers) {
      const far = most([0, ...layer.flatMap(s => s.above.map(
        ([u, v]) => Math.abs(bottom(u, v) - top(s, v))))]);
      let gap = tops.length ? GAP : start;
      if (layer[0].isExit || (layers[0][0].isEntry && tops.length === 1)) gap = PAD;
      const last = bottoms.length ? bottoms[bottoms.length - 1] : 0;
      tops.push(last + gap + (tops.length ? Math.min(far / 6, GAP) : 0));
      const height = layer[0].isEntry ? strip : most([0, ...layer.map(s => s.box ? s.box.height : 0)]);
      bottoms.push(tops[tops.length - 1] + height);
    }
    return [tops, bottoms];
  }

  function layersOf(box, edges) {
    const children = new Map(box.children.map(child => [child, slotFor(child, child)]));
    const entries = new Map(), exits = new Map(), reads = new Map(), readers = new Map();
    for (const [source, target, value] of edges) {
      if (source === null && !entries.has(value)) {
        entries.set(value, slotFor(value, null, { isEntry: true }));
      }
      if (target === null && !exits.has(value)) {
        exits.set(value, slotFor(value, null, { isExit: true }));
      }
    }
    const joined = edges.map(([source, target, value]) => {
      const upper = source === null ? entries.get(value) : children.get(source);
      const lower = target === null ? exits.get(value) : children.get(target);
      push(reads, lower, upper);
      push(readers, upper, lower);
      return [upper, lower, value];
    });
    const first = entries.size ? 1 : 0;
    for (const slot of children.values()) {
      const above = reads.get(slot);
      slot.layer = above ? most(above.map(u => u.layer + 1)) : first;
    }
    const lowest = most([...children.values()].map(s => s.layer));
    for (const slot of exits.values()) slot.layer = lowest + 1;
    for (const slot of [...children.values()].reverse()) {
      if (!reads.has(slot) && readers.has(slot)) {
        slot.layer = least(readers.get(slot).map(r => r.layer)) - 1;
      }
    }
    const slots = [...entries.values(), ...children.values(), ...exits.values()];
    const used = [...new Set(slots.map(s => s.layer))].sort((a, b) => a - b);
    const number = new Map(used.map((old, index) => [old, index]));
    const layers = used.map(() => []);
    for (const slot of slots) {
      slot.layer = number.get(slot.layer);
      layers[slot.layer].push(slot);
    }
    const bends = new Map();
    for (const [upper, lower, value] of joined) {
      let last = upper;
      for (let layer = upper.layer + 1; layer < lower.layer; layer++) {
        if (!bends.has(upper)) bends.set(upper, new Map());
        if (!bends.get(upper).has(value)) bends.get(upper).set(value, new Map());
        const own = bends.get(upper).get(value);
        let bend = own.get(layer);
        if (!bend) {
          own.set(layer, bend = slotFor(value, null, { layer }));
          layers[layer].push(bend);
          join(last, bend, value);
        }
        last = bend;
      }
      join(last, lower, value);
    }
    for (const row of layers) row.sort((a, b) => Number(isSource(a)) - Number(isSource(b)));
    return layers;
  }

  function push(lists, key, item) {
    if (!lists.has(key)) lists.set(key, []);
    lists.get(key).push(item);
  }

  function join(upper, lower, value) {
    upper.below.push([lower, value]);
    lower.above.push([upper, value]);
  }

  function orderLayers(layers) {
    let best = layers.map(layer => layer.slice()), fewest = crossings(layers);
    for (let sweep = 0; sweep < SWEEPS && fewest; sweep++) {
      const down = sweep % 2 === 0, walk = down ? layers : layers.slice().reverse();
      for (let i = 0; i + 1 < walk.length; i++) {
        const upper = walk[i], lower = walk[i + 1];
        const rank = new Map(upper.map((slot, place) => [slot, place]));
        const scale = upper.length / lower.length;
        const centre = new Map(lower.map((slot, own) => {
          const near = (down ? slot.above : slot.below).map(([n]) => rank.get(n));
          return [slot, near.length ? near.reduce((a, b) => a + b, 0) / near.length : own * scale];
        }));
        lower.sort((a, b) => centre.get(a) - centre.get(b));
      }
      const count = crossings(layers);
      if (count < fewest) {
        best = layers.map(layer => layer.slice());
        fewest = count;
      }
    }
    best.forEach((layer, index) => { layers[index] = layer; });
  }

  function crossings(layers) {
    let count = 0;
    for (let i = 0; i + 1 < layers.length; i++) {
      const rank = new Map(layers[i + 1].map((slot, place) => [slot, place])), seen = [];
      for (const slot of layers[i]) {
        const targets = slot.below.map(([n]) => rank.get(n)).sort((a, b) => a - b);
        for (const target of targets) count += seen.length - after(seen, target);
        for (const target of targets) seen.splice(after(seen, target), 0, target);
      }
    }
    return count;
  }

  // Where a number goes into a sorted list, behind equal ones.
  function after(sorted, value) {
    let low = 0, high = sorted.length;
    while (low < high) {
      const middle = (low + high) >> 1;
      if (value < sorted[middle]) high = middle; else low = middle + 1;
    }
    return low;
  }

  function place(layers) {
    for (const layer of layers) {
      let x = 0;
      for (const slot of layer) {
        slot.x = x;
        x += width(slot) + SPACE;
      }
    }
    for (let sweep = 0; sweep <= SWEEPS; sweep++) {
      const up = sweep % 2 === 0;
      for (const layer of up ? layers.slice().reverse() : layers) {
        settle(layer, layer.map(slot => wish(slot, up, sweep === SWEEPS)));
      }
    }
  }

  function wish(slot, up, last) {
    if (last && (slot.box || !slot.below.length || slot.below.some(([s]) => s.box || s.isExit))) {
      return [slot.x, slot.box ? 1e6 : 1e-4];
    }
    let total = 0, weight = 0;
    for (const [other, value] of up ? slot.below : slot.above) {
      const here = up ? bottom(slot, value) : top(slot, value);
      const there = up ? top(other, value) : bottom(other, value);
      const share = isSource(other) ? 1e-6 : other.box || other.isEntry ? 1 : 1e-4;
      total += share * (there - (here - slot.x));
      weight += share;
    }
    if (weight === 0) return [slot.x, 1e-6];
    return [total / weight, slot.box ? weight : weight * 1e-4];
  }

  function settle(layer, wanted) {
    const blocks = [];
    let offset = 0;
    layer.forEach((slot, index) => {
      const [x, weight] = wanted[index];
      let block = [weight * (x - offset), weight, [offset]];
      while (blocks.length) {
        const [total, sum, offsets] = blocks[blocks.length - 1];
        if (total / sum < block[0] / block[1]) break;
        blocks.pop();
        block = [total + block[0], sum + block[1], [...offsets, ...block[2]]];
      }
      blocks.push(block);
      offset += width(slot) + SPACE;
    });
    let next = 0;
    for (const [total, weight, offsets] of blocks) {
      for (const own of offsets) layer[next++].x = total / weight + own;
    }
  }

  const most = numbers => numbers.reduce((a, b) => Math.max(a, b), -Infinity);
  const least = numbers => numbers.reduce((a, b) => Math.min(a, b), Infinity);

  return layout;
})();
