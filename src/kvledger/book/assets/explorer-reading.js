/* Reading what a reader typed, pasted or chose: the formats of kvledger.formats, told apart by the
 * same rules and refused in the same words. A name or a value is only ever text.
 */
"use strict";
/** @typedef {{name: string, format: string, prompt: bigint[], output: bigint[], failed: number}} Read */
/**
 * The columns of one CSV format.
 * @typedef {{prompt: string, output: string|null, time: string|null, time_is_date: boolean,
 *            time_required: boolean, total: string|null, zero_output_failed: boolean}} Columns
 */
(function (kv) {
  const { INT64_MAX, LedgerError, cut, floatText, printed, whole } = kv;

  const LARGEST_FILE = 128 * 2 ** 20;
  const WHOLE = /^[+-]?\d+(\.0*)?$/;
  const NUMBER = /^\s*[+-]?(\d+\.?\d*|\.\d+)(e[+-]?\d+)?\s*$/i;
  const DATE = /^(\d{4}-\d\d-\d\d)[ T](\d\d:\d\d:\d\d)(?:\.(\d{1,9}))?(?:Z|([+-])(\d\d):?(\d\d))?$/;
  // A first line such as 1O24 or nan is a length gone wrong, not the name of a column.
  const A_NAME = /^\p{L}/u;
  const NO_NAMES = ["nan", "na", "n/a", "none", "null", "inf", "infinity", "true", "false"];
  /** @type {{[format: string]: bigint}} tokens that a hash id stands for */
  const RECORD_SIZES = { mooncake: 512n, qwen: 16n };

  const formats = () => globalThis.kvledgerExplorerData.formats;
  const formatList = () => Object.entries(formats()).map(([name, holds]) => `  ${name}: ${holds}`).join("\n");
  /** @param {number|bigint} minimum */
  const acceptedWhole = (minimum) => `accepted: a whole number from ${minimum} to ${INT64_MAX}`;
  /** @param {Value} value */
  const seen = (value) => cut(printed(value));

  // ---------------------------------------------------------------- typed lengths

  /** Whether a text is a file's content rather than a row of numbers. @param {string} text */
  function looksLikeFile(text) {
    const lines = text.trim().split("\n");
    return /^[[{]/.test(lines[0]) || (lines.length > 1 && /\p{L}/u.test(lines[0]));
  }

  /** Numbers between spaces, commas, semicolons or lines. @param {string} text @returns {Value[]} */
  function typedNumbers(text) {
    const trimmed = text.trim().replace(/\s*[,;]$/, "");
    if (!trimmed) return [];
    return trimmed.split(/\s*[,;]\s*|\s+/).map((word) => {
      const easy = /^[1-9]\d{0,14}$/.test(word);
      return easy ? Number(word) : kv.literal(word);
    });
  }

  // ---------------------------------------------------------------- bytes

  /**
   * The text of a file, checked to be UTF-8.
   * @param {ArrayBuffer} buffer @param {string} name
   */
  function decode(buffer, name) {
    const bytes = new Uint8Array(buffer);
    const [a, b] = bytes;
    if (a === 0x1f && b === 0x8b) {
      throw new LedgerError(`${name}: packed with gzip; accepted here: the unpacked file`);
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
    throw new LedgerError(`${name}, line ${line}: byte 0x${code} is not text in UTF-8; accepted: UTF-8`);
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

  // ---------------------------------------------------------------- which format

  /**
   * Read a trace: a table, JSON, or plain lengths.
   * @param {string} text @param {string} name what errors call it @returns {Read}
   */
  function readTrace(text, name) {
    if (!text.trim()) throw new LedgerError(`${name}: the file is empty; accepted:\n${formatList()}`);
    return /^\s*[[{]/.test(text) ? readJson(text, name) : readTable(text, name);
  }

  // ---------------------------------------------------------------- tables

  /** @param {string} text @param {string} name @returns {Read} */
  function readTable(text, name) {
    const lines = text.split("\n");
    let first = lines.findIndex((line) => line.trim());
    const head = lines[first].trim();
    const header = !NUMBER.test(head.split(",")[0]);
    let names = ["length"];
    if (header) {
      names = csvFields(head, name, first + 1).map((column) => column.trim());
      first += 1;
    }
    const at = header ? first : 1;
    const format = header ? tableFormat(names, name, at) : "lengths";
    if (format === "lengths" && names.length !== 1) {
      throw new LedgerError(
        `${name}, line ${at}: ${names.length} columns; accepted as lengths: ${formats().lengths}`,
      );
    }
    /** @type {Columns} */
    const table = globalThis.kvledgerExplorerData.tables[format] || { prompt: names[0], output: null };
    const missing = requiredColumns(table).find((column) => !names.includes(column));
    if (missing !== undefined) {
      throw new LedgerError(
        `${name}, line ${at}: column ${kv.quoted(missing)} is missing (found: ${names.join(", ")}); ` +
          `accepted as ${format}: ${formats()[format]}`,
      );
    }
    const rows = new Rows(name, table, names, header);
    for (let i = first; i < lines.length; i += 1) if (lines[i].trim()) rows.add(lines[i], i + 1);
    return rows.finish(format);
  }

  /** @param {Columns} table */
  function requiredColumns(table) {
    const time = table.time_required ? table.time : null;
    return [time, table.prompt, table.output].flatMap((column) => (column ? [column] : []));
  }

  /** @param {string[]} columns @param {string} name @param {number} line */
  function tableFormat(columns, name, line) {
    let [best, most] = ["", 0];
    for (const [format, table] of Object.entries(globalThis.kvledgerExplorerData.tables)) {
      const found = requiredColumns(table).filter((column) => columns.includes(column)).length;
      if (found > most) [best, most] = [format, found];
    }
    if (most) return best; // a missing column is reported against the format that is nearest
    const [only] = columns;
    if (columns.length === 1 && A_NAME.test(only) && !NO_NAMES.includes(only.toLowerCase())) return "lengths";
    throw new LedgerError(
      `${name}, line ${line}: no known trace has the columns ${columns.join(", ")}; accepted:\n${formatList()}`,
    );
  }

  /** The rows of one table, each checked before it is kept. */
  class Rows {
    /** @param {string} file @param {Columns} table @param {string[]} names @param {boolean} header */
    constructor(file, table, names, header) {
      this.file = file;
      this.table = table;
      this.names = names;
      this.header = header;
      /** @type {bigint[]} */
      this.prompt = [];
      /** @type {bigint[]} */
      this.output = [];
      this.failed = 0;
      /** @type {any} */
      this.last = null;
      /** @param {string|null} column */
      const place = (column) => (column ? names.indexOf(column) : -1);
      this.at = { prompt: place(table.prompt), output: place(table.output), time: place(table.time),
                  total: place(table.total) };
    }

    /** @param {string} text @param {number} line */
    add(text, line) {
      const fields = csvFields(text.replace(/\r+$/, ""), this.file, line);
      const n = this.names.length;
      if (fields.length !== n) {
        const columns = this.header ? this.names.join(",") : "one length";
        const short = fields.length < n ? " (is the line cut?)" : "";
        throw new LedgerError(
          `${this.file}, line ${line}: ${fields.length} fields in ${kv.quoted(text.trimEnd())}${short}; ` +
            `accepted: ${n} (${columns})`,
        );
      }
      const output = this.at.output < 0 ? 0n : this.whole(fields, this.at.output, line, 0n);
      const failed = this.table.zero_output_failed && output === 0n;
      const prompt = this.whole(fields, this.at.prompt, line, failed ? 0n : 1n);
      if (prompt + output > INT64_MAX) {
        this.fail(line, "the total", `${prompt} + ${output}`, `at most ${INT64_MAX} (64 bits)`);
      }
      if (this.at.total >= 0) {
        const total = this.whole(fields, this.at.total, line, 1n);
        if (total !== prompt + output) {
          this.fail(line, this.names[this.at.total], `${total}`,
                    `the sum of prompt and output, ${prompt} + ${output}`);
        }
      }
      if (this.at.time >= 0) this.time(fields[this.at.time].trim(), line);
      if (failed) this.failed += 1;
      else {
        this.prompt.push(prompt);
        this.output.push(output);
      }
    }

    /** @param {string[]} fields @param {number} at @param {number} line @param {bigint} minimum */
    whole(fields, at, line, minimum) {
      const text = fields[at].trim();
      if (WHOLE.test(text) && text.length < 100) {
        const number = /** @type {bigint} */ (kv.literal(text.split(".")[0]));
        if (number >= minimum && number <= INT64_MAX) return number;
      }
      return this.fail(line, this.names[at], text, `a whole number from ${minimum} to ${INT64_MAX}`);
    }

    /** A time is not used, but a row whose time is wrong is no good row. @param {string} text @param {number} line */
    time(text, line) {
      const time = this.table.time_is_date ? dateNanoseconds(text) : NUMBER.test(text) ? Number(text) : null;
      const name = this.names[this.at.time];
      if (time === null || time === Infinity || time === -Infinity) {
        this.fail(line, name, text, this.table.time_is_date
          ? "a date such as 2023-11-16 18:17:03.9799600" : "seconds, a finite number");
      }
      if (this.last !== null && time < this.last) {
        this.fail(line, name, text, "a time that is not before the line ahead of it");
      }
      this.last = time;
    }

    /** @param {number} line @param {string} field @param {string} value @param {string} accepted @returns {never} */
    fail(line, field, value, accepted) {
      const what = value ? `is ${seen(value)}` : "is missing";
      throw new LedgerError(`${this.file}, line ${line}: ${field} ${what}; accepted: ${accepted}`);
    }

    /** @param {string} format @returns {Read} */
    finish(format) {
      if (!this.prompt.length && !this.failed) {
        throw new LedgerError(
          `${this.file}: a header and no requests; accepted: at least one line after the header`,
        );
      }
      if (!this.prompt.length) {
        throw new LedgerError(
          `${this.file}: all ${this.failed} requests failed (${this.table.output} is 0); ` +
            "accepted: at least one that did not",
        );
      }
      return { name: this.file, format, prompt: this.prompt, output: this.output, failed: this.failed };
    }
  }

  /** One line of CSV. @param {string} line @param {string} file @param {number} number @returns {string[]} */
  function csvFields(line, file, number) {
    if (!line.includes('"')) return line.split(",");
    const fields = [];
    let i = 0;
    while (i <= line.length) {
      let field = "";
      if (line[i] === '"') {
        for (i += 1; ; i += 1) {
          if (i >= line.length) throw notCsv(file, number, "unexpected end of data");
          if (line[i] !== '"') field += line[i];
          else if (line[i + 1] === '"') {
            field += '"';
            i += 1;
          } else break;
        }
        i += 1;
        if (i < line.length && line[i] !== ",") throw notCsv(file, number, "',' expected after '\"'");
      } else {
        const end = line.indexOf(",", i);
        field = line.slice(i, end < 0 ? line.length : end);
        i = end < 0 ? line.length : end;
      }
      fields.push(field);
      i += 1;
    }
    return fields;
  }

  /** @param {string} file @param {number} line @param {string} why */
  const notCsv = (file, line, why) =>
    new LedgerError(`${file}, line ${line}: not CSV (${why}); accepted: CSV`);

  /** Nanoseconds since 1970, or null where a text is no date. @param {string} text */
  function dateNanoseconds(text) {
    const match = DATE.exec(text);
    if (!match) return null;
    const [, day, clock, fraction, sign, hours, minutes] = match;
    const moment = new Date(`${day}T${clock}Z`);
    if (Number.isNaN(+moment) || !moment.toISOString().startsWith(`${day}T${clock}`)) return null;
    if (sign && (Number(hours) > 23 || Number(minutes) > 59)) return null;
    const offset = sign ? (Number(hours) * 60 + Number(minutes)) * 60 * (sign === "-" ? -1 : 1) : 0;
    const seconds = BigInt(+moment / 1000 - offset);
    const nanoseconds = seconds * 10n ** 9n + BigInt((fraction || "").padEnd(9, "0"));
    return nanoseconds <= INT64_MAX && nanoseconds >= -INT64_MAX ? nanoseconds : null;
  }

  // ---------------------------------------------------------------- JSON

  /** JSON whose whole numbers are exact. @param {string} text @returns {Value} */
  function parse(text) {
    /** @type {any} its third parameter, the number as it is written, is newer than most type files */
    const reviver = (/** @type {string} */ _, /** @type {any} */ value, /** @type {any} */ context) => {
      if (typeof value !== "number") return value;
      if (context) return /[.e]/i.test(context.source) ? value : BigInt(context.source);
      if (!Number.isInteger(value)) return value;
      if (Number.isSafeInteger(value)) return BigInt(value);
      throw new LedgerError(`${value}: this browser cannot read a number so large in JSON exactly`);
    };
    return JSON.parse(text, reviver);
  }

  /** The value of a JSON text, or undefined where it is none. @param {string} text @returns {any} */
  function parsed(text) {
    try {
      return parse(text);
    } catch (error) {
      if (error instanceof LedgerError) throw error;
      return undefined;
    }
  }

  /** @param {Value} value */
  const isRecord = (value) => typeof value === "object" && value !== null && !Array.isArray(value);

  /** @param {string} text @param {string} name @returns {Read} */
  function readJson(text, name) {
    if (text.trimStart().startsWith("[")) return readArray(text, name);
    const rest = jsonRecords(text, name);
    const first = /** @type {{line: number, fields: any}} */ (rest.next().value);
    const format = recordFormat(first.fields, name, first.line);
    // One at a time, so that the first line with something wrong is the one that is named.
    const records = (function* () {
      yield new Record(name, first.line, first.fields, format);
      for (const { line, fields } of rest) yield new Record(name, line, fields, format);
    })();
    return format === "benchmark" ? readBenchmark(records, name) : readRecords(records, name, format);
  }

  /** @param {string} text @param {string} name */
  function* jsonRecords(text, name) {
    const accepted = "accepted: one complete JSON object a line";
    const lines = text.split("\n");
    let alone = true;
    for (let i = 0; i < lines.length; i += 1) {
      if (!lines[i].trim()) continue;
      let fields = parsed(lines[i]);
      if (fields === undefined && alone) {
        // One object over many lines, as a pretty-printed result file is.
        fields = parsed(text);
        if (isRecord(fields)) {
          yield { line: i + 1, fields };
          return;
        }
        fields = undefined;
      }
      if (fields === undefined) {
        throw new LedgerError(`${name}, line ${i + 1}: JSON cut short or malformed; ${accepted}`);
      }
      if (!isRecord(fields)) {
        throw new LedgerError(`${name}, line ${i + 1}: ${seen(fields)} is no object; ${accepted}`);
      }
      alone = false;
      yield { line: i + 1, fields };
    }
  }

  /** @param {any} fields @param {string} name @param {number} line */
  function recordFormat(fields, name, line) {
    /** @param {string[]} keys */
    const has = (...keys) => keys.some((key) => Object.hasOwn(fields, key));
    if (has("input_lens", "output_lens", "request_throughput")) return "benchmark";
    if (has("input_length", "output_length", "hash_ids")) {
      return has("chat_id", "parent_chat_id") ? "qwen" : "mooncake";
    }
    const hint = has("prompt", "conversations", "messages")
      ? " (prompts as text carry no token counts: tokenise them first)" : "";
    throw new LedgerError(
      `${name}, line ${line}: no known trace has the keys ${Object.keys(fields).join(", ")}${hint}; ` +
        `accepted:\n${formatList()}`,
    );
  }

  /** @param {string} text @param {string} name @returns {Read} */
  function readArray(text, name) {
    const values = parsed(text);
    if (values === undefined) {
      throw new LedgerError(`${name}: JSON cut short or malformed; accepted: ${formats().lengths}`);
    }
    if (!values.length) {
      throw new LedgerError(`${name}: an empty JSON array; accepted: at least one length`);
    }
    const prompt = values.map((/** @type {Value} */ value, /** @type {number} */ i) =>
      whole(value, `${name}, entry ${i}`, 1n, acceptedWhole(1)));
    return { name, format: "lengths", prompt, output: prompt.map(() => 0n), failed: 0 };
  }

  /** One JSON object and where it stands. */
  class Record {
    /** @param {string} file @param {number} line @param {{[key: string]: any}} fields @param {string} format */
    constructor(file, line, fields, format) {
      this.where = `${file}, line ${line}`;
      this.fields = fields;
      this.format = format;
    }

    /** @param {string} key @returns {Value} */
    get(key) {
      if (Object.hasOwn(this.fields, key)) return this.fields[key];
      throw new LedgerError(
        `${this.where}: key ${kv.quoted(key)} is missing (found: ${Object.keys(this.fields).join(", ") || "none"}); ` +
          `accepted as ${this.format}: ${formats()[this.format]}`,
      );
    }

    /** @param {string} name @param {string} why @param {string} accepted @returns {never} */
    fail(name, why, accepted) {
      throw new LedgerError(`${this.where}: ${name} ${why}; accepted: ${accepted}`);
    }

    /** @param {string} name @param {Value} value @param {bigint} minimum */
    whole(name, value, minimum) {
      return whole(value, `${this.where}: ${name}`, minimum, acceptedWhole(minimum));
    }

    /** @param {string} name @param {Value} value */
    time(name, value) {
      const number = typeof value === "number" || typeof value === "bigint";
      if (!number || !(value < 2n ** 63n && value > -(2n ** 63n))) {
        this.fail(name, `is ${seen(value)}`, "a time, a finite number");
      }
      return value;
    }

    /** @param {string} name @returns {Value[]} */
    array(name) {
      const value = this.get(name);
      return Array.isArray(value) ? value : this.fail(name, `is ${seen(value)}`, "an array");
    }
  }

  /**
   * Mooncake and Qwen-Bailian: one request a line.
   * @param {Iterable<Record>} records @param {string} name @param {string} format @returns {Read}
   */
  function readRecords(records, name, format) {
    const size = RECORD_SIZES[format];
    /** @type {Read} */
    const read = { name, format, prompt: [], output: [], failed: 0 };
    /** @type {any} */
    let last = null;
    /** @type {boolean|null} */
    let withIds = null;
    for (const record of records) {
      const prompt = record.whole("input_length", record.get("input_length"), 1n);
      const output = record.whole("output_length", record.get("output_length"), 0n);
      if (prompt + output > INT64_MAX) {
        record.fail("output_length", `is ${output} after a prompt of ${prompt}`,
                    `a total of at most ${INT64_MAX} (64 bits)`);
      }
      const time = record.time("timestamp", record.get("timestamp"));
      if (last !== null && time < last) {
        record.fail("timestamp", `is ${printed(time)}`, "a time that is not before the line ahead of it");
      }
      last = time;
      if (withIds === null) withIds = Object.hasOwn(record.fields, "hash_ids");
      if (withIds || Object.hasOwn(record.fields, "hash_ids")) {
        record.get("hash_ids");
        if (!withIds) record.fail("hash_ids", "is there and was not before", "hash_ids on every line or on none");
        checkIds(record, prompt, size);
      }
      read.prompt.push(prompt);
      read.output.push(output);
    }
    return read;
  }

  /** @param {Record} record @param {bigint} prompt @param {bigint} size tokens an id */
  function checkIds(record, prompt, size) {
    const ids = record.array("hash_ids");
    const pages = (prompt + size - 1n) / size;
    const many = BigInt(ids.length);
    if (many !== pages && !(record.format === "qwen" && many === prompt / size)) {
      record.fail("hash_ids", `has ${many} ids for ${prompt} tokens`,
                  `${pages} ids, one per ${size} tokens (page_ids_size says otherwise if it is otherwise)`);
    }
    const odd = ids.findIndex((id) => typeof id !== "bigint");
    if (odd >= 0) record.fail("hash_ids", `holds ${seen(ids[odd])}, which is not a whole number`, "integer ids");
  }

  /** Whether Python takes a value for true. @param {Value} value */
  function truthy(value) {
    if (typeof value === "object" && value !== null) return Object.keys(value).length > 0;
    return Boolean(value);
  }

  /**
   * vLLM's and SGLang's serving benchmarks: one run a line, arrays inside.
   * @param {Iterable<Record>} records @param {string} name @returns {Read}
   */
  function readBenchmark(records, name) {
    /** @type {Read} */
    const read = { name, format: "benchmark", prompt: [], output: [], failed: 0 };
    let timed = true;
    for (const record of records) {
      const keys = ["input_lens", "output_lens"];
      for (const key of keys) record.get(key);
      for (const key of ["start_times", "errors"]) if (truthy(record.fields[key] ?? null)) keys.push(key);
      const n = record.array("input_lens").length;
      for (const key of keys) {
        const many = record.array(key).length;
        if (many !== n) record.fail(key, `has ${many} entries`, `${n}, as many as input_lens`);
      }
      timed = timed && keys.includes("start_times");
      for (let i = 0; i < n; i += 1) {
        if (keys.includes("errors") && truthy(record.fields.errors[i])) {
          read.failed += 1;
          continue;
        }
        read.prompt.push(record.whole(`input_lens[${i}]`, record.fields.input_lens[i], 1n));
        read.output.push(record.whole(`output_lens[${i}]`, record.fields.output_lens[i], 0n));
        if (timed) record.time(`start_times[${i}]`, record.fields.start_times[i]);
      }
    }
    if (!read.prompt.length) {
      throw new LedgerError(
        `${name}: no request that succeeded (${read.failed} failed); accepted: at least one`,
      );
    }
    return read;
  }

  // ---------------------------------------------------------------- lengths of what was read

  /** Lengths of a trace that was read. @param {Read} read @param {string} of "total" or "prompt" */
  function lengthsOf(read, of) {
    const tokens = of === "prompt" ? read.prompt
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

  Object.assign(kv, { LARGEST_FILE, decode, floatText, lengthsOf, looksLikeFile, readTrace, typedNumbers, unpack });
})(globalThis.kvledgerExplorer);
