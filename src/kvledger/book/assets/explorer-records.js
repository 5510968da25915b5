/* Traces that are JSON: one request a line, one benchmark run a line, or an array of lengths. */
"use strict";
(function (kv) {
  const { INT64_MAX, LedgerError, acceptedWhole, formatList, formats, printed, seen, whole } = kv;

  /** @type {{[format: string]: bigint}} tokens that a hash id stands for */
  const RECORD_SIZES = { mooncake: 512n, qwen: 16n };

  /** JSON whose whole numbers are exact. @param {string} text @returns {Value} */
  function parse(text) {
    /**
     * @type {any} its third parameter, the number as it is written, is newer than most type files
     */
    const reviver = (
      /** @type {string} */ _,
      /** @type {any} */ value,
      /** @type {any} */ context,
    ) => {
      if (typeof value !== "number") return value;
      if (context) return /[.e]/i.test(context.source) ? value : BigInt(context.source);
      if (!Number.isInteger(value)) return value;
      if (Number.isSafeInteger(value)) return BigInt(value);
      throw new LedgerError(`${value}: this browser cannot read a number so large in JSON exactly`);
    };
    return JSON.parse(text, reviver);
  }

  /**
   * The value of a JSON text, or undefined where it is none.
   * @param {string} text @returns {any}
   */
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
    if (/^[\t-\r ]*\[/.test(text)) return readArray(text, name);
    const rest = jsonRecords(text, name);
    const first = /** @type {{line: number, fields: any}} */ (rest.next().value);
    const format = recordFormat(first.fields, name, first.line);
    // One at a time, so that the first line with something wrong is the one that is named.
    const records = (function* () {
      yield new Record(name, first.line, first.fields, format);
      for (const { line, fields } of rest) yield new Record(name, line, fields, format);
    })();
    return format === "benchmark"
      ? readBenchmark(records, name)
      : readRecords(records, name, format);
  }

  /** @param {string} text @param {string} name */
  function* jsonRecords(text, name) {
    const accepted = "accepted: one complete JSON object a line";
    const lines = text.split("\n");
    let alone = true;
    for (let i = 0; i < lines.length; i += 1) {
      if (!/[^\t-\r ]/.test(lines[i])) continue;
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
      ? " (prompts as text carry no token counts: tokenise them first)"
      : "";
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
      whole(value, `${name}, entry ${i}`, 1n, acceptedWhole(1)),
    );
    return { name, format: "lengths", prompt, output: prompt.map(() => 0n), failed: 0 };
  }

  /** One JSON object and where it stands. */
  class Record {
    /**
     * @param {string} file @param {number} line @param {{[key: string]: any}} fields
     * @param {string} format
     */
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
        record.fail(
          "output_length",
          `is ${output} after a prompt of ${prompt}`,
          `a total of at most ${INT64_MAX} (64 bits)`,
        );
      }
      const time = record.time("timestamp", record.get("timestamp"));
      if (last !== null && time < last) {
        record.fail(
          "timestamp",
          `is ${printed(time)}`,
          "a time that is not before the line ahead of it",
        );
      }
      last = time;
      if (withIds === null) withIds = Object.hasOwn(record.fields, "hash_ids");
      if (withIds || Object.hasOwn(record.fields, "hash_ids")) {
        record.get("hash_ids");
        if (!withIds)
          record.fail(
            "hash_ids",
            "is there and was not before",
            "hash_ids on every line or on none",
          );
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
      record.fail(
        "hash_ids",
        `has ${many} ids for ${prompt} tokens`,
        `${pages} ids, one per ${size} tokens (page_ids_size says otherwise if it is otherwise)`,
      );
    }
    const odd = ids.findIndex((id) => typeof id !== "bigint");
    if (odd >= 0)
      record.fail(
        "hash_ids",
        `holds ${seen(ids[odd])}, which is not a whole number`,
        "integer ids",
      );
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
    /** @type {{prompt: bigint, output: bigint, start: number}[]} */
    const requests = [];
    let [timed, runs] = [true, 0];
    for (const record of records) {
      runs += 1;
      const keys = ["input_lens", "output_lens"];
      for (const key of keys) record.get(key);
      for (const key of ["start_times", "errors"])
        if (truthy(record.fields[key] ?? null)) keys.push(key);
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
        const prompt = record.whole(`input_lens[${i}]`, record.fields.input_lens[i], 1n);
        const output = record.whole(`output_lens[${i}]`, record.fields.output_lens[i], 0n);
        const start = timed
          ? Number(record.time(`start_times[${i}]`, record.fields.start_times[i]))
          : 0;
        requests.push({ prompt, output, start });
      }
    }
    if (!requests.length) {
      throw new LedgerError(
        `${name}: no request that succeeded (${read.failed} failed); accepted: at least one`,
      );
    }
    // Requests are sent side by side, so results may be out of order by a hair.
    if (timed && runs === 1) requests.sort((a, b) => a.start - b.start);
    read.prompt = requests.map(({ prompt }) => prompt);
    read.output = requests.map(({ output }) => output);
    return read;
  }

  Object.assign(kv, { readJson });
})(globalThis.kvledgerExplorer);
