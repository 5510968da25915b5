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

  /** Only asked for where an answer says that it is one. */
  const pageSizeOf = (settings) => kv.wholePageSize(kv.literal(settings.page_size));

  /** The ledgers that there are. */
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
      const held = (tokens) => ((tokens + page_size - 1n) / page_size) * page_size;
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

  /** reserve: a setting that was found to be one. */
  function reservation(reserve) {
    const value = kv.literal(reserve);
    const paper = { page_size: 0n, shared: 0n, spare: "reserved" };
    const made = (name, title, held) => ({ ...paper, name, title, held });
    if (value === "pow2") {
      return made("reserve next power of two", "Reserve the next power of two", kv.nextPowerOfTwo);
    }
    if (value === "oracle") {
      return made("reserve final length", "Reserve the final length", (n) => n);
    }
    const maximum = BigInt(value);
    const held = (n) => (n <= maximum ? maximum : 0n); // what does not fit is refused
    return made(`reserve ${grouped(maximum)}`, `Reserve ${grouped(maximum)} each`, held);
  }

  // ---------------------------------------------------------------- slots

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
      const shown = [html("h3", {}, heading), draw(policy, said), kv.key(keyOf(held, small))];
      return html("div", { class: "kvx-panel" }, ...shown);
    });
    const words = "All on one scale. Up to a dozen short requests are drawn slot by slot.";
    const scale = html("p", { class: "kvx-note" }, words);
    return [...panels, ...(small ? [] : [scale]), ...missing];
  }

  /** Why something is not there, each reason once. */
  function notes(answers) {
    const reasons = new Set(answers.flatMap((answer) => ("error" in answer ? [answer.error] : [])));
    return [...reasons].map((reason) =>
      html("p", { class: "kvx-note kvx-missing" }, `Not computed: ${reason}`),
    );
  }

  /** A few lengths, in the order of their requests where there is one. */
  function inOrder(lengths) {
    if (!lengths.counts) return lengths.array().map(BigInt);
    const { tokens, requests } = lengths.table();
    return tokens.flatMap((n, i) => Array(Number(requests[i])).fill(n));
  }

  /** How to draw a policy slot by slot, on one scale with the others. */
  function squaresIn(policies, few, width) {
    const span = ({ held, page_size }) =>
      Math.max(
        ...few.map((n) => {
          const many = Number(held(n));
          return many + (page_size ? Math.ceil(many / Number(page_size)) * kv.PAGE_GAP : 0);
        }),
      );
    const widest = Math.max(...policies.map(span));
    return ({ held, page_size, shared, spare }, said) => {
      const drawn = few.filter((n) => held(n));
      const [tokens, slots] = [drawn.map(Number), drawn.map((n) => Number(held(n)))];
      const rows = kv.layOut(tokens, slots, Number(shared), spare);
      return kv.squares(rows, tokens, Number(page_size), widest, width, said);
    };
  }

  /** How to draw a policy as one bar, on one scale with the others. */
  function barsIn(policies, width) {
    const whole = ({ ledger: held }) => held.allocated_slots + held.shared_tokens;
    const widest = policies.map(whole).reduce((a, b) => (a > b ? a : b));
    return ({ ledger: held }, said) => {
      const parts = [
        { part: "used", slots: held.distinct_tokens },
        { part: "slack", slots: held.tail_slack_slots },
        { part: "reserved", slots: held.reserved_slots },
      ].filter(({ slots }) => slots);
      return kv.bar(parts, held.shared_tokens, widest, width, said);
    };
  }

  /** What the colours of a ledger mean, with counts. */
  function keyOf(held, small) {
    const sharing = small
      ? `${plural(held.shared_tokens, "position")} that point at shared pages`
      : `${grouped(held.shared_tokens)} spared by sharing`;
    const refused = `${plural(held.refused_requests, "request")} above the maximum, refused`;
    const items = [
      ["used", held.distinct_tokens, `${grouped(held.distinct_tokens)} used`],
      ["slack", held.tail_slack_slots, `${grouped(held.tail_slack_slots)} tail slack`],
      ["reserved", held.reserved_slots, `${grouped(held.reserved_slots)} reserved`],
      ["shared", held.shared_tokens, sharing],
      ["none", held.refused_requests, refused],
    ];
    return items.filter(([, many]) => many).map(([part, , words]) => [part, words]);
  }

  // ---------------------------------------------------------------- tables and curves

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
    const ledgers = policies.map((policy) => policy.ledger);
    const rows = names
      .filter((name) => !name.startsWith("refused") || ledgers.some((held) => held[name]))
      .map((name) => [name, ...ledgers.map((held) => grouped(held[name]))]);
    rows.push(["unused_share", ...ledgers.map((held) => percentText(held.unused_share))]);
    if ("value" in answers.bytes_per_token) {
      const cells = policies.map(({ bytes }) => [kv.iecText(bytes.value), grouped(bytes.value)]);
      rows.push(["allocated_bytes", ...cells]);
    }
    const head = ["quantity", ...policies.map(({ name }) => name)];
    const caption = "Tokens and slots of each policy, at final lengths.";
    return [kv.table(caption, head, rows, { code: true })];
  }

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
    const rows = costs.value.map((each) => [
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
      kv.key(key),
      folded("kvx-cost-table", "The numbers of this drawing", table),
    ];
  }

  /** A part that stays folded or open when it is made again. */
  function folded(id, words, content) {
    const before = document.getElementById(id);
    const made = html("details", { id }, html("summary", {}, words), content);
    made.toggleAttribute("open", Boolean(before?.open));
    return made;
  }

  function envelope({ answers: { lengths, envelope: found, c, envelope_bytes }, width }) {
    if ("error" in found) return "error" in lengths ? [] : notes([found]);
    const intervals = found.value;
    const end = (f) =>
      f === null ? "∞" : f.d === 1n ? grouped(f.n) : [kv.decimalText(f), exactText(f)];
    const withBytes = "value" in envelope_bytes;
    const bytes = (f) => (f === null ? "∞" : kv.decimalText(f, 1));
    const rows = intervals.map(({ page_size, c_from, c_to }, i) => {
      const row = [grouped(page_size), end(c_from), end(c_to)];
      return withBytes ? [...row, bytes(envelope_bytes.value[i])] : row;
    });
    const said =
      `The best page size along the cost of a page: ${intervals.map((each) => grouped(each.page_size)).join(", ")}. ` +
      "The table below has where each begins and ends.";
    const head = ["best page size", "from c, slots", "to c, slots"];
    if (withBytes) head.push("to, bytes a page");
    const caption =
      "From which cost of a page, and below which, each page size is the best of those compared. Exact.";
    return [
      html("p", { class: "kvx-axis-title" }, "best page size, along the cost of a page c in slots"),
      kv.strip(intervals, "value" in c ? c.value : null, width, said),
      kv.table(caption, head, rows),
    ];
  }

  Object.assign(kv, { showAnswers });
})(globalThis.kvledgerExplorer);
