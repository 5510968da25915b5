/* What the readers of files share: the formats, the words of their errors, and bytes as text.
 *
 * The formats are those of kvledger.formats, told apart by the same rules and refused in the same
 * words. A name or a value is only ever text.
 */
"use strict";
/**
 * @typedef {{name: string, format: string, prompt: bigint[], output: bigint[], skipped: any}} Read
 */
(function (kv) {
  const { INT64_MAX, LedgerError } = kv;
  const LARGEST_FILE = 128 * 2 ** 20;
  /** What a file that is no text begins with. */
  const NO_TEXT = [
    { holds: "gzip data", magic: [0x1f, 0x8b] },
    { holds: "bzip2 data", magic: [0x42, 0x5a, 0x68] },
    { holds: "xz data", magic: [0xfd, 0x37, 0x7a, 0x58, 0x5a, 0x00] },
    { holds: "zstd data", magic: [0x28, 0xb5, 0x2f, 0xfd] },
    { holds: "Parquet", magic: [0x50, 0x41, 0x52, 0x31] },
  ];
  // What Python takes for space: JavaScript's own idea of it differs in some letters.
  const SPACE = /[\t-\r\x1c-\x20\x85\xa0\u1680\u2000-\u200a\u2028\u2029\u202f\u205f\u3000]/;

  /** @returns {{[name: string]: string}} what each format holds, by its name */
  const formats = () => globalThis.kvledgerExplorerData.formats;
  /** @returns {string} one line for each format */
  const formatList = () => globalThis.kvledgerExplorerData.format_list;
  /** @param {number|bigint} minimum */
  const acceptedWhole = (minimum) => `accepted: a whole number from ${minimum} to ${INT64_MAX}`;

  /** A text without the space at its ends. @param {string} text */
  function stripped(text) {
    let [from, to] = [0, text.length];
    while (from < to && SPACE.test(text[from])) from += 1;
    while (to > from && SPACE.test(text[to - 1])) to -= 1;
    return text.slice(from, to);
  }

  /** Rows that are not in a trace, counted by the reason. */
  class Skipped {
    constructor() {
      /** @type {Map<string, number>} */
      this.reasons = new Map();
      this.rows = 0;
      this.failed = 0;
    }

    /** @param {string} reason @param {boolean} failed whether the source says that it failed */
    add(reason, failed) {
      this.reasons.set(reason, (this.reasons.get(reason) || 0) + 1);
      this.rows += 1;
      this.failed += Number(failed);
    }

    toString() {
      const unusable = this.rows - this.failed;
      const what = this.failed ? [counted(this.failed, "failed request")] : [];
      if (unusable) what.push(counted(unusable, "unusable row"));
      const reasons = Array.from(this.reasons, ([why, rows]) => `${kv.grouped(rows)} ${why}`);
      return `${what.join(" and ")} left out (${reasons.join(", ")})`;
    }
  }

  /** @param {number} n @param {string} what */
  const counted = (n, what) => `${kv.grouped(n)} ${what}${n === 1 ? "" : "s"}`;

  /**
   * A trace that was read, or an error if there is no request in it.
   * @param {Read} read @param {string} nothing what it is where not even a row was left out
   */
  function wholeTrace(read, nothing) {
    if (read.prompt.length) return read;
    const { skipped } = read;
    if (!skipped.rows) throw new LedgerError(`${read.name}: ${nothing}`);
    const reasons = [...skipped.reasons.keys()].join(", ");
    const count = kv.grouped(skipped.rows);
    const problem =
      skipped.failed === skipped.rows
        ? `no request that succeeded: ${count} of ${count} failed (${reasons})`
        : `no request that can be used: ${skipped}`;
    throw new LedgerError(`${read.name}: ${problem}; accepted: at least one`);
  }

  /**
   * The error of a file that changes its format midway.
   * @param {string} where @param {string} found @param {string} format
   */
  const mixed = (where, found, format) =>
    new LedgerError(
      `${where}: ${found} in a file that began as ${format}; accepted: one format a file, and one header`,
    );

  /** A value as these errors name it. @param {Value} value */
  const seen = (value) => kv.cut(kv.printed(value));

  /**
   * The text of a file, checked to be UTF-8.
   * @param {ArrayBuffer} buffer @param {string} name
   */
  function decode(buffer, name) {
    const bytes = new Uint8Array(buffer);
    const [a, b] = bytes;
    const kind = NO_TEXT.find(({ magic }) => magic.every((byte, i) => bytes[i] === byte));
    if (kind) {
      throw new LedgerError(
        `${name}: ${kind.holds}; accepted here: plain text (the command line reads more)`,
      );
    }
    if ((a === 0xff && b === 0xfe) || (a === 0xfe && b === 0xff)) {
      throw new LedgerError(`${name}, line 1: the encoding is UTF-16; accepted: UTF-8`);
    }
    // Decoded without stops, so that what is wrong can be named: it became U+FFFD.
    const text = new TextDecoder().decode(bytes);
    const at = badByte(text, bytes);
    if (at === null) return text;
    const line = 1 + bytes.subarray(0, at).filter((byte) => byte === 10).length;
    const code = bytes[at].toString(16).toUpperCase().padStart(2, "0");
    throw new LedgerError(
      `${name}, line ${line}: byte 0x${code} is not text in UTF-8; accepted: UTF-8`,
    );
  }

  /** @param {string} text @param {Uint8Array} bytes @returns {number|null} */
  function badByte(text, bytes) {
    const zero = bytes.indexOf(0);
    if (zero >= 0) return zero;
    const encoder = new TextEncoder();
    const skipped = bytes[0] === 0xef && bytes[1] === 0xbb && bytes[2] === 0xbf ? 3 : 0;
    for (let i = text.indexOf("\ufffd"); i >= 0; i = text.indexOf("\ufffd", i + 1)) {
      const at = skipped + encoder.encode(text.slice(0, i)).length;
      const meant = bytes[at] === 0xef && bytes[at + 1] === 0xbf && bytes[at + 2] === 0xbd;
      if (!meant) return at;
    }
    return null;
  }

  Object.assign(kv, {
    LARGEST_FILE,
    Skipped,
    acceptedWhole,
    decode,
    formatList,
    formats,
    mixed,
    seen,
    stripped,
    wholeTrace,
  });
})(globalThis.kvledgerExplorer);
