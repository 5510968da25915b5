/* Traces that are tables (CSV) or plain lists of lengths, read row by row. */
"use strict";
/**
 * The columns of one CSV format.
 * @typedef {{prompt: string, output: string|null, time: string|null, time_is_date: boolean,
 *            time_required: boolean, total: string|null, zero_output_failed: boolean}} Columns
 */
(function (kv) {
  const { INT64_MAX, LedgerError, formatList, formats, mixed, seen, stripped } = kv;

  const WHOLE = /^[+-]?\d+(\.0*)?$/;
  const NUMBER = /^[\t-\r ]*[+-]?(\d+\.?\d*|\.\d+)(e[+-]?\d+)?[\t-\r ]*$/i;
  const BREAK = /[,\t-\r\x1c-\x20\x85\xa0\u1680\u2000-\u200a\u2028\u2029\u202f\u205f\u3000]/;
  const DATE = /^(\d{4}-\d\d-\d\d)[ T](\d\d:\d\d:\d\d)(?:\.(\d{1,9}))?(?:Z|([+-])(\d\d):?(\d\d))?$/;
  // A first line such as 1O24 or nan is a length gone wrong, not the name of a column.
  const A_NAME = /^\p{L}/u;
  const NO_NAMES = ["nan", "na", "n/a", "none", "null", "inf", "infinity", "true", "false"];

  /** @param {string} text @param {string} name @returns {Read} */
  function readTable(text, name) {
    const lines = text.split("\n");
    let first = lines.findIndex((line) => stripped(line));
    const head = stripped(lines[first]);
    const header = !NUMBER.test(head.split(BREAK, 1)[0]);
    let names = ["length"];
    if (header) {
      names = csvFields(head, name, first + 1).map(stripped);
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
    const table = globalThis.kvledgerExplorerData.tables[format] || {
      prompt: names[0],
      output: null,
    };
    const missing = requiredColumns(table).find((column) => !names.includes(column));
    if (missing !== undefined) {
      throw new LedgerError(
        `${name}, line ${at}: column ${kv.quoted(missing)} is missing (found: ${names.join(", ")}); ` +
          `accepted as ${format}: ${formats()[format]}`,
      );
    }
    const rows = new Rows(name, table, names, header);
    for (let i = first; i < lines.length; i += 1) {
      if (!stripped(lines[i])) continue;
      try {
        rows.add(lines[i], i + 1);
      } catch (error) {
        const other = rows.otherFormat(lines[i]);
        throw other ? mixed(`${name}, line ${i + 1}`, other, format) : error;
      }
    }
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
    if (columns.length === 1 && A_NAME.test(only) && !NO_NAMES.includes(only.toLowerCase()))
      return "lengths";
    throw new LedgerError(
      `${name}, line ${line}: no known trace has the columns ${columns.join(", ")}; accepted:\n${formatList()}`,
    );
  }

  /** The rows of one table, each checked before it is kept. */
  class Rows {
    /**
     * @param {string} file @param {Columns} table @param {string[]} names @param {boolean} header
     */
    constructor(file, table, names, header) {
      this.file = file;
      this.table = table;
      this.names = names;
      this.header = header;
      /** @type {bigint[]} */
      this.prompt = [];
      /** @type {bigint[]} */
      this.output = [];
      this.skipped = new kv.Skipped();
      /** @type {any} */
      this.last = null;
      /** @param {string|null} column */
      const place = (column) => (column ? names.indexOf(column) : -1);
      this.at = {
        prompt: place(table.prompt),
        output: place(table.output),
        time: place(table.time),
        total: place(table.total),
      };
    }

    /** @param {string} text @param {number} line */
    add(text, line) {
      const fields = csvFields(text.replace(/\r+$/, ""), this.file, line);
      const n = this.names.length;
      if (fields.length !== n) {
        const columns = this.header ? this.names.join(",") : "one length";
        const short = fields.length < n ? " (is the line cut?)" : "";
        throw new LedgerError(
          `${this.file}, line ${line}: ${fields.length} fields in ${seen(stripped(`.${text}`).slice(1))}${short}; ` +
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
          this.fail(
            line,
            this.names[this.at.total],
            `${total}`,
            `the sum of prompt and output, ${prompt} + ${output}`,
          );
        }
      }
      if (this.at.time >= 0) this.time(stripped(fields[this.at.time]), line);
      if (failed) this.skipped.add(`${this.table.output} is 0`, true);
      else {
        this.prompt.push(prompt);
        this.output.push(output);
      }
    }

    /** @param {string[]} fields @param {number} at @param {number} line @param {bigint} minimum */
    whole(fields, at, line, minimum) {
      const text = stripped(fields[at]);
      if (WHOLE.test(text) && text.length < 100) {
        const number = /** @type {bigint} */ (kv.literal(text.split(".")[0]));
        if (number >= minimum && number <= INT64_MAX) return number;
      }
      return this.fail(
        line,
        this.names[at],
        text,
        `a whole number from ${minimum} to ${INT64_MAX}`,
      );
    }

    /**
     * A time is not used, but a row whose time is wrong is no good row.
     * @param {string} text @param {number} line
     */
    time(text, line) {
      const time = this.table.time_is_date
        ? dateNanoseconds(text)
        : NUMBER.test(text)
          ? Number(text)
          : null;
      const name = this.names[this.at.time];
      if (time === null || time === Infinity || time === -Infinity) {
        this.fail(
          line,
          name,
          text,
          this.table.time_is_date
            ? "a date such as 2023-11-16 18:17:03.9799600"
            : "seconds, a finite number",
        );
      }
      if (this.last !== null && time < this.last) {
        this.fail(line, name, text, "a time that is not before the line ahead of it");
      }
      this.last = time;
    }

    /**
     * @param {number} line @param {string} field @param {string} value @param {string} accepted
     * @returns {never}
     */
    fail(line, field, value, accepted) {
      const what = value ? `is ${seen(value)}` : "is missing";
      throw new LedgerError(`${this.file}, line ${line}: ${field} ${what}; accepted: ${accepted}`);
    }

    /** @param {string} format @returns {Read} */
    finish(format) {
      const { file: name, prompt, output, skipped } = this;
      const nothing = "a header and no requests; accepted: at least one line after the header";
      return kv.wholeTrace({ name, format, prompt, output, skipped }, nothing);
    }

    /**
     * Whether a line is none of this format's, rather than one of its rows gone wrong.
     * @param {string} text
     */
    otherFormat(text) {
      if (/^[{[]/.test(stripped(text))) return "JSON";
      const names = text.split(",").map((name) => stripped(name).replace(/^"+|"+$/g, ""));
      /** @type {Columns[]} */
      const tables = Object.values(globalThis.kvledgerExplorerData.tables);
      const known = [...tables.flatMap(requiredColumns), ...(this.header ? this.names : [])];
      const header = names.some((name) => known.includes(name));
      return header && !names.some((name) => WHOLE.test(name)) ? "another header" : null;
    }
  }

  const NEW_LINE =
    "new-line character seen in unquoted field - do you need to open the file in universal-newline mode?";

  /**
   * One line of CSV.
   * @param {string} line @param {string} file @param {number} number @returns {string[]}
   */
  function csvFields(line, file, number) {
    if (!/["\r]/.test(line)) return line.split(",");
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
        if (line[i] === "\r") throw notCsv(file, number, NEW_LINE);
        if (i < line.length && line[i] !== ",")
          throw notCsv(file, number, "',' expected after '\"'");
      } else {
        const end = line.indexOf(",", i);
        field = line.slice(i, end < 0 ? line.length : end);
        if (field.includes("\r")) throw notCsv(file, number, NEW_LINE);
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

  Object.assign(kv, { readTable, requiredColumns });
})(globalThis.kvledgerExplorer);
