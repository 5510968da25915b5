/* Lengths in every form: typed, pasted, of a file, or packed in the data of the book.
 *
 * A file has one length a line, CSV with a prompt and an output column, or Mooncake's JSON lines.
 * Any other is refused with one line: the command line reads more. A name or a value is only ever
 * text.
 */
"use strict";
/**
 * @typedef {{name: string, format: string, prompt: bigint[], output: bigint[], failed: number}} Read
 */
/** @typedef {{prompt: string, output: string, zero_output_failed: boolean}} Columns */
(function (kv) {
  const { INT64_MAX, LedgerError } = kv;
  const LARGEST_FILE = 128 * 2 ** 20;
  const ACCEPTED =
    "accepted here: one length a line, CSV with a prompt and an output column, or Mooncake's JSON " +
    "lines; kvledger report reads traces of other forms";
  const WHOLE = /^[+-]?\d+(\.0*)?$/;
  // A first line such as 1O24 or nan is a length gone wrong, not the name of a column.
  const A_NAME = /^(?!(nan|na|n\/a|none|null|inf|infinity|true|false)$)\p{L}[^,"[\]{}]*$/iu;

  /** Those of every trace that the package reads as a table. */
  const knownColumns = () => globalThis.kvledgerExplorerData.columns;

  const refuse = (where, what) => {
    throw new LedgerError(`${where}: ${what}; ${ACCEPTED}`);
  };

  /** A value as these errors name it. */
  const seen = (value) => kv.cut(kv.printed(value));

  // ---------------------------------------------------------------- typed

  /**
   * Whether a text is a trace rather than numbers: JSON, or a first line that names a known column.
   * @param {string} text
   */
  function looksLikeTrace(text) {
    if (/^\s*[[{]/.test(text)) return true;
    const names = csvFields(text.trim().split("\n", 1)[0]) || [];
    return knownColumns().some(({ prompt, output }) =>
      names.some((name) => name === prompt || name === output),
    );
  }

  /** What stands between spaces, commas, semicolons or lines. */
  function words(text) {
    const ended = text.trim();
    const trimmed = /[,;]$/.test(ended) ? ended.slice(0, -1).trimEnd() : ended;
    return trimmed ? trimmed.split(/\s*[,;]\s*|\s+/) : [];
  }

  /** @param {string} text @returns {Value[]} */
  const typedNumbers = (text) => words(text).map(kv.literal);

  /**
   * As typedNumbers, with a Number for each length that is exactly one.
   * @param {string} text @returns {Value[]}
   */
  const typedLengths = (text) =>
    words(text).map((word) => (/^[1-9]\d{0,14}$/.test(word) ? Number(word) : kv.literal(word)));

  // ---------------------------------------------------------------- files

  /** The text of a file, which must be UTF-8. @param {ArrayBuffer} buffer @param {string} name */
  function decode(buffer, name) {
    try {
      const text = new TextDecoder("utf-8", { fatal: true }).decode(buffer);
      if (!text.includes("\0")) return text;
    } catch {
      // As with a zero byte: not a text.
    }
    return refuse(name, "the file is no text in UTF-8");
  }

  /** Read a trace. @param {string} text @param {string} name what errors call it @returns {Read} */
  function readTrace(text, name) {
    const lines = text.split("\n").map((line) => line.trim());
    const first = lines.findIndex((line) => line);
    if (first < 0) return refuse(name, "the file is empty");
    const read = { name, format: "", prompt: [], output: [], failed: 0 };
    const where = `${name}, line ${first + 1}`;
    const start = reader(lines[first], where);
    read.format = start.format;
    for (let i = first + start.header; i < lines.length; i += 1) {
      if (!lines[i]) continue;
      const tokens = start.tokensOf(lines[i], `${name}, line ${i + 1}`);
      if (!tokens) read.failed += 1;
      else {
        read.prompt.push(tokens[0]);
        read.output.push(tokens[1]);
      }
    }
    if (!read.prompt.length) refuse(name, "no request that can be used");
    return read;
  }

  /** How the lines of a file are read, found from its first one. */
  function reader(line, where) {
    if (line.startsWith("{")) return { format: "JSON lines", header: 0, tokensOf: tokensOfJson };
    if (WHOLE.test(line)) return { format: "lengths", header: 0, tokensOf: tokensOfLength };
    const names = csvFields(line) || [];
    const columns = knownColumns().find(
      ({ prompt, output }) => names.includes(prompt) && names.includes(output),
    );
    if (columns) return { format: "CSV", header: 1, tokensOf: tableReader(names, columns) };
    if (!A_NAME.test(line)) refuse(where, `${seen(line)} begins no trace`);
    return { format: "lengths", header: 1, tokensOf: tokensOfLength };
  }

  const tokensOfLength = (line, where) => [whole(line, `${where}: the length`, 1n), 0n];

  function tableReader(names, { prompt, output, zero_output_failed }) {
    const [before, after] = [names.indexOf(prompt), names.indexOf(output)];
    return (line, where) => {
      const fields = csvFields(line);
      if (!fields) return refuse(where, `${seen(line)} is not CSV`);
      if (fields.length !== names.length) {
        return refuse(where, `${fields.length} fields, where the header has ${names.length}`);
      }
      const made = whole(fields[after], `${where}: ${output}`, 0n);
      if (zero_output_failed && !made) return null;
      return [whole(fields[before], `${where}: ${prompt}`, 1n), made];
    };
  }

  function tokensOfJson(line, where) {
    let fields;
    try {
      fields = JSON.parse(line);
    } catch {
      return refuse(where, "JSON cut short or malformed");
    }
    return ["input_length", "output_length"].map((key, i) => {
      if (!Object.hasOwn(fields ?? {}, key)) return refuse(where, `no ${key}`);
      // A larger number was rounded when it was parsed.
      const exact = Number.isSafeInteger(fields[key]);
      return whole(
        exact ? String(fields[key]) : JSON.stringify(fields[key]),
        `${where}: ${key}`,
        1n - BigInt(i),
      );
    });
  }

  function whole(text, name, least) {
    const number = WHOLE.test(text) && text.length < 100 ? kv.literal(text.split(".")[0]) : null;
    if (typeof number === "bigint" && number >= least && number <= INT64_MAX) return number;
    throw new LedgerError(
      `${name} is ${seen(text)}; accepted: a whole number from ${least} to ${INT64_MAX}`,
    );
  }

  /** The fields of a line of CSV, or null where it is none. */
  function csvFields(line) {
    if (!line.includes('"')) return line.split(",").map((field) => field.trim());
    const found = [...`,${line}`.matchAll(/,(?:"((?:[^"]|"")*)"|([^,"]*))/gy)];
    const read = found.reduce((sum, [all]) => sum + all.length, 0);
    if (read !== line.length + 1) return null;
    return found.map(([, quoted, plain]) => (quoted ?? plain).replace(/""/g, '"').trim());
  }

  // ---------------------------------------------------------------- lengths

  /** Lengths of a trace that was read. @param {Read} read @param {string} of "total" or "prompt" */
  function lengthsOf({ prompt, output }, of) {
    if (of === "prompt") return new kv.Lengths(prompt);
    const totals = prompt.map((tokens, i) => {
      if (tokens + output[i] <= INT64_MAX) return tokens + output[i];
      throw new LedgerError(
        `prompt_tokens[${i}] + output_tokens[${i}] = ${tokens} + ${output[i]} is beyond 64 bits; ` +
          `accepted: a total of at most ${INT64_MAX} tokens`,
      );
    });
    return new kv.Lengths(totals);
  }

  /**
   * The counts of a trace of the book: gaps between lengths and numbers of requests, in base 36.
   * @param {string} text such as "5.2 4": two requests of 5 tokens, one of 9
   */
  function unpack(text) {
    const counts = new Map();
    let tokens = 0;
    for (const item of text.split(" ")) {
      const [gap, many = "1"] = item.split(".");
      tokens += parseInt(gap, 36);
      counts.set(tokens, parseInt(many, 36));
    }
    return new kv.Lengths(null, counts);
  }

  Object.assign(kv, {
    LARGEST_FILE,
    decode,
    lengthsOf,
    looksLikeTrace,
    readTrace,
    typedLengths,
    typedNumbers,
    unpack,
  });
})(globalThis.kvledgerExplorer);
