/* Lengths in every form: typed, pasted, of a file, or packed in the data of the book. */
"use strict";
(function (kv) {
  const { INT64_MAX, LedgerError, formatList, readJson, readTable, requiredColumns } = kv;

  /**
   * Whether a text is a trace rather than numbers: JSON, or a first line that names a known column.
   * @param {string} text
   */
  function looksLikeTrace(text) {
    if (/^\s*[[{]/.test(text)) return true;
    const line = text.trim().split("\n", 1)[0];
    if (!/\p{L}/u.test(line)) return false;
    const names = line.split(",").map((name) => name.trim().replace(/^"|"$/g, ""));
    /** @type {Columns[]} */
    const tables = Object.values(globalThis.kvledgerExplorerData.tables);
    return tables.some((table) =>
      requiredColumns(table).some((/** @type {string} */ column) => names.includes(column)),
    );
  }

  /**
   * What stands between spaces, commas, semicolons or lines.
   * @param {string} text @returns {string[]}
   */
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

  /**
   * Read a trace: a table, JSON, or plain lengths.
   * @param {string} text @param {string} name what errors call it @returns {Read}
   */
  function readTrace(text, name) {
    if (!kv.stripped(text))
      throw new LedgerError(`${name}: the file is empty; accepted:\n${formatList()}`);
    return /^[\t-\r ]*[[{]/.test(text) ? readJson(text, name) : readTable(text, name);
  }

  /** Lengths of a trace that was read. @param {Read} read @param {string} of "total" or "prompt" */
  function lengthsOf(read, of) {
    const tokens =
      of === "prompt"
        ? read.prompt
        : read.prompt.map((prompt, i) => {
            if (prompt + read.output[i] <= INT64_MAX) return prompt + read.output[i];
            throw new LedgerError(
              `prompt_tokens[${i}] + output_tokens[${i}] = ${prompt} + ${read.output[i]} is beyond 64 bits; ` +
                `accepted: a total of at most ${INT64_MAX} tokens`,
            );
          });
    return new kv.Lengths(tokens);
  }

  /**
   * The counts of a trace of the book: gaps between lengths and numbers of requests, in base 36.
   * @param {string} text such as "5.2 4": two requests of 5 tokens, one of 9
   */
  function unpack(text) {
    /** @type {Map<number|bigint, number>} */
    const counts = new Map();
    let tokens = 0;
    for (const item of text.split(" ")) {
      const [gap, many = "1"] = item.split(".");
      tokens += parseInt(gap, 36);
      counts.set(tokens, parseInt(many, 36));
    }
    return new kv.Lengths(null, counts);
  }

  Object.assign(kv, { lengthsOf, looksLikeTrace, readTrace, typedLengths, typedNumbers, unpack });
})(globalThis.kvledgerExplorer);
