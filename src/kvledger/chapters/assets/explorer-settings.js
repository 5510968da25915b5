/* The explorer's settings, what is computed from them, and the link that holds them.
 *
 * A setting is a text, as it was typed and as the link has it. compute(settings) gives every answer
 * of the page, and touches nothing.
 */
"use strict";
/** @typedef {{[name: string]: string}} Settings */
(function (kv) {
  const data = globalThis.kvledgerExplorerData;
  const { LedgerError } = kv;

  const DEFAULTS = {
    lengths: "5, 9, 17",
    trace: "",
    file: "",
    of: "total",
    page_size: "4",
    c: "1/4",
    reserve: "32",
    prefix: "4",
    model: "Llama-3.1-8B",
    bytes_per_token: "",
    page_sizes: data.page_sizes.join(", "),
  };
  const LONGEST_LINK = 8000; // letters

  /**
   * An answer, or the message of what is wrong with the input.
   * @template T @param {() => T} answer @returns {{value: T}|{error: string}}
   */
  function attempt(answer) {
    try {
      return { value: answer() };
    } catch (error) {
      if (error instanceof LedgerError) return { error: error.message };
      throw error;
    }
  }

  /** text: a number, or two whole numbers with a stroke between them. */
  function readCost(text) {
    const parts = /^\s*(\d{1,400})\/(\d{1,400})\s*$/.exec(text);
    if (parts && BigInt(parts[2])) return kv.fraction(BigInt(parts[1]), BigInt(parts[2]));
    return kv.literal(text);
  }

  /** The lengths that settings name, or those of a file that was read. */
  function findLengths(settings, read) {
    if (read) return kv.lengthsOf(read, settings.of);
    if (settings.trace) {
      if (!Object.hasOwn(data.traces, settings.trace)) {
        const names = Object.keys(data.traces).join(", ");
        throw new LedgerError(
          `${settings.trace}: no such file and no such trace; accepted: a trace file, or one of ${names}`,
        );
      }
      return kv.unpack(data.traces[settings.trace][settings.of === "prompt" ? "prompt" : "total"]);
    }
    if (settings.file) {
      throw new LedgerError(`${settings.file}: a link holds no file; choose the file again`);
    }
    if (kv.looksLikeTrace(settings.lengths)) {
      return kv.lengthsOf(kv.readTrace(settings.lengths, "pasted text"), settings.of);
    }
    return new kv.Lengths(kv.typedLengths(settings.lengths));
  }

  /** The lengths that were asked for last. */
  let latest = { key: [], lengths: null };

  /**
   * As findLengths, which is asked again only if it would answer otherwise.
   * @param {Settings} settings @param {any} read
   */
  function lengthsFor(settings, read) {
    const key = [settings.lengths, settings.trace, settings.file, settings.of, read];
    if (!latest.lengths || key.some((part, i) => part !== latest.key[i])) {
      latest = { key, lengths: attempt(() => findLengths(settings, read)) };
    }
    if ("error" in latest.lengths) throw new LedgerError(latest.lengths.error);
    return latest.lengths.value;
  }

  function bytesPerToken(settings) {
    if (!settings.model) {
      return kv.whole(
        kv.literal(settings.bytes_per_token),
        "bytes_per_token",
        1n,
        "KV bytes per token are a whole number, at least 1",
      );
    }
    if (Object.hasOwn(data.models, settings.model))
      return BigInt(data.models[settings.model].bytes);
    const names = Object.keys(data.models).join(", ");
    throw new LedgerError(
      `model is ${kv.shown(settings.model)}; known are: ${names}, or give its bytes_per_token`,
    );
  }

  /**
   * Every answer of the explorer, each of them a value or an error.
   * @param {Settings} given settings by name; what is not given is as on a fresh page
   * @param {any} [read] what readTrace made of a file, in place of typed lengths
   */
  function compute(given, read = null) {
    const settings = { ...DEFAULTS, over_maximum: "error", ...given };
    const lengths = () => lengthsFor(settings, read);
    const texts = [settings.page_size, settings.prefix, settings.reserve];
    const [pageSize, prefix, reserve] = texts.map(kv.literal);
    const c = readCost(settings.c);
    const pageSizes = kv.typedNumbers(settings.page_sizes);
    const valueOf = (answer) => {
      if ("error" in answer) throw new LedgerError(answer.error);
      return answer.value;
    };
    const bytes = attempt(() => bytesPerToken(settings));
    const ledgers = {
      contiguous: attempt(() => kv.contiguous(lengths(), reserve, settings.over_maximum)),
      paged: attempt(() => kv.paged(lengths(), pageSize)),
      shared: attempt(() => kv.shared(lengths(), pageSize, prefix)),
    };
    const tested = attempt(() => kv.costs(lengths(), c, pageSizes));
    const envelope = attempt(() => kv.envelope(lengths(), pageSizes));
    const held = (ledger) => attempt(() => valueOf(ledger).allocated_slots * valueOf(bytes));
    return {
      lengths: attempt(() => {
        const { tokens, n, total } = lengths().table();
        const ends = { shortest: tokens[0], longest: tokens[tokens.length - 1] };
        return { requests: n, logical_tokens: total, ...ends };
      }),
      ...ledgers,
      c: attempt(() => kv.exactCost(c)),
      cost: attempt(() => kv.cost(lengths(), pageSize, c)),
      costs: tested,
      best: attempt(() => {
        const { page_size, cost } = kv.best(valueOf(tested));
        return { page_size, cost };
      }),
      near_best: attempt(() => kv.nearBest(valueOf(tested))),
      envelope,
      bytes_per_token: bytes,
      contiguous_bytes: held(ledgers.contiguous),
      paged_bytes: held(ledgers.paged),
      shared_bytes: held(ledgers.shared),
      // Of a page, where the answer changes: null where it never does.
      envelope_bytes: attempt(() =>
        valueOf(envelope).map(({ c_to }) => c_to && kv.times(c_to, kv.fraction(valueOf(bytes)))),
      ),
    };
  }

  const inLink = (text) =>
    encodeURIComponent(text).replace(/%2C/g, ",").replace(/%2F/g, "/").replace(/%20/g, "+");

  /**
   * The settings as the part of an address after #, or null where they do not fit.
   * @param {Settings} settings
   */
  function linkOf(settings) {
    if (Object.values(settings).some((value) => value.length > LONGEST_LINK)) return null;
    const kept = Object.entries(settings).filter(([name, value]) =>
      name === "lengths"
        ? !settings.trace && !settings.file
        : name === "bytes_per_token"
          ? !settings.model
          : value || !["trace", "file", "model"].includes(name),
    );
    const tight = kept.map(([name, value]) => [
      name,
      name === "lengths" || name === "page_sizes" ? value.replace(/, +/g, ",") : value,
    ]);
    const link = `#${tight.map(([name, value]) => `${name}=${inLink(value)}`).join("&")}`;
    return link.length > LONGEST_LINK ? null : link;
  }

  /**
   * The settings that a link holds, and what is wrong with it, if anything is.
   * @param {string} hash @returns {{settings: Settings, problem: string|null}}
   */
  function readLink(hash) {
    const settings = {};
    let problem = null;
    for (const [name, value] of new URLSearchParams(hash.slice(1))) {
      if (!Object.hasOwn(DEFAULTS, name)) {
        problem ??= `this link has a setting ${kv.shown(name)}; accepted: ${Object.keys(DEFAULTS).join(", ")}`;
      } else if (Object.hasOwn(settings, name)) {
        problem ??= `this link has ${name} twice; accepted: each setting once`;
      } else if (name === "of" && value !== "total" && value !== "prompt") {
        problem ??= `of is ${kv.shown(value)}; accepted: total, prompt`;
      } else settings[name] = value;
    }
    const sources = ["lengths", "trace", "file"].filter((name) => settings[name]);
    if (sources.length > 1) {
      problem ??= `this link has ${sources.join(" and ")}; accepted: one of lengths, trace, file`;
      for (const name of sources.slice(1)) delete settings[name];
    }
    if (settings.bytes_per_token !== undefined && settings.model === undefined) settings.model = "";
    return { settings, problem };
  }

  Object.assign(kv, { DEFAULTS, attempt, compute, lengthsFor, linkOf, readLink });
})(globalThis.kvledgerExplorer);
