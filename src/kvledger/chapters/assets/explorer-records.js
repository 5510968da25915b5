/* Traces that are JSON: one request a line, one benchmark run a line, or an array of lengths. */
"use strict";
/** @typedef {{prompt: bigint, output: bigint, time: number|bigint|null}} Timed */
(function (kv) {
  const {
    INT64_MAX,
    LedgerError,
    acceptedWhole,
    formatList,
    formats,
    mixed,
    printed,
    seen,
    whole,
  } = kv;

  /** @type {{[format: string]: bigint}} tokens that a hash id stands for */
  const RECORD_SIZES = { mooncake: 512n, qwen: 16n };
  const NO_REQUESTS = "no requests; accepted: at least one";

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
      for (const { line, fields } of rest) {
        const kind = kindOf(fields);
        if (kind && kind !== format) throw mixed(`${name}, line ${line}`, kind, format);
        yield new Record(name, line, fields, format);
      }
    })();
    if (format === "benchmark") return readBenchmark(records, name);
    return format === "openai" ? kv.readOpenAI(records, name) : readRecords(records, name, format);
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
      if (fields === undefined && !alone && !/^[\t-\r ]*[[{]/.test(lines[i])) {
        throw mixed(`${name}, line ${i + 1}`, seen(kv.stripped(lines[i])), "JSON");
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

  /** The format of an object, if it is known. @param {any} fields @returns {string|null} */
  function kindOf(fields) {
    /** @param {string[]} keys */
    const has = (...keys) => keys.some((key) => Object.hasOwn(fields, key));
    if (has("input_lens", "output_lens", "request_throughput")) return "benchmark";
    if (has("input_length", "output_length", "hash_ids")) {
      return has("chat_id", "parent_chat_id") ? "qwen" : "mooncake";
    }
    return kv.isOpenAI(fields) ? "openai" : null;
  }

  /** @param {any} fields @param {string} name @param {number} line */
  function recordFormat(fields, name, line) {
    const kind = kindOf(fields);
    if (kind) return kind;
    const keys = Object.keys(fields);
    if (keys.length === 1 && keys[0] === "error") return "openai"; // a request that was refused
    let hint = "";
    if (["prompt", "conversations", "messages"].some((key) => keys.includes(key))) {
      hint = " (prompts as text carry no token counts: tokenise them first)";
    } else if (keys.includes("custom_id") && keys.includes("body")) {
      hint = " (a batch's requests carry no token counts: its output file does)";
    }
    throw new LedgerError(
      `${name}, line ${line}: no known trace has the keys ${keys.join(", ")}${hint}; accepted:\n${formatList()}`,
    );
  }

  /** @param {string} text @param {string} name @returns {Read} */
  function readArray(text, name) {
    const values = parsed(text);
    if (values === undefined) {
      throw new LedgerError(
        `${name}, line 1: JSON cut short or malformed; accepted: a JSON array of lengths`,
      );
    }
    const prompt = values.map((/** @type {Value} */ value, /** @type {number} */ i) =>
      whole(value, `${name}, entry ${i}`, 1n, acceptedWhole(1)),
    );
    const output = prompt.map(() => 0n);
    const read = { name, format: "lengths", prompt, output, skipped: new kv.Skipped() };
    return kv.wholeTrace(read, "an empty JSON array; accepted: at least one length");
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

    /** An object within this one, as a record of its own. @param {any} fields */
    inside(fields) {
      const record = new Record("", 0, fields, this.format);
      record.where = this.where;
      return record;
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

    /**
     * The tokens of a prompt and its output, whose sum is within 64 bits.
     * @param {[string, Value]} first @param {[string, Value]} second a name and a value
     * @param {bigint} [least] tokens of a prompt
     */
    tokens(first, second, least = 1n) {
      const prompt = this.whole(...first, least);
      const output = this.whole(...second, 0n);
      if (prompt + output > INT64_MAX) {
        this.fail(
          second[0],
          `is ${output} after a prompt of ${prompt}`,
          `a total of at most ${INT64_MAX} (64 bits)`,
        );
      }
      return { prompt, output };
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
    const read = { name, format, prompt: [], output: [], skipped: new kv.Skipped() };
    /** @type {any} */
    let last = null;
    /** @type {boolean|null} */
    let withIds = null;
    for (const record of records) {
      const [first, second] = [record.get("input_length"), record.get("output_length")];
      const { prompt, output } = record.tokens(["input_length", first], ["output_length", second]);
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
    const skipped = new kv.Skipped();
    /** @type {Timed[]} */
    const requests = [];
    let runs = 0;
    for (const record of records) {
      runs += 1;
      const keys = runKeys(record);
      const lists = record.fields;
      const n = lists.input_lens.length;
      const errors = keys.includes("errors") ? lists.errors : Array(n).fill(null);
      const good = errors.filter((/** @type {Value} */ error) => !truthy(error)).length;
      // Where the server closed the connection without a word, only the count of completed tells.
      const silent = typeof lists.completed === "bigint" && lists.completed < good;
      for (let i = 0; i < n; i += 1) {
        const [prompt, output] = [lists.input_lens[i], lists.output_lens[i]];
        if (truthy(errors[i])) skipped.add("reported an error", true);
        else if (silent && (output === 0n || output === 0 || output === false)) {
          skipped.add("no output in a run with failures", true);
        } else {
          const both = record.tokens([`input_lens[${i}]`, prompt], [`output_lens[${i}]`, output]);
          const timed = keys.includes("start_times");
          const time = timed ? record.time(`start_times[${i}]`, lists.start_times[i]) : null;
          requests.push({ ...both, time: runs === 1 ? time : null });
        }
      }
    }
    return byTime(requests, name, "benchmark", skipped);
  }

  /** The lists of a run, all of one length. @param {Record} record */
  function runKeys(record) {
    const keys = ["input_lens", "output_lens"];
    for (const key of keys) record.get(key);
    for (const key of ["start_times", "errors"]) {
      if (truthy(record.fields[key] ?? null)) keys.push(key);
    }
    const n = record.array("input_lens").length;
    for (const key of keys) {
      const many = record.array(key).length;
      if (many !== n) record.fail(key, `has ${many} entries`, `${n}, as many as input_lens`);
    }
    return keys;
  }

  /**
   * A trace whose rows are written as requests finish: in the order of its times, if all have one.
   * @param {Timed[]} requests @param {string} name @param {string} format @param {any} skipped
   */
  function byTime(requests, name, format, skipped) {
    if (requests.every(({ time }) => time !== null)) {
      requests.sort((a, b) => Number(a.time) - Number(b.time));
    }
    const [prompt, output] = [
      requests.map((each) => each.prompt),
      requests.map((each) => each.output),
    ];
    return kv.wholeTrace({ name, format, prompt, output, skipped }, NO_REQUESTS);
  }

  Object.assign(kv, { Record, byTime, readJson, truthy });
})(globalThis.kvledgerExplorer);
