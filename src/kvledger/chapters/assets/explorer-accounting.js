/* The accounting itself: the same functions as the package has, with the same answers and errors.
 *
 * Everything is a sum over requests of a function of their length, so lengths are counted first and
 * then each different length is looked at once. A whole number is a BigInt, any other number a Number,
 * nothing at all is null. So 4 and 4.0 stay apart, as they do in Python, and a whole number is exact
 * however large it is. An error names a value as Python prints it.
 */
"use strict";
/** @typedef {bigint|number|string|null} Value */
/** @typedef {{n: bigint, d: bigint}} Fraction in lowest terms, d above 0 */
/**
 * The different lengths, ascending, and how many requests have each.
 * @typedef {{tokens: bigint[], requests: bigint[], n: bigint, total: bigint,
 *            small: {tokens: Float64Array, requests: Float64Array}|null}} Table
 */
/** @typedef {{page_size: bigint, c_from: Fraction, c_to: Fraction|null}} Interval */
/**
 * @typedef {{page_size: bigint, pages: bigint, tail_slack_slots: bigint, metadata: Fraction, cost: Fraction}} Tested
 */
/** @typedef {{[quantity: string]: bigint} & {unused_share: any}} Ledger */
(function (kv) {
  const INT64_MAX = 2n ** 63n - 1n;
  const AT_MOST = `and at most ${INT64_MAX} (64 bits)`;
  const LONGEST_NUMBER = 400; // letters; a longer text is a word

  /** Input that cannot be accounted for. */
  class LedgerError extends Error {}

  /** @param {bigint} n @param {bigint} [d] @returns {Fraction} */
  function fraction(n, d = 1n) {
    let [a, b] = [n < 0n ? -n : n, d];
    while (b) [a, b] = [b, a % b];
    return { n: n / a, d: d / a };
  }

  /** @param {Fraction} a @param {Fraction} b */
  const plus = (a, b) => fraction(a.n * b.d + b.n * a.d, a.d * b.d);

  /** @param {Fraction} a @param {Fraction} b */
  const times = (a, b) => fraction(a.n * b.n, a.d * b.d);

  /** Below, at or above 0 as a is below, at or above b. @param {Fraction} a @param {Fraction} b */
  const compare = (a, b) => {
    const [left, right] = [a.n * b.d, b.n * a.d];
    return left < right ? -1 : left > right ? 1 : 0;
  };

  /** A number that is not whole as Python prints it. @param {number} x @returns {string} */
  function floatText(x) {
    if (Number.isNaN(x)) return "nan";
    const sign = x < 0 || Object.is(x, -0) ? "-" : "";
    if (!Number.isFinite(x)) return `${sign}inf`;
    const [mantissa, power] = Math.abs(x).toExponential().split("e");
    const digits = mantissa.replace(".", "");
    const exponent = Number(power);
    if (exponent < -4 || exponent >= 16) {
      const shown = String(Math.abs(exponent)).padStart(2, "0");
      return `${sign}${mantissa}e${exponent < 0 ? "-" : "+"}${shown}`;
    }
    if (exponent < 0) return `${sign}0.${"0".repeat(-exponent - 1)}${digits}`;
    const whole = digits.slice(0, exponent + 1).padEnd(exponent + 1, "0");
    return `${sign}${whole}.${digits.slice(exponent + 1) || "0"}`;
  }

  /** A text in quotes, as Python prints it. @param {string} text @returns {string} */
  function quoted(text) {
    const quote = text.includes("'") && !text.includes('"') ? '"' : "'";
    const short = { "\\": "\\\\", "\n": "\\n", "\r": "\\r", "\t": "\\t", [quote]: `\\${quote}` };
    const letters = Array.from(text, (letter) => {
      if (letter in short) return short[letter];
      if (letter === " " || !/[\p{C}\p{Z}]/u.test(letter)) return letter;
      const code = letter.codePointAt(0);
      const [mark, width] = code < 256 ? ["x", 2] : code < 65536 ? ["u", 4] : ["U", 8];
      return `\\${mark}${code.toString(16).padStart(width, "0")}`;
    });
    return quote + letters.join("") + quote;
  }

  /** Any value as Python prints it. @param {Value} value @returns {string} */
  function printed(value) {
    if (value === null) return "None";
    if (typeof value === "number") return floatText(value);
    if (typeof value === "string") return quoted(value);
    return String(value);
  }

  /** Cut a text that is too long for a message. @param {string} text */
  function cut(text) {
    const letters = Array.from(text);
    return letters.length <= 60 ? text : `${letters.slice(0, 57).join("")}...`;
  }

  /** A value as an error names it. @param {Value} value @returns {string} */
  function shown(value) {
    if (value === null) return "missing";
    if (typeof value === "number" && Number.isNaN(value)) return "missing (NaN)";
    return cut(printed(value));
  }

  /**
   * A whole number, or an error that names what was given.
   * @param {Value} value @param {string} name @param {bigint} minimum @param {string} accepted
   * @returns {bigint}
   */
  function whole(value, name, minimum, accepted) {
    let number = null;
    if (typeof value === "bigint") number = value;
    if (typeof value === "number" && Number.isInteger(value)) number = BigInt(value);
    if (number === null || number < minimum) {
      throw new LedgerError(`${name} is ${shown(value)}; ${accepted}`);
    }
    if (number > INT64_MAX) {
      throw new LedgerError(`${name} is ${shown(value)}; ${accepted}, ${AT_MOST}`);
    }
    return number;
  }

  /** A sum, or an error if 64 bits do not hold it. @param {bigint} total @param {string} name */
  function checkedSum(total, name) {
    if (total > INT64_MAX) {
      throw new LedgerError(
        `${name} add up to ${total}; sums up to ${INT64_MAX} (64 bits) are accepted`,
      );
    }
    return total;
  }

  /** digits: a whole number, maybe with a sign. */
  const wholeOf = (digits) =>
    digits.startsWith("-") ? -BigInt(digits.slice(1)) : BigInt(digits.replace("+", ""));

  /** What a reader typed, as the value it stands for. @param {string} text @returns {Value} */
  function literal(text) {
    const word = text.trim();
    if (!word) return null;
    if (word.length > LONGEST_NUMBER) return word;
    if (/^[+-]?\d+$/.test(word)) return wholeOf(word);
    if (/^[+-]?(\d+\.?\d*|\.\d+)(e[+-]?\d+)?$/i.test(word)) return Number(word);
    return word;
  }

  /**
   * The decimal that a number prints as, exactly: 0.1 is one tenth.
   * @param {number} x finite @returns {Fraction}
   */
  function decimalFraction(x) {
    const [mantissa, power] = floatText(x).split("e");
    const [before, after = ""] = mantissa.split(".");
    const exponent = Number(power || 0) - after.length;
    const n = wholeOf(before + after);
    const scale = 10n ** BigInt(Math.abs(exponent));
    return exponent < 0 ? fraction(n, scale) : fraction(n * scale);
  }

  // ---------------------------------------------------------------- lengths

  const A_LENGTH = "a length is a whole number of tokens, at least 1";
  const A_PAGE_SIZE = "a page size is a whole number of slots, at least 1";
  const A_RESERVE = 'reserve is a whole number of slots, at least 1, or "pow2" or "oracle"';
  const A_PREFIX = "prefix is a whole number of tokens, from 0 to the shortest request";
  const A_COST = "a cost per page is a finite number of token-slot equivalents, at least 0";
  const LARGEST_POWER = 2n ** 62n;

  /** Request lengths, in order or as counts; checked when they are first needed. */
  class Lengths {
    /**
     * values: in the order of the requests, or null; counts: requests of each length, if there is
     * no order.
     */
    constructor(values, counts = null) {
      this.values = values;
      this.counts = counts;
      this.checked = null;
      this.counted = null;
    }

    /** Each request's tokens, in order; Numbers where they are exact. */
    array() {
      if (!this.checked) {
        this.checked = (this.values || []).map((value, i) => {
          if (typeof value === "number" && value > 0 && Number.isSafeInteger(value)) return value;
          const tokens = whole(value, `lengths[${i}]`, 1n, A_LENGTH);
          return tokens <= Number.MAX_SAFE_INTEGER ? Number(tokens) : tokens;
        });
      }
      return this.checked;
    }

    table() {
      if (!this.counted) this.counted = makeTable(this.counts || count(this.array()));
      return this.counted;
    }
  }

  function count(values) {
    const counts = new Map();
    for (const value of values) counts.set(value, (counts.get(value) || 0) + 1);
    return counts;
  }

  /** Numbers, then the BigInts, which are all larger. */
  function ascending(keys) {
    const numbers = Float64Array.from(keys.filter((key) => typeof key === "number")).sort();
    const large = keys.filter((key) => typeof key === "bigint");
    return [...numbers, ...large.sort((a, b) => (a < b ? -1 : a > b ? 1 : 0))];
  }

  function makeTable(counts) {
    if (!counts.size) throw new LedgerError("lengths is empty; at least one request is needed");
    const sorted = ascending([...counts.keys()]);
    const tokens = sorted.map(BigInt);
    const requests = sorted.map((key) => BigInt(counts.get(key) || 0));
    const n = requests.reduce((sum, many) => sum + many, 0n);
    const total = checkedSum(dot(tokens, requests), "lengths");
    // Where every sum of pages is exact as a Number, Numbers are counted: they are much faster.
    const exact = total <= Number.MAX_SAFE_INTEGER;
    const [few, many] = exact
      ? [sorted, requests].map((all) => Float64Array.from(all, Number))
      : [];
    return { tokens, requests, n, total, small: exact ? { tokens: few, requests: many } : null };
  }

  const dot = (values, weights) => values.reduce((sum, value, i) => sum + value * weights[i], 0n);

  /** Pages that all requests need. */
  function pages(table, pageSize) {
    const pagesOf = (n) => (n + pageSize - 1n) / pageSize;
    if (!table.small) return dot(table.tokens.map(pagesOf), table.requests);
    const { tokens, requests } = table.small;
    const slots = Number(pageSize);
    let sum = 0;
    // Exact: below 2 to the power of 53 a quotient is never rounded across a whole number.
    for (let i = 0; i < tokens.length; i += 1) sum += requests[i] * Math.ceil(tokens[i] / slots);
    return BigInt(sum);
  }

  /** Where the slots go. Both identities of the accounting hold, or there is no ledger. */
  function ledger(given) {
    const held = {
      shared_tokens: 0n,
      tail_slack_slots: 0n,
      reserved_slots: 0n,
      pages: 0n,
      refused_requests: 0n,
      refused_tokens: 0n,
      ...given,
    };
    for (const name of ["requests", "logical_tokens", "allocated_slots"]) {
      whole(held[name], name, 0n, "a whole number from 0 to 64 bits is accepted");
    }
    const distinct_tokens = held.logical_tokens - held.shared_tokens;
    const unused = held.tail_slack_slots + held.reserved_slots;
    if (held.allocated_slots !== distinct_tokens + unused)
      throw new Error("the ledger does not add up");
    return {
      ...held,
      distinct_tokens,
      reserved_never_used_slots: held.reserved_slots - held.reserved_used_later_slots,
      unused_share: fraction(unused, held.allocated_slots || 1n),
    };
  }

  /** @param {Value} value @returns {bigint} */
  const wholePageSize = (value) => whole(value, "page_size", 1n, A_PAGE_SIZE);

  /** Different page sizes, ascending. */
  function wholePageSizes(values) {
    const sizes = [...new Set(values.map(wholePageSize))].sort((a, b) => (a < b ? -1 : 1));
    if (!sizes.length)
      throw new LedgerError("page_sizes is empty; at least one page size is needed");
    return sizes;
  }

  /** The smallest power of two that is at least n. @param {bigint} n */
  function nextPowerOfTwo(n) {
    return n <= 1n ? 1n : 1n << BigInt((n - 1n).toString(2).length);
  }

  /**
   * Requests that each hold one reserved run of slots.
   * @param {Lengths} lengths @param {Value} reserve slots, "pow2" or "oracle"
   * @param {string} overMaximum "error", or "count" to count longer requests apart
   */
  function contiguous(lengths, reserve, overMaximum) {
    let maximum = null;
    if (typeof reserve === "string") {
      if (reserve !== "pow2" && reserve !== "oracle") {
        throw new LedgerError(`reserve is ${quoted(reserve)}; ${A_RESERVE}`);
      }
    } else maximum = whole(reserve, "reserve", 1n, A_RESERVE);
    const { tokens, requests } = lengths.table();
    if (maximum !== null && overMaximum === "error") refuseLonger(lengths, maximum);
    const longest = tokens[tokens.length - 1];
    let fitting = tokens.length; // lengths ascend: the first so many of them fit
    while (maximum !== null && fitting && tokens[fitting - 1] > maximum) fitting -= 1;
    const [kept, many] = [tokens.slice(0, fitting), requests.slice(0, fitting)];
    const n = many.reduce((sum, each) => sum + each, 0n);
    if (reserve === "pow2" && longest > LARGEST_POWER) {
      throw new LedgerError(
        `a length is ${longest}; next powers of two are given up to ${LARGEST_POWER} tokens`,
      );
    }
    const held =
      maximum !== null
        ? n * maximum
        : dot(reserve === "pow2" ? kept.map(nextPowerOfTwo) : kept, many);
    const allocated = checkedSum(held, "reserved slots");
    const logical = dot(kept, many);
    return ledger({
      requests: n,
      logical_tokens: logical,
      allocated_slots: allocated,
      reserved_slots: allocated - logical,
      reserved_used_later_slots: 0n,
      refused_requests: requests.slice(fitting).reduce((sum, each) => sum + each, 0n),
      refused_tokens: dot(tokens.slice(fitting), requests.slice(fitting)),
    });
  }

  function refuseLonger(lengths, maximum) {
    let which = "a request of lengths";
    let tokens;
    if (lengths.counts)
      tokens = lengths
        .table()
        .tokens.filter((n) => n > maximum)
        .pop();
    else {
      const i = lengths.array().findIndex((n) => n > maximum);
      which = `lengths[${i}]`;
      tokens = lengths.array()[i];
    }
    if (tokens === undefined) return;
    throw new LedgerError(
      `${which} is ${tokens} tokens; at most the reserved ${maximum} fit ` +
        '(over_maximum="count" counts such requests apart)',
    );
  }

  /**
   * Requests in whole pages of one size.
   * @param {Lengths} lengths @param {Value} value slots a page
   */
  function paged(lengths, value) {
    const pageSize = wholePageSize(value);
    const table = lengths.table();
    const held = pages(table, pageSize);
    const allocated = checkedSum(held * pageSize, `slots of ${pageSize}-slot pages`);
    return ledger({
      requests: table.n,
      logical_tokens: table.total,
      allocated_slots: allocated,
      tail_slack_slots: allocated - table.total,
      reserved_used_later_slots: 0n,
      pages: held,
    });
  }

  /**
   * Paged requests that all start with the same tokens; only complete pages are shared.
   * @param {Lengths} lengths @param {Value} size slots a page @param {Value} start tokens
   */
  function shared(lengths, size, start) {
    const pageSize = wholePageSize(size);
    const prefix = whole(start, "prefix", 0n, A_PREFIX);
    const tokens = lengths.counts ? lengths.table().tokens : lengths.array();
    if (!tokens.length) throw new LedgerError("lengths is empty; at least one request is needed");
    const short = tokens.findIndex((n) => n < prefix);
    if (short >= 0) {
      throw new LedgerError(
        `prefix is ${prefix}; request ${short} has ${tokens[short]} tokens; ${A_PREFIX}`,
      );
    }
    const each = prefix / pageSize; // all requests have these pages, and one of them holds them
    const n = lengths.counts ? lengths.table().n : BigInt(tokens.length);
    checkedSum(each * n, "shared pages");
    const table = lengths.table();
    const found = each * (n - 1n);
    const held = pages(table, pageSize) - found;
    const distinct = table.total - found * pageSize;
    return ledger({
      requests: n,
      logical_tokens: table.total,
      shared_tokens: found * pageSize,
      allocated_slots: held * pageSize,
      tail_slack_slots: held * pageSize - distinct,
      reserved_used_later_slots: 0n,
      pages: held,
    });
  }

  /** A cost as an exact fraction. @param {Value|Fraction} c @returns {Fraction} */
  function exactCost(c) {
    let exact = null;
    if (typeof c === "bigint") exact = fraction(c);
    else if (typeof c === "number" && Number.isFinite(c)) exact = decimalFraction(c);
    else if (c !== null && typeof c === "object" && "n" in c) exact = c;
    if (exact === null || exact.n < 0n) throw new LedgerError(`c is ${shown(c)}; ${A_COST}`);
    return exact;
  }

  /** Allocated slots + c x pages. */
  const costOf = (held, size, c) => times(fraction(held), plus(fraction(size), c));

  /** @param {Lengths} lengths @param {Value} value @param {Value|Fraction} c */
  function cost(lengths, value, c) {
    const exact = exactCost(c);
    const pageSize = wholePageSize(value);
    return costOf(pages(lengths.table(), pageSize), pageSize, exact);
  }

  /**
   * What each tested page size costs, ascending.
   * @param {Lengths} lengths @param {Value|Fraction} value @param {Value[]} pageSizes @returns {Tested[]}
   */
  function costs(lengths, value, pageSizes) {
    const c = exactCost(value);
    const sizes = wholePageSizes(pageSizes);
    const table = lengths.table();
    return sizes.map((size) => {
      const held = pages(table, size);
      return {
        page_size: size,
        pages: held,
        tail_slack_slots: held * size - table.total,
        metadata: times(fraction(held), c),
        cost: costOf(held, size, c),
      };
    });
  }

  /** The least cost; of page sizes that cost the same, the larger. @param {Tested[]} tested */
  function best(tested) {
    return tested.reduce((least, each) => (compare(each.cost, least.cost) <= 0 ? each : least));
  }

  /** Page sizes within one percent of the least cost. @param {Tested[]} tested */
  function nearBest(tested) {
    const limit = times(best(tested).cost, fraction(101n, 100n));
    return tested.filter((each) => compare(each.cost, limit) <= 0).map((each) => each.page_size);
  }

  /**
   * Which page size is best for which cost per page: the lower edge of straight lines in c.
   * @param {Lengths} lengths @param {Value[]} pageSizes @returns {Interval[]}
   */
  function envelope(lengths, pageSizes) {
    const sizes = wholePageSizes(pageSizes);
    const table = lengths.table();
    const lines = sizes.map((size) => {
      const held = pages(table, size);
      return { size, held, slots: held * size };
    });
    // From most pages to fewest; of as many pages, the smaller ones.
    lines.sort((a, b) =>
      a.held !== b.held ? (a.held > b.held ? -1 : 1) : a.slots < b.slots ? -1 : 1,
    );
    const kept = [];
    for (const line of lines) {
      if (kept.length && kept[kept.length - 1].held === line.held) continue;
      let from = fraction(0n);
      while (kept.length) {
        const last = kept[kept.length - 1];
        const rise = line.slots - last.slots;
        from = fraction(rise, last.held - line.held);
        if (compare(from, last.from) > 0) break;
        kept.pop(); // the new line is better from where this one would begin, or earlier
      }
      kept.push({ ...line, from: kept.length ? from : fraction(0n) });
    }
    return kept.map(({ size, from }, i) => ({
      page_size: size,
      c_from: from,
      c_to: i + 1 < kept.length ? kept[i + 1].from : null,
    }));
  }

  Object.assign(kv, {
    INT64_MAX,
    LedgerError,
    Lengths,
    best,
    compare,
    contiguous,
    cost,
    costs,
    cut,
    envelope,
    exactCost,
    fraction,
    literal,
    nearBest,
    nextPowerOfTwo,
    paged,
    printed,
    shared,
    shown,
    times,
    whole,
    wholePageSize,
  });
})((globalThis.kvledgerExplorer = globalThis.kvledgerExplorer || {}));
