/* What the page shows of its answers: a sentence, drawings and tables, each made anew. */
"use strict";
/**
 * What there is to show, and how wide.
 * @typedef {{answers: {[name: string]: any}, settings: Settings, width: number, lengths: () => any}} View
 */
/**
 * One ledger, what to call it, and how its slots lie: those of a request, its pages (0 where there
 * are none), its leading positions that another request holds, and what a slot without a token is.
 * @typedef {{name: string, title: string, ledger: any, bytes: any, held: (tokens: bigint) => bigint,
 *            page_size: bigint, shared: bigint, spare: string}} Policy
 */
(function (kv) {
  const { exactText, grouped, html, percentText } = kv;
  const MOST_REQUESTS = 12n; // that are drawn slot by slot
  const MOST_SLOTS = 64n; // of one request

  /** @param {bigint} n @param {string} one */
  const plural = (n, one) => `${grouped(n)} ${one}${n === 1n ? "" : "s"}`;

  /**
   * All of it, by the places on the page; a place without anything is not shown.
   * @param {View} view @returns {{[place: string]: (Node|string)[]}}
   */
  function showAnswers(view) {
    const policies = policiesOf(view);
    return {
      summary: summary(view),
      slots: slots(view, policies),
      ledger: ledger(view, policies),
      cost: cost(view),
      envelope: envelope(view),
    };
  }

  /** @param {View} view */
  function summary({ answers: { lengths, paged, best }, settings }) {
    if ("error" in lengths) return ["Nothing to compute: ", lengths.error];
    const words = [
      `${plural(lengths.value.requests, "request")}, ${plural(lengths.value.logical_tokens, "token")}. `,
    ];
    if ("value" in paged) {
      const { allocated_slots, tail_slack_slots, unused_share } = paged.value;
      words.push(
        `In pages of ${grouped(pageSizeOf(settings))} they hold ${plural(allocated_slots, "slot")}, ` +
          `${grouped(tail_slack_slots)} of them tail slack (${percentText(unused_share)}). `,
      );
    }
    if ("value" in best) {
      words.push(
        `At c = ${kv.cut(settings.c.trim())}, pages of ${grouped(best.value.page_size)} cost least.`,
      );
    }
    return words;
  }

  // ---------------------------------------------------------------- policies

  /**
   * Only asked for where an answer says that it is one.
   * @param {Settings} settings @returns {bigint}
   */
  const pageSizeOf = (settings) => kv.wholePageSize(kv.literal(settings.page_size));

  /** The ledgers that there are. @param {View} view @returns {Policy[]} */
  function policiesOf({ answers, settings }) {
    const found = [];
    if ("value" in answers.contiguous) {
      found.push({
        ...reservation(settings.reserve),
        ledger: answers.contiguous.value,
        bytes: answers.contiguous_bytes,
      });
    }
    if ("value" in answers.paged) {
      const page_size = pageSizeOf(settings);
      const held = (/** @type {bigint} */ tokens) =>
        ((tokens + page_size - 1n) / page_size) * page_size;
      const words = `ages of ${grouped(page_size)}`;
      const pages = {
        name: `p${words}`,
        title: `P${words}`,
        held,
        page_size,
        shared: 0n,
        spare: "slack",
      };
      found.push({ ...pages, ledger: answers.paged.value, bytes: answers.paged_bytes });
      const prefix = kv.literal(settings.prefix);
      if ("value" in answers.shared && BigInt(prefix)) {
        const name = `prefix of ${grouped(prefix)} shared`;
        found.push({
          ...pages,
          name,
          title: `${pages.title}, ${name}`,
          shared: (BigInt(prefix) / page_size) * page_size,
          ledger: answers.shared.value,
          bytes: answers.shared_bytes,
        });
      }
    }
    return found;
  }

  /** @param {string} reserve a setting that was found to be one */
  function reservation(reserve) {
    const value = kv.literal(reserve);
    const paper = { page_size: 0n, shared: 0n, spare: "reserved" };
    if (value === "pow2") {
      return {
        ...paper,
        name: "reserve next power of two",
        title: "Reserve the next power of two",
        held: kv.nextPowerOfTwo,
      };
    }
    if (value === "oracle") {
      return {
        ...paper,
        name: "reserve final length",
        title: "Reserve the final length",
        held: (/** @type {bigint} */ n) => n,
      };
    }
    const maximum = BigInt(value);
    const held = (/** @type {bigint} */ n) => (n <= maximum ? maximum : 0n); // what does not fit is refused
    return {
      ...paper,
      name: `reserve ${grouped(maximum)}`,
      title: `Reserve ${grouped(maximum)} each`,
      held,
    };
  }

  // ---------------------------------------------------------------- slots

  /** @param {View} view @param {Policy[]} policies */
  function slots({ answers, width, lengths }, policies) {
    if ("error" in answers.lengths) return [];
    const missing = notes([answers.contiguous, answers.paged, answers.shared]);
    if (!policies.length) return missing;
    const few = answers.lengths.value.requests <= MOST_REQUESTS ? inOrder(lengths()) : [];
    const small =
      few.length > 0 &&
      policies.every(({ held }) => few.every((n) => n <= MOST_SLOTS && held(n) <= MOST_SLOTS));
    const draw = small ? squaresIn(policies, few, width) : barsIn(policies, width);
    const panels = policies.map((policy) => {
      const { title, ledger: held } = policy;
      const heading = `${title}: ${plural(held.allocated_slots, "slot")} for ${plural(held.logical_tokens, "token")}`;
      const said = `${heading}. ${grouped(held.tail_slack_slots)} tail slack, ${grouped(held.reserved_slots)} reserved.`;
      return html(
        "div",
        { class: "kvx-panel" },
        html("h3", {}, heading),
        draw(policy, said),
        kv.key(keyOf(held, small)),
      );
    });
    const scale = html(
      "p",
      { class: "kvx-note" },
      "All on one scale. Up to a dozen short requests are drawn slot by slot.",
    );
    return [...panels, ...(small ? [] : [scale]), ...missing];
  }

  /** Why something is not there, each reason once. @param {any[]} answers */
  function notes(answers) {
    const reasons = new Set(answers.flatMap((answer) => ("error" in answer ? [answer.error] : [])));
    return [...reasons].map((reason) =>
      html("p", { class: "kvx-note kvx-missing" }, `Not computed: ${reason}`),
    );
  }

  /**
   * A few lengths, in the order of their requests where there is one.
   * @param {any} lengths @returns {bigint[]}
   */
  function inOrder(lengths) {
    if (!lengths.counts) return lengths.array().map(BigInt);
    const { tokens, requests } = lengths.table();
    return tokens.flatMap((/** @type {bigint} */ n, /** @type {number} */ i) =>
      Array(Number(requests[i])).fill(n),
    );
  }

  /**
   * How to draw a policy slot by slot, on one scale with the others.
   * @param {Policy[]} policies @param {bigint[]} few @param {number} width
   */
  function squaresIn(policies, few, width) {
    const span = (/** @type {Policy} */ { held, page_size }) =>
      Math.max(
        ...few.map((n) => {
          const many = Number(held(n));
          return many + (page_size ? Math.ceil(many / Number(page_size)) * kv.PAGE_GAP : 0);
        }),
      );
    const widest = Math.max(...policies.map(span));
    return (
      /** @type {Policy} */ { held, page_size, shared, spare },
      /** @type {string} */ said,
    ) => {
      const drawn = few.filter((n) => held(n));
      const rows = kv.layOut(
        drawn.map(Number),
        drawn.map((n) => Number(held(n))),
        Number(shared),
        spare,
      );
      return kv.squares(rows, drawn.map(Number), Number(page_size), widest, width, said);
    };
  }

  /**
   * How to draw a policy as one bar, on one scale with the others.
   * @param {Policy[]} policies @param {number} width
   */
  function barsIn(policies, width) {
    const whole = (/** @type {Policy} */ { ledger: held }) =>
      held.allocated_slots + held.shared_tokens;
    const widest = policies.map(whole).reduce((a, b) => (a > b ? a : b));
    return (/** @type {Policy} */ { ledger: held }, /** @type {string} */ said) => {
      const parts = [
        ["used", held.distinct_tokens],
        ["slack", held.tail_slack_slots],
        ["reserved", held.reserved_slots],
      ];
      return kv.bar(
        parts.filter(([, many]) => many).map(([part, many]) => ({ part, slots: many })),
        held.shared_tokens,
        widest,
        width,
        said,
      );
    };
  }

  /** What the colours mean, with counts. @param {any} held a ledger @param {boolean} small */
  function keyOf(held, small) {
    const sharing = small
      ? `${plural(held.shared_tokens, "position")} that point at shared pages`
      : `${grouped(held.shared_tokens)} spared by sharing`;
    const items = [
      { part: "used", many: held.distinct_tokens, words: `${grouped(held.distinct_tokens)} used` },
      {
        part: "slack",
        many: held.tail_slack_slots,
        words: `${grouped(held.tail_slack_slots)} tail slack`,
      },
      {
        part: "reserved",
        many: held.reserved_slots,
        words: `${grouped(held.reserved_slots)} reserved`,
      },
      { part: "shared", many: held.shared_tokens, words: sharing },
      {
        part: "none",
        many: held.refused_requests,
        words: `${plural(held.refused_requests, "request")} above the maximum, refused`,
      },
    ];
    return items.filter(({ many }) => many);
  }

  // ---------------------------------------------------------------- tables and curves

  /** @param {View} view @param {Policy[]} policies */
  function ledger({ answers }, policies) {
    if (!policies.length) return [];
    const names = [
      "requests",
      "logical_tokens",
      "shared_tokens",
      "distinct_tokens",
      "tail_slack_slots",
      "reserved_slots",
      "allocated_slots",
      "pages",
      "refused_requests",
      "refused_tokens",
    ];
    /** @type {(string|string[])[][]} */
    const rows = names
      .filter(
        (name) => !name.startsWith("refused") || policies.some(({ ledger: held }) => held[name]),
      )
      .map((name) => [name, ...policies.map(({ ledger: held }) => grouped(held[name]))]);
    rows.push([
      "unused_share",
      ...policies.map(({ ledger: held }) => percentText(held.unused_share)),
    ]);
    if ("value" in answers.bytes_per_token) {
      rows.push([
        "allocated_bytes",
        ...policies.map(({ bytes }) => [kv.iecText(bytes.value), grouped(bytes.value)]),
      ]);
    }
    const head = ["quantity", ...policies.map(({ name }) => name)];
    return [
      kv.table("Tokens and slots of each policy, at final lengths.", head, rows, { code: true }),
    ];
  }

  /** @param {View} view */
  function cost({ answers: { lengths, costs, best, near_best, paged }, settings, width }) {
    if ("error" in costs) return "error" in lengths ? [] : notes([costs]);
    const least = best.value.page_size;
    const words =
      `Pages of ${grouped(least)} cost least: ${kv.decimalText(best.value.cost)} slots. ` +
      `Within one percent of that: ${near_best.value.map(grouped).join(", ")}.`;
    const marks = {
      best: least,
      near: near_best.value,
      chosen: "value" in paged ? pageSizeOf(settings) : null,
    };
    const said = `Cost beyond the tokens against page size. ${words} The table below has every number.`;
    const rows = costs.value.map((/** @type {Tested} */ each) => [
      grouped(each.page_size),
      grouped(each.pages),
      grouped(each.tail_slack_slots),
      kv.decimalText(each.metadata),
      kv.decimalText(each.cost),
    ]);
    const table = kv.table(
      `If a page costs ${kv.cut(settings.c.trim())} slots: cost = logical tokens + tail slack + c × pages.`,
      ["page size", "pages", "tail slack", "c × pages", "cost"],
      rows,
    );
    const key = [
      ["best", "least cost"],
      ["total", "both together"],
      ["slack-line", "tail slack"],
      ["metadata-line", "c × pages"],
      ["near", "within one percent"],
      ["chosen", "page size set"],
    ];
    return [
      html("p", { class: "kvx-finding" }, words),
      html("p", { class: "kvx-axis-title" }, "slots beyond the tokens"),
      kv.curve(costs.value, marks, width, said),
      kv.key(key.map(([part, name]) => ({ part, words: name }))),
      folded("kvx-cost-table", "The numbers of this drawing", table),
    ];
  }

  /**
   * A part that stays folded or open when it is made again.
   * @param {string} id @param {string} words @param {Node} content
   */
  function folded(id, words, content) {
    const before = /** @type {HTMLDetailsElement|null} */ (document.getElementById(id));
    const made = html("details", { id }, html("summary", {}, words), content);
    made.toggleAttribute("open", Boolean(before?.open));
    return made;
  }

  /** @param {View} view */
  function envelope({ answers: { lengths, envelope: found, c, envelope_bytes }, width }) {
    if ("error" in found) return "error" in lengths ? [] : notes([found]);
    /** @type {Interval[]} */
    const intervals = found.value;
    const end = (/** @type {Fraction|null} */ f) =>
      f === null ? "∞" : f.d === 1n ? grouped(f.n) : [kv.decimalText(f), exactText(f)];
    const withBytes = "value" in envelope_bytes;
    const bytes = (/** @type {Fraction|null} */ f) => (f === null ? "∞" : kv.decimalText(f, 1));
    const rows = intervals.map(({ page_size, c_from, c_to }, i) => [
      grouped(page_size),
      end(c_from),
      end(c_to),
      ...(withBytes ? [bytes(envelope_bytes.value[i])] : []),
    ]);
    const said =
      `The best page size along the cost of a page: ${intervals.map((each) => grouped(each.page_size)).join(", ")}. ` +
      "The table below has where each begins and ends.";
    const head = [
      "best page size",
      "from c, slots",
      "to c, slots",
      ...(withBytes ? ["to, bytes a page"] : []),
    ];
    return [
      html("p", { class: "kvx-axis-title" }, "best page size, along the cost of a page c in slots"),
      kv.strip(intervals, "value" in c ? c.value : null, width, said),
      kv.table(
        "From which cost of a page, and below which, each page size is the best of those compared. Exact.",
        head,
        rows,
      ),
    ];
  }

  Object.assign(kv, { showAnswers });
})(globalThis.kvledgerExplorer);
