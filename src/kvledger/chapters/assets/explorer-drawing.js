/* What the page is made of: elements, numbers as text, tables and drawings.
 *
 * Every text is set as text, so that no name is ever read as markup. What is drawn is also said: in
 * words, in a list or in a table.
 */
"use strict";
/** @typedef {{[name: string]: string|number}} Attributes */
(function (kv) {
  const SVG = "http://www.w3.org/2000/svg";

  /** An element with attributes and children; a child that is a text becomes text. */
  function element(space, name, attributes, children) {
    const made = space ? document.createElementNS(space, name) : document.createElement(name);
    for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, String(value));
    made.append(...children);
    return made;
  }

  /** @param {string} name @param {Attributes} [attributes] @param {...(Node|string)} children */
  const html = (name, attributes = {}, ...children) => element(null, name, attributes, children);

  const svg = (name, attributes = {}, ...children) => element(SVG, name, attributes, children);

  /** @param {bigint|number} n */
  const grouped = (n) => n.toLocaleString("en-US");

  /** @param {Fraction} f */
  const exactText = (f) => (f.d === 1n ? grouped(f.n) : `${f.n}/${f.d}`);

  /**
   * A fraction as a decimal, rounded where it must be.
   * @param {Fraction} f @param {number} [most] places
   */
  function decimalText(f, most = 4) {
    if (f.d === 1n) return f.n < 10n ** 21n ? grouped(f.n) : Number(f.n).toPrecision(4);
    const value = Number(f.n) / Number(f.d);
    if (!(value >= 1)) return String(Number(value.toPrecision(4)));
    const places = value < 1000 ? most : 1;
    const unit = 10n ** BigInt(places);
    const scaled = (2n * unit * f.n + f.d) / (2n * f.d);
    const rest = String(scaled % unit)
      .padStart(places, "0")
      .replace(/0+$/, "");
    return grouped(scaled / unit) + (rest ? `.${rest}` : "");
  }

  /** @param {Fraction} f a share */
  function percentText(f) {
    const scaled = (20000n * f.n + f.d) / (2n * f.d);
    return `${scaled / 100n}.${String(scaled % 100n).padStart(2, "0")}%`;
  }

  /** @param {bigint} bytes */
  function iecText(bytes) {
    const units = ["B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB"];
    let power = 0;
    while (power < units.length - 1 && bytes >= 1024n ** BigInt(power + 1)) power += 1;
    const scaled = (bytes * 100n) / 1024n ** BigInt(power);
    return `${grouped(scaled / 100n)}.${String(scaled % 100n).padStart(2, "0")} ${units[power]}`.replace(
      ".00 B",
      " B",
    );
  }

  const toNumber = (f) => Number(f.n) / Number(f.d);

  /** Powers of two from 1024 on by their binary prefix. */
  function binaryText(n) {
    if (n >= 2 ** 20 && n % 2 ** 20 === 0) return `${n / 2 ** 20}Mi`;
    if (n >= 1024 && n % 1024 === 0) return `${n / 1024}Ki`;
    return String(n);
  }

  /**
   * What the colours of a drawing mean, with counts.
   * @param {string[][]} items parts with words
   */
  function key(items) {
    return html(
      "ul",
      { class: "kvx-key" },
      ...items.map(([part, words]) =>
        html("li", {}, html("span", { class: `kvx-swatch kvx-swatch-${part}` }), words),
      ),
    );
  }

  /** A name that may go on in a new line after each underscore. */
  const breakable = (name) =>
    name.split("_").flatMap((part, i) => (i ? ["_", html("wbr"), part] : [part]));

  /**
   * A table whose first column heads the rows; a cell of two texts has the second in small.
   * @param {string} caption @param {string[]} head @param {(string|string[])[][]} rows
   * @param {{code?: boolean}} [look] code: the first column holds names
   */
  function table(caption, head, rows, look = {}) {
    const cell = (content) =>
      Array.isArray(content)
        ? [content[0], ...(content[1] ? [html("small", {}, content[1])] : [])]
        : [content];
    const first = (content) =>
      look.code ? [html("code", {}, ...breakable(String(content)))] : cell(content);
    const number = { class: "kv-num" };
    const names = look.code ? { class: "" } : number;
    const heads = head.map((words, i) =>
      html("th", { scope: "col", ...(i ? number : names) }, words),
    );
    const bodies = rows.map(([name, ...values]) =>
      html(
        "tr",
        {},
        html("th", { scope: "row", ...names }, ...first(name)),
        ...values.map((value) => html("td", number, ...cell(value))),
      ),
    );
    const made = html(
      "table",
      {},
      html("caption", {}, caption),
      html("thead", {}, html("tr", {}, ...heads)),
      html("tbody", {}, ...bodies),
    );
    const scrolls = { class: "kv-table kvx-table", role: "region", tabindex: 0 };
    return html("div", { ...scrolls, "aria-label": caption }, made);
  }

  // ---------------------------------------------------------------- drawings

  const PAGE_GAP = 0.25; // between pages, in slots
  let drawings = 0;

  function drawing(width, height, label, ...children) {
    const box = { width, height, viewBox: `0 0 ${width} ${height}`, class: "kvx-drawing" };
    return svg("svg", { ...box, role: "img", "aria-label": label }, ...children);
  }

  const text = (x, y, words, anchor = "start", look = "kvx-text") =>
    svg("text", { x, y, "text-anchor": anchor, class: look }, words);

  const line = (x1, y1, x2, y2, look) => svg("line", { x1, y1, x2, y2, class: look });

  /**
   * The slots of requests, part by part and in order, as squares are drawn.
   * @param {number[]} lengths @param {number[]} held slots of each @param {number} shared leading
   *   positions whose pages the first request holds @param {string} spare what a slot without a token is
   * @returns {string[][]}
   */
  function layOut(lengths, held, shared, spare) {
    return lengths.map((tokens, request) =>
      Array.from({ length: held[request] }, (_, slot) => {
        if (request && slot < shared) return "shared";
        return slot < tokens ? "used" : spare;
      }),
    );
  }

  /** A hatch, and the name to fill with it. */
  function hatch() {
    drawings += 1;
    const id = `kvx-hatch-${drawings}`;
    const pattern = svg(
      "pattern",
      { id, width: 5, height: 5, patternUnits: "userSpaceOnUse", patternTransform: "rotate(45)" },
      svg("rect", { width: 5, height: 5, class: "kvx-part-reserved" }),
      line(0, 0, 0, 5, "kvx-hatch-line"),
    );
    return { defs: svg("defs", {}, pattern), fill: `fill: url(#${id})` };
  }

  /** A frame to draw within, and the attribute that does so. */
  function frame(x1, y1, x2, y2) {
    drawings += 1;
    const id = `kvx-frame-${drawings}`;
    const box = svg("rect", { x: x1, y: y1, width: Math.max(x2 - x1, 0), height: y2 - y1 });
    return {
      defs: svg("defs", {}, svg("clipPath", { id }, box)),
      clip: { "clip-path": `url(#${id})` },
    };
  }

  /**
   * Squares, one a slot, one row a request.
   * @param {string[][]} rows @param {number[]} lengths @param {number} pageSize 0 where there are no pages
   * @param {number} widest slots and gaps of the widest row of all panels
   * @param {number} width @param {string} label
   */
  function squares(rows, lengths, pageSize, widest, width, label) {
    const left = 8 + 8 * Math.max(...lengths.map((n) => String(n).length));
    const side = Math.min(20, (width - left) / widest);
    const tall = Math.max(11, side * 0.9);
    const { defs, fill } = hatch();
    const shapes = rows.flatMap((parts, row) =>
      parts.map((part, slot) => {
        const gaps = pageSize ? Math.floor(slot / pageSize) * PAGE_GAP : 0;
        const inset = part === "shared" ? 0.09 * side : 0.04 * side;
        const box = {
          x: left + (slot + gaps) * side + inset,
          y: row * (tall + 5) + 1 + inset,
          rx: side * 0.12,
          width: Math.max(side * 0.9 - 2 * inset, 1),
          height: tall - 2 * inset,
          class: `kvx-part-${part}`,
        };
        return svg("rect", part === "reserved" ? { ...box, style: fill } : box);
      }),
    );
    const names = lengths.map((n, row) =>
      text(left - 6, row * (tall + 5) + tall / 2 + 4, String(n), "end"),
    );
    return drawing(width, rows.length * (tall + 5), label, defs, ...shapes, ...names);
  }

  /**
   * What is held in one bar, and on a line of its own what sharing spares.
   * @param {{part: string, slots: bigint}[]} parts @param {bigint} spared @param {bigint} widest
   * @param {number} width @param {string} label
   */
  function bar(parts, spared, widest, width, label) {
    const scale = (slots) => (Number(slots) / Number(widest || 1n)) * width;
    const { defs, fill } = hatch();
    let from = 0n;
    const shapes = parts.map(({ part, slots }) => {
      const look = { height: 22, class: `kvx-part-${part}` };
      const box = { x: scale(from), y: 0, width: scale(slots), ...look };
      from += slots;
      return svg("rect", part === "reserved" ? { ...box, style: fill } : box);
    });
    if (spared) shapes.push(line(scale(from), 27, scale(from + spared), 27, "kvx-spared"));
    return drawing(width, spared ? 30 : 24, label, defs, ...shapes);
  }

  const scaleLog = (x1, x2, from, to) => (value) =>
    x1 + ((Math.log(value) - Math.log(from)) / (Math.log(to) - Math.log(from) || 1)) * (x2 - x1);

  /** Powers of ten from a to b, few enough to be read. */
  function decades(a, b) {
    const [low, high] = [Math.ceil(Math.log10(a) - 1e-9), Math.floor(Math.log10(b) + 1e-9)];
    const step = Math.max(1, Math.ceil((high - low + 1) / 6));
    const powers = [];
    for (let power = low; power <= high; power += step) powers.push(10 ** power);
    return powers;
  }

  const compact = (value) =>
    value >= 1
      ? new Intl.NumberFormat("en", { notation: "compact" }).format(value)
      : String(Number(value.toPrecision(3)));

  /**
   * Cost beyond the tokens against page size, both on logarithmic axes: slack rises, metadata falls.
   * @param {Tested[]} tested
   * @param {{best: bigint, near: bigint[], chosen: bigint|null}} marks
   * @param {number} width @param {string} label
   */
  function curve(tested, marks, width, label) {
    const [left, right, top, bottom] = [46, width - 14, 22, 220];
    const points = tested.map((each) => {
      const [slack, metadata] = [Number(each.tail_slack_slots), toNumber(each.metadata)];
      return { size: Number(each.page_size), slack, metadata, total: slack + metadata };
    });
    const totals = points.map((point) => point.total).filter((total) => total > 0);
    const high = Math.max(...totals, 1) * 1.3;
    const low = Math.min(Math.max(Math.min(...totals, high) / 8, Number.MIN_VALUE), high / 10);
    const sizes = points.map((point) => point.size);
    const x = scaleLog(left + 10, right, sizes[0], sizes[sizes.length - 1]);
    const scale = scaleLog(bottom, top, low, high);
    const y = (value) => (value > low ? scale(value) : bottom);
    const shapes = decades(low, high).flatMap((value) => [
      line(left, y(value), right, y(value), "kvx-grid"),
      text(left - 6, y(value) + 4, compact(value), "end", "kvx-text kvx-tick"),
    ]);
    const apart = Math.ceil((36 * sizes.length) / (right - left));
    const best = points.findIndex(({ size }) => size === Number(marks.best));
    const ticks = points.filter((_, i) => i % apart === best % apart);
    for (const { size } of ticks) {
      const look = `kvx-text ${size === points[best].size ? "kvx-strong" : "kvx-tick"}`;
      shapes.push(text(x(size), bottom + 17, binaryText(size), "middle", look));
    }
    shapes.push(line(left, bottom, right, bottom, "kvx-axis"));
    shapes.push(text(right, bottom + 33, "page size, slots", "end", "kvx-text kvx-tick"));
    for (const size of marks.near.map(Number)) {
      shapes.push(line(x(size) - 6, bottom, x(size) + 6, bottom, "kvx-near"));
    }
    const chosen = marks.chosen === null ? 0 : Number(marks.chosen);
    if (chosen >= sizes[0] && chosen <= sizes[sizes.length - 1]) {
      shapes.push(line(x(chosen), top - 6, x(chosen), bottom, "kvx-chosen"));
    }
    const path = (name) => {
      const drawn = points.filter((point) => point[name] > 0 || name === "total");
      const places = drawn.map((point) => {
        const height = point[name] > 0 ? scale(point[name]) : bottom;
        return `${x(point.size).toFixed(1)} ${height.toFixed(1)}`;
      });
      return places.length ? `M${places.join("L")}` : "";
    };
    const { defs, clip } = frame(left, top - 8, right + 4, bottom);
    const lines = ["slack", "metadata", "total"].map((name) =>
      svg("path", { d: path(name), class: `kvx-line kvx-line-${name}` }),
    );
    shapes.push(defs, svg("g", clip, ...lines));
    const dots = points.map(({ size, total }, i) => {
      const look = i === best ? { r: 6, class: "kvx-best" } : { r: 3, class: "kvx-dot" };
      return svg("circle", { cx: x(size), cy: y(total), ...look });
    });
    shapes.push(...dots);
    return drawing(width, 262, label, ...shapes);
  }

  /**
   * Which page size is best along c, as one strip on a logarithmic axis.
   * @param {Interval[]} intervals
   * @param {Fraction|null} c @param {number} width @param {string} label
   */
  function strip(intervals, c, width, label) {
    const [left, right] = [1, width - 1];
    const corners = intervals.slice(1).map((interval) => toNumber(interval.c_from));
    const now = c === null ? 0 : toNumber(c);
    const inside = [...corners, ...(now > 0 && Number.isFinite(now) ? [now] : [])];
    const low = (inside.length ? Math.min(...inside) : 1) / 8;
    const high = (inside.length ? Math.max(...inside) : 1) * 8;
    const scale = scaleLog(left, right, low, high);
    const x = (value) => Math.min(Math.max(value > low ? scale(value) : left, left), right);
    const shapes = intervals.flatMap((interval, i) => {
      const [from, to] = [i ? x(corners[i - 1]) : left, i < corners.length ? x(corners[i]) : right];
      const after = c !== null && kv.compare(c, interval.c_from) >= 0;
      const here = after && (interval.c_to === null || kv.compare(c, interval.c_to) < 0);
      const words = binaryText(Number(interval.page_size));
      const wide = { x: from, y: 20, width: Math.max(to - from, 0.5), height: 30 };
      const box = svg("rect", { ...wide, class: here ? "kvx-interval kvx-here" : "kvx-interval" });
      if (to - from <= 8 * words.length + 2) return [box];
      const look = here ? "kvx-text kvx-strong kvx-on-part" : "kvx-text";
      return [box, text((from + to) / 2, 40, words, "middle", look)];
    });
    for (const value of decades(low, high)) {
      if (x(value) <= 12 || x(value) >= right - 12) continue;
      shapes.push(line(x(value), 50, x(value), 55, "kvx-axis"));
      shapes.push(text(x(value), 68, compact(value), "middle", "kvx-text kvx-tick"));
    }
    if (c !== null) {
      const at = x(now);
      const anchor = at < 60 ? "start" : at > width - 60 ? "end" : "middle";
      shapes.push(line(at, 14, at, 54, "kvx-now"));
      const words = `c = ${c.d < 10n ** 6n ? exactText(c) : decimalText(c)}`;
      shapes.push(text(at, 11, words, anchor, "kvx-text kvx-strong"));
    }
    return drawing(width, 74, label, ...shapes);
  }

  Object.assign(kv, {
    PAGE_GAP,
    bar,
    curve,
    decimalText,
    exactText,
    grouped,
    html,
    iecText,
    key,
    layOut,
    percentText,
    squares,
    strip,
    table,
  });
})(globalThis.kvledgerExplorer);
