/* The accounting itself: the same functions as the package has, with the same answers and errors.
 *
 * Everything is a sum over requests of a function of their length, so lengths are counted first and
 * then each different length is looked at once.
 */
"use strict";
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
  const { LedgerError, checkedSum, compare, fraction, plus, shown, times, whole } = kv;

  const A_LENGTH = "a length is a whole number of tokens, at least 1";
  const A_PAGE_SIZE = "a page size is a whole number of slots, at least 1";
  const A_RESERVE = 'reserve is a whole number of slots, at least 1, or "pow2" or "oracle"';
  const A_PREFIX = "prefix is a whole number of tokens, from 0 to the shortest request";
  const A_COST = "a cost per page is a finite number of token-slot equivalents, at least 0";
  const LARGEST_POWER = 2n ** 62n;

  /** Request lengths, in order or as counts; checked when they are first needed. */
  class Lengths {
    /** @param {Value[]|null} values in the order of the requests, or null
     *  @param {Map<number|bigint, number>|null} [counts] requests of each length, if there is no order */
    constructor(values, counts = null) {
      this.values = values;
      this.counts = counts;
      /** @type {(number|bigint)[]|null} */
      this.checked = null;
      /** @type {Table|null} */
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

    /** @returns {Table} */
    table() {
      if (!this.counted) this.counted = makeTable(this.counts || count(this.array()));
      return this.counted;
    }
  }

  /** @param {(number|bigint)[]} values */
  function count(values) {
    /** @type {Map<number|bigint, number>} */
    const counts = new Map();
    for (const value of values) counts.set(value, (counts.get(value) || 0) + 1);
    return counts;
  }

  /**
   * Numbers, then the BigInts, which are all larger.
   * @param {(number|bigint)[]} keys
   */
  function ascending(keys) {
    const numbers = Float64Array.from(keys.filter((key) => typeof key === "number")).sort();
    const large = keys.filter((key) => typeof key === "bigint");
    return [...numbers, ...large.sort((a, b) => (a < b ? -1 : a > b ? 1 : 0))];
  }

  /** @param {Map<number|bigint, number>} counts @returns {Table} */
  function makeTable(counts) {
    if (!counts.size) throw new LedgerError("lengths is empty; at least one request is needed");
    const sorted = ascending([...counts.keys()]);
    const tokens = sorted.map(BigInt);
    const requests = sorted.map((key) => BigInt(counts.get(key) || 0));
    const n = requests.reduce((sum, many) => sum + many, 0n);
    const total = checkedSum(dot(tokens, requests), "lengths");
    // Where every sum of pages is exact as a Number, Numbers are counted: they are much faster.
    const small =
      total <= Number.MAX_SAFE_INTEGER
        ? {
            tokens: Float64Array.from(sorted, Number),
            requests: Float64Array.from(requests, Number),
          }
        : null;
    return { tokens, requests, n, total, small };
  }

  /** @param {bigint[]} values @param {bigint[]} weights */
  const dot = (values, weights) => values.reduce((sum, value, i) => sum + value * weights[i], 0n);

  /** @param {bigint} a @param {bigint} b */
  const ceilDivide = (a, b) => (a + b - 1n) / b;

  /** Pages that all requests need. @param {Table} table @param {bigint} pageSize */
  function pages(table, pageSize) {
    if (!table.small)
      return dot(
        table.tokens.map((n) => ceilDivide(n, pageSize)),
        table.requests,
      );
    const { tokens, requests } = table.small;
    const slots = Number(pageSize);
    let sum = 0;
    // Exact: below 2 to the power of 53 a quotient is never rounded across a whole number.
    for (let i = 0; i < tokens.length; i += 1) sum += requests[i] * Math.ceil(tokens[i] / slots);
    return BigInt(sum);
  }

  /**
   * Where the slots go. Both identities of the accounting hold, or there is no ledger.
   * @param {{[quantity: string]: bigint}} given @returns {Ledger}
   */
  function ledger(given) {
    /** @type {{[quantity: string]: bigint}} */
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
  const wholePageSize = (value) =>
    /** @type {bigint} */ (whole(value, "page_size", 1n, A_PAGE_SIZE));

  /** Different page sizes, ascending. @param {Value[]} values */
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
        throw new LedgerError(`reserve is ${kv.quoted(reserve)}; ${A_RESERVE}`);
      }
    } else maximum = whole(reserve, "reserve", 1n, A_RESERVE);
    if (!lengths.counts) lengths.array();
    if (maximum !== null && overMaximum === "error") refuseLonger(lengths, maximum);
    const { tokens, requests } = lengths.table();
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

  /** @param {Lengths} lengths @param {bigint} maximum */
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
    /** @type {bigint} */
    const prefix = whole(start, "prefix", 0n, A_PREFIX);
    /** @type {(number|bigint)[]} */
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
    else if (typeof c === "number" && Number.isFinite(c)) exact = kv.decimalFraction(c);
    else if (c !== null && typeof c === "object" && "n" in c) exact = c;
    if (exact === null || exact.n < 0n) throw new LedgerError(`c is ${shown(c)}; ${A_COST}`);
    return exact;
  }

  /**
   * Allocated slots + c x pages.
   * @param {bigint} held pages @param {bigint} size @param {Fraction} c
   */
  const costOf = (held, size, c) => times(fraction(held), plus(fraction(size), c));

  /** @param {Lengths} lengths @param {Value} value @param {Value|Fraction} c */
  function cost(lengths, value, c) {
    const pageSize = wholePageSize(value);
    const held = pages(lengths.table(), pageSize);
    return costOf(held, pageSize, exactCost(c));
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
    /** @type {{size: bigint, held: bigint, slots: bigint, from: Fraction}[]} */
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
    Lengths,
    best,
    contiguous,
    cost,
    costs,
    envelope,
    exactCost,
    nearBest,
    nextPowerOfTwo,
    paged,
    shared,
    wholePageSize,
  });
})(globalThis.kvledgerExplorer);
