/* What the page is made of: elements, numbers as text, and tables.
 * Every text is set as text, so that no name is ever read as markup.
 */
"use strict";
/** @typedef {{[name: string]: string|number}} Attributes */
(function (kv) {
  const SVG = "http://www.w3.org/2000/svg";

  /**
   * An element with attributes and children; a child that is a text becomes text.
   * @param {string|null} space @param {string} name @param {Attributes} attributes @param {(Node|string)[]} children
   */
  function element(space, name, attributes, children) {
    const made = space ? document.createElementNS(space, name) : document.createElement(name);
    for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, String(value));
    made.append(...children);
    return made;
  }

  /** @param {string} name @param {Attributes} [attributes] @param {...(Node|string)} children */
  const html = (name, attributes = {}, ...children) => element(null, name, attributes, children);

  /** @param {string} name @param {Attributes} [attributes] @param {...(Node|string)} children */
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

  /** @param {Fraction} f */
  const toNumber = (f) => Number(f.n) / Number(f.d);

  /** Powers of two from 1024 on by their binary prefix. @param {number} n */
  function binaryText(n) {
    if (n >= 2 ** 20 && n % 2 ** 20 === 0) return `${n / 2 ** 20}Mi`;
    if (n >= 1024 && n % 1024 === 0) return `${n / 1024}Ki`;
    return String(n);
  }

  /**
   * What the colours of a drawing mean, with counts.
   * @param {{part: string, words: string}[]} items
   */
  function key(items) {
    return html(
      "ul",
      { class: "kvx-key" },
      ...items.map(({ part, words }) =>
        html("li", {}, html("span", { class: `kvx-swatch kvx-swatch-${part}` }), words),
      ),
    );
  }

  /** A name that may go on in a new line after each underscore. @param {string} name */
  const breakable = (name) =>
    name.split("_").flatMap((part, i) => (i ? ["_", html("wbr"), part] : [part]));

  /**
   * A table whose first column heads the rows; a cell of two texts has the second in small.
   * @param {string} caption @param {string[]} head @param {(string|string[])[][]} rows
   * @param {{code?: boolean}} [look] code: the first column holds names
   */
  function table(caption, head, rows, look = {}) {
    const cell = (/** @type {string|string[]} */ content) =>
      Array.isArray(content)
        ? [content[0], ...(content[1] ? [html("small", {}, content[1])] : [])]
        : [content];
    const first = (/** @type {string|string[]} */ content) =>
      look.code ? [html("code", {}, ...breakable(String(content)))] : cell(content);
    const made = html(
      "table",
      {},
      html("caption", {}, caption),
      html(
        "thead",
        {},
        html(
          "tr",
          {},
          ...head.map((words, i) =>
            html("th", { scope: "col", class: i ? "kv-num" : look.code ? "" : "kv-num" }, words),
          ),
        ),
      ),
      html(
        "tbody",
        {},
        ...rows.map((row) =>
          html(
            "tr",
            {},
            ...row.map((content, i) =>
              i
                ? html("td", { class: "kv-num" }, ...cell(content))
                : html("th", { scope: "row", class: look.code ? "" : "kv-num" }, ...first(content)),
            ),
          ),
        ),
      ),
    );
    return html(
      "div",
      { class: "kv-table kvx-table", role: "region", tabindex: 0, "aria-label": caption },
      made,
    );
  }

  Object.assign(kv, {
    binaryText,
    decimalText,
    exactText,
    grouped,
    html,
    iecText,
    key,
    percentText,
    svg,
    table,
    toNumber,
  });
})(globalThis.kvledgerExplorer);
