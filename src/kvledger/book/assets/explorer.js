/* The explorer itself: settings, what is computed from them, the link that holds them, and the page.
 *
 * A setting is a text, as it was typed and as the link has it. kvledgerExplorer.compute(settings)
 * gives every answer of the page and touches nothing.
 */
"use strict";
(function (kv) {
  const data = globalThis.kvledgerExplorerData;
  const { LedgerError } = kv;
  /** @typedef {{[name: string]: string}} Settings */

  /** @type {Settings} */
  const DEFAULTS = {
    lengths: "5, 9, 17", trace: "", file: "", of: "total", page_size: "4", c: "1/4", reserve: "32", prefix: "4",
    model: "Llama-3.1-8B", bytes_per_token: "", page_sizes: data.page_sizes.join(", "),
  };
  const SLIDERS = {
    page_size: { least: 0, most: 12, none: false },
    c: { least: -18, most: 12, none: true },
    reserve: { least: 0, most: 18, none: false },
  };
  const LONGEST_LINK = 8000; // letters
  const LINK_DELAY_MS = 250; // browsers stop a page that changes its address too often

  // ---------------------------------------------------------------- computing

  /**
   * An answer, or the message of what is wrong with the input.
   * @template T @param {() => T} answer @returns {{value: T}|{error: string}}
   */
  function attempt(answer) {
    try {
      return { value: answer() };
    } catch (error) {
      if (error instanceof LedgerError) return { error: /** @type {Error} */ (error).message };
      throw error;
    }
  }

  /** @param {string} text a number, or two whole numbers with a stroke between them */
  function readCost(text) {
    const parts = /^\s*(\d{1,400})\/(\d{1,400})\s*$/.exec(text);
    if (parts && BigInt(parts[2])) return kv.fraction(BigInt(parts[1]), BigInt(parts[2]));
    return kv.literal(text);
  }

  /** The lengths that settings name. @param {Settings} settings @param {any} read a file that was read */
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
    if (kv.looksLikeFile(settings.lengths)) {
      return kv.lengthsOf(kv.readTrace(settings.lengths, "pasted text"), settings.of);
    }
    return new kv.Lengths(kv.typedNumbers(settings.lengths));
  }

  /** @type {{key: any[], lengths: any}} the lengths that were asked for last */
  let latest = { key: [], lengths: null };

  /** As findLengths, which is asked again only if it would answer otherwise. @param {Settings} settings @param {any} read */
  function lengthsFor(settings, read) {
    const key = [settings.lengths, settings.trace, settings.file, settings.of, read];
    if (!latest.lengths || key.some((part, i) => part !== latest.key[i])) {
      latest = { key, lengths: attempt(() => findLengths(settings, read)) };
    }
    if ("error" in latest.lengths) throw new LedgerError(latest.lengths.error);
    return latest.lengths.value;
  }

  /** @param {Settings} settings @returns {bigint} */
  function bytesPerToken(settings) {
    if (!settings.model) {
      return kv.whole(kv.literal(settings.bytes_per_token), "bytes_per_token", 1n,
                      "KV bytes per token are a whole number, at least 1");
    }
    if (Object.hasOwn(data.models, settings.model)) return BigInt(data.models[settings.model].bytes);
    const names = Object.keys(data.models).join(", ");
    throw new LedgerError(`model is ${kv.shown(settings.model)}; known are: ${names}, or give its bytes_per_token`);
  }

  /**
   * Every answer of the explorer, each of them a value or an error.
   * @param {Settings} given settings by name; what is not given is as on a fresh page
   * @param {any} [read] what readTrace made of a file, in place of typed lengths
   */
  function compute(given, read = null) {
    /** @type {Settings} */
    const settings = { ...DEFAULTS, over_maximum: "error", ...given };
    const lengths = () => lengthsFor(settings, read);
    const [pageSize, prefix, reserve] = [settings.page_size, settings.prefix, settings.reserve].map(kv.literal);
    const c = readCost(settings.c);
    const pageSizes = kv.typedNumbers(settings.page_sizes).map(wholeNumber);
    const tested = attempt(() => kv.costs(lengths(), c, pageSizes));
    const costs = () => {
      if ("error" in tested) throw new LedgerError(tested.error);
      return tested.value;
    };
    const answers = {
      lengths: attempt(() => {
        const { tokens, n, total } = lengths().table();
        return { requests: n, logical_tokens: total, shortest: tokens[0], longest: tokens[tokens.length - 1] };
      }),
      contiguous: attempt(() => kv.contiguous(lengths(), reserve, settings.over_maximum)),
      paged: attempt(() => kv.paged(lengths(), pageSize)),
      shared: attempt(() => kv.shared(lengths(), pageSize, prefix)),
      c: attempt(() => kv.exactCost(c)),
      cost: attempt(() => kv.cost(lengths(), pageSize, c)),
      costs: tested,
      best: attempt(() => {
        const { page_size, cost } = kv.best(costs());
        return { page_size, cost };
      }),
      near_best: attempt(() => kv.nearBest(costs())),
      envelope: attempt(() => kv.envelope(lengths(), pageSizes)),
      bytes_per_token: attempt(() => bytesPerToken(settings)),
    };
    return answers;
  }

  /** A number of a list of page sizes, which are few: exact at once. @param {any} value */
  const wholeNumber = (value) => (typeof value === "number" && Number.isSafeInteger(value) ? BigInt(value) : value);

  // ---------------------------------------------------------------- the link

  /** @param {string} text */
  const inLink = (text) => encodeURIComponent(text).replace(/%2C/g, ",").replace(/%2F/g, "/").replace(/%20/g, "+");

  /** The settings as the part of an address after #, or null where they do not fit. @param {Settings} settings */
  function linkOf(settings) {
    const kept = Object.entries(settings).filter(([name, value]) => (
      name === "lengths" ? !settings.trace && !settings.file
        : name === "bytes_per_token" ? !settings.model
          : value || !["trace", "file", "model"].includes(name)));
    const tight = kept.map(([name, value]) => [name, name === "lengths" || name === "page_sizes" ? value.replace(/,\s+/g, ",") : value]);
    const link = `#${tight.map(([name, value]) => `${name}=${inLink(value)}`).join("&")}`;
    return link.length > LONGEST_LINK ? null : link;
  }

  /**
   * The settings that a link holds, and what is wrong with it, if anything is.
   * @param {string} hash @returns {{settings: Settings, problem: string|null}}
   */
  function readLink(hash) {
    /** @type {Settings} */
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

  // ---------------------------------------------------------------- the page

  /** The parts of the page by their ids, without kvx-. @param {string} id @returns {any} */
  const $ = (id) => document.getElementById(`kvx-${id}`);

  /** @type {Settings} */
  let settings = { ...DEFAULTS };
  /** @type {any} the file that was read last */
  let file = null;
  /** @type {string|null} what is wrong with the link or the file, until the next change */
  let problem = null;
  let waiting = 0;

  const TYPED = ["lengths", "page_size", "c", "reserve", "prefix", "bytes_per_token", "page_sizes"];

  /** Fill lists, set the sliders' ends, and listen. */
  function start() {
    if (!$("form")) return;
    const option = (/** @type {string} */ value, /** @type {string} */ words) => kv.html("option", { value }, words);
    const traces = Object.entries(data.traces).map(([name, trace]) => option(`trace:${name}`, trace.label));
    $("source").append(option("typed", "your own, typed below"),
      kv.html("optgroup", { label: "Traces of this book" }, ...traces));
    $("model").append(...Object.keys(data.models).map((name) => option(name, name)), option("", "another: give its bytes"));
    for (const [name, { least, most, none }] of Object.entries(SLIDERS)) {
      Object.assign($(`${name}-slider`), { min: least - (none ? 1 : 0), max: most, step: 1 });
    }
    for (const name of TYPED) {
      $(name).addEventListener("input", () => change(typedChange(name, $(name).value)));
    }
    for (const name of Object.keys(SLIDERS)) {
      $(`${name}-slider`).addEventListener("input", () => change({ [name]: sliderText(name, $(`${name}-slider`).value) }));
    }
    $("prefix-slider").addEventListener("input", () => change({ prefix: $("prefix-slider").value }));
    $("source").addEventListener("change", () => chooseSource($("source").value));
    $("policy").addEventListener("change", () => {
      const policy = $("policy").value;
      change({ reserve: policy === "slots" ? DEFAULTS.reserve : policy });
      if (policy === "slots") raiseMaximum();
    });
    $("model").addEventListener("change", () => {
      const bytes = settings.model in data.models ? data.models[settings.model].bytes : settings.bytes_per_token;
      change({ model: $("model").value, bytes_per_token: $("model").value ? "" : bytes });
    });
    for (const choice of $("of").querySelectorAll("input")) {
      choice.addEventListener("change", () => change({ of: choice.value }));
    }
    $("file").addEventListener("change", () => readFile($("file").files[0]));
    listenForDrops();
    $("form").addEventListener("submit", (/** @type {Event} */ event) => event.preventDefault());
    $("form").addEventListener("reset", (/** @type {Event} */ event) => {
      event.preventDefault();
      [file, problem] = [null, null];
      $("file").value = "";
      change(DEFAULTS);
    });
    globalThis.addEventListener("hashchange", () => restore(location.hash));
    // Drawings are as wide as their place, so that letters stay as large as the page's.
    new ResizeObserver(() => show()).observe($("slots"));
    document.getElementById("kvledger-explorer")?.removeAttribute("hidden");
    if (!restore(location.hash)) show();
  }

  /** @param {string} name @param {string} value @returns {Settings} */
  function typedChange(name, value) {
    if (name === "lengths") return { lengths: value, trace: "", file: "" };
    if (name === "bytes_per_token") return { model: "", bytes_per_token: value };
    return { [name]: value };
  }

  /** @param {string} name @param {string} position */
  function sliderText(name, position) {
    const power = Number(position);
    const { least, none } = SLIDERS[/** @type {keyof typeof SLIDERS} */ (name)];
    if (none && power < least) return "0";
    return power < 0 ? `1/${2 ** -power}` : String(2 ** power);
  }

  /** @param {string} name @param {number} value @returns {number} the nearest position */
  function sliderPosition(name, value) {
    const { least, most, none } = SLIDERS[/** @type {keyof typeof SLIDERS} */ (name)];
    if (!(value > 0)) return none ? least - 1 : least;
    return Math.min(Math.max(Math.round(Math.log2(value)), least), most);
  }

  /** @param {string} source "typed", "file" or a trace */
  function chooseSource(source) {
    if (source === "typed") change({ trace: "", file: "" });
    else if (source === "file") change({ trace: "", file: file.name });
    else change({ trace: source.slice("trace:".length), file: "" });
    raiseMaximum();
  }

  /** A maximum below the longest of new requests would refuse them: raise it to that. */
  function raiseMaximum() {
    const { lengths } = compute(settings, readNow());
    const maximum = kv.literal(settings.reserve);
    if ("value" in lengths && typeof maximum === "bigint" && maximum < lengths.value.longest) {
      change({ reserve: String(lengths.value.longest) });
    }
  }

  /** The file in use, if one is. */
  const readNow = () => (settings.file && file && file.name === settings.file ? file : null);

  function listenForDrops() {
    const place = /** @type {HTMLElement} */ (document.getElementById("kvledger-explorer"));
    place.addEventListener("dragover", (event) => {
      event.preventDefault();
      place.classList.add("kvx-dragging");
    });
    place.addEventListener("dragleave", () => place.classList.remove("kvx-dragging"));
    place.addEventListener("drop", (event) => {
      event.preventDefault();
      place.classList.remove("kvx-dragging");
      const [dropped] = event.dataTransfer?.files || [];
      if (dropped) readFile(dropped);
    });
  }

  /** @param {File|undefined} chosen */
  function readFile(chosen) {
    if (!chosen) return;
    const fail = (/** @type {string} */ message) => {
      problem = message;
      show();
    };
    if (chosen.size > kv.LARGEST_FILE) {
      fail(`${chosen.name}: ${kv.grouped(chosen.size)} bytes; accepted here: up to ` +
        `${kv.grouped(kv.LARGEST_FILE)} bytes (the command line reads larger files)`);
      return;
    }
    const reader = new FileReader();
    reader.addEventListener("error", () => fail(`${chosen.name}: cannot be read`));
    reader.addEventListener("load", () => {
      const result = attempt(() => kv.readTrace(kv.decode(/** @type {ArrayBuffer} */ (reader.result), chosen.name), chosen.name));
      if ("error" in result) fail(result.error);
      else {
        file = result.value;
        chooseSource("file");
      }
    });
    reader.readAsArrayBuffer(chosen);
  }

  /** Take settings from a link; anything else after # is a place on the page. @param {string} hash */
  function restore(hash) {
    if (!hash.includes("=") || hash === linkOf(settings)) return false;
    const link = readLink(hash);
    settings = { ...DEFAULTS, ...link.settings };
    problem = link.problem;
    show();
    return true;
  }

  /** @param {Settings} changed */
  function change(changed) {
    settings = { ...settings, ...changed };
    problem = null;
    show();
    clearTimeout(waiting);
    waiting = setTimeout(() => {
      const link = linkOf(settings);
      if (link) history.replaceState(null, "", link);
    }, LINK_DELAY_MS);
  }

  // ---------------------------------------------------------------- showing

  /** Show the settings and all that follows from them. */
  function show() {
    const answers = compute({ ...settings, over_maximum: "count" }, readNow());
    showSettings(answers);
    showErrors(answers);
    const width = Math.max($("slots").clientWidth, 200);
    $("summary").replaceChildren(...summary(answers));
    $("slots").replaceChildren(...slots(answers, width));
    $("ledger").replaceChildren(...ledger(answers));
    $("cost").replaceChildren(...costs(answers, width));
    $("envelope").replaceChildren(...envelope(answers, width));
  }

  /** @param {string} id @param {string} value typed text is left alone, so that the cursor stays */
  const set = (id, value) => {
    if ($(id).value !== value) $(id).value = value;
  };

  /** @param {any} answers */
  function showSettings({ lengths, c, bytes_per_token }) {
    const read = readNow();
    const fileOption = $("source").querySelector('[value="file"]');
    if (file && !fileOption) $("source").append(kv.html("option", { value: "file" }, file.name));
    else if (file) fileOption.textContent = file.name;
    const typed = !settings.trace && !read;
    $("source").value = settings.trace ? `trace:${settings.trace}` : read ? "file" : "typed";
    $("own").hidden = !typed;
    $("of").hidden = !settings.trace && !(read && read.output.some((/** @type {bigint} */ output) => output));
    for (const choice of $("of").querySelectorAll("input")) choice.checked = choice.value === settings.of;
    for (const name of TYPED) set(name, settings[name]);
    const numeric = settings.reserve !== "pow2" && settings.reserve !== "oracle";
    $("policy").value = numeric ? "slots" : settings.reserve;
    $("maximum").hidden = !numeric;
    $("model").value = settings.model in data.models ? settings.model : "";
    if (settings.model && "value" in bytes_per_token) set("bytes_per_token", String(bytes_per_token.value));
    const windowed = settings.model && data.models[settings.model]?.windowed;
    $("model-note").textContent = windowed ? "Window layers are counted in full, as one page size for all layers does." : "";
    for (const name of Object.keys(SLIDERS)) {
      const value = name === "c" && "value" in c ? Number(c.value.n) / Number(c.value.d) : Number(settings[name]);
      set(`${name}-slider`, String(sliderPosition(name, value)));
      $(`${name}-slider`).setAttribute("aria-valuetext", `${settings[name]} slots`);
    }
    const shortest = "value" in lengths ? Number(lengths.value.shortest) : 1;
    $("prefix-slider").max = String(shortest);
    set("prefix-slider", String(Math.min(Number(settings.prefix) || 0, shortest)));
    $("prefix-slider").setAttribute("aria-valuetext", `${settings.prefix} tokens`);
    $("about").textContent = read ? aboutFile(read) : typed ? "Numbers, or a trace as CSV or JSONL. All of it stays in your browser." : "";
    const link = linkOf(settings);
    $("link").hidden = !link;
    $("link").href = link || "#";
    $("link-note").textContent = link ? (read ? "The link holds the file's name and not its content." : "")
      : "These are too many lengths for a link.";
  }

  /** @param {any} read */
  function aboutFile(read) {
    const failed = read.failed ? `, ${kv.grouped(read.failed)} failed ones left out` : "";
    return `${read.name}: ${kv.grouped(read.prompt.length)} requests, read as ${read.format}${failed}. It was read here and went nowhere.`;
  }

  /** The setting that an error is about. @param {string} answer @param {string} message */
  function settingOf(answer, message) {
    const [first] = message.split(" ", 1);
    if (answer === "bytes_per_token") return "bytes_per_token";
    if (["costs", "best", "near_best", "envelope"].includes(answer) && first.startsWith("page_size")) return "page_sizes";
    return ["page_size", "prefix", "reserve", "c"].includes(first) ? first : "lengths";
  }

  /** Put each error at the setting that it is about. @param {{[name: string]: any}} answers */
  function showErrors(answers) {
    /** @type {{[setting: string]: string}} */
    const messages = {};
    for (const [name, answer] of Object.entries(answers)) {
      if ("error" in answer) messages[settingOf(name, answer.error)] ??= answer.error;
    }
    for (const name of TYPED) {
      const place = $(`${name}-error`);
      const message = messages[name] || "";
      if (place.textContent !== message) place.textContent = message;
      place.hidden = !message;
      $(name).setAttribute("aria-invalid", String(Boolean(message)));
      if (message) $(name).setAttribute("aria-describedby", place.id);
      else $(name).removeAttribute("aria-describedby");
    }
    if ($("problem").textContent !== (problem || "")) $("problem").textContent = problem || "";
    $("problem").hidden = !problem;
  }

  /** @param {bigint} n @param {string} one @param {string} [many] */
  const plural = (n, one, many = `${one}s`) => `${kv.grouped(n)} ${n === 1n ? one : many}`;

  /** @param {any} answers */
  function summary({ lengths, paged, best, c }) {
    if ("error" in lengths) return ["Nothing to compute: ", lengths.error];
    const words = [`${plural(lengths.value.requests, "request")}, ${plural(lengths.value.logical_tokens, "token")}. `];
    if ("value" in paged) {
      const { allocated_slots, tail_slack_slots, unused_share } = paged.value;
      words.push(`In pages of ${kv.grouped(pageSizeNow())} they hold ${plural(allocated_slots, "slot")}, ` +
        `${kv.grouped(tail_slack_slots)} of them tail slack (${kv.percentText(unused_share)}). `);
    }
    if ("value" in best) {
      words.push(`At c = ${kv.exactText(c.value)}, pages of ${kv.grouped(best.value.page_size)} cost least.`);
    }
    return words;
  }

  // What is set, as a number; only asked for where an answer says that it is one.
  /** @returns {bigint} */
  const pageSizeNow = () => kv.wholePageSize(kv.literal(settings.page_size));
  /** @returns {bigint} */
  const prefixNow = () => kv.whole(kv.literal(settings.prefix), "prefix", 0n, "");
  /** @returns {bigint} */
  const maximumNow = () => kv.whole(kv.literal(settings.reserve), "reserve", 1n, "");

  /** What to call each ledger, and its answer, as far as there are such. @param {any} answers */
  function policies({ contiguous, paged, shared }) {
    const found = [];
    if ("value" in contiguous) {
      const reserve = kv.literal(settings.reserve);
      const words = reserve === "pow2" ? "next power of two" : reserve === "oracle" ? "final length" : kv.grouped(maximumNow());
      found.push({ policy: "contiguous", name: `reserve ${words}`, title: `Reserve ${words}${typeof reserve === "string" ? "" : " each"}`, ledger: contiguous.value });
    }
    if ("value" in paged) {
      const words = `ages of ${kv.grouped(pageSizeNow())}`;
      found.push({ policy: "paged", name: `p${words}`, title: `P${words}`, ledger: paged.value });
      if ("value" in shared && prefixNow()) {
        const start = `prefix of ${kv.grouped(prefixNow())} shared`;
        found.push({ policy: "shared", name: start, title: `P${words}, ${start}`, ledger: shared.value });
      }
    }
    return found;
  }

  /** @param {any} answers @param {number} width */
  function slots(answers, width) {
    const shownPolicies = policies(answers);
    if (!shownPolicies.length) return [];
    const source = lengthsFor(settings, readNow());
    const table = source.table();
    const size = "value" in answers.paged ? pageSizeNow() : 1n;
    const longest = table.tokens[table.tokens.length - 1];
    const rows = (/** @type {string} */ policy) => heldSlots(policy, table.n <= 64n ? list(source) : [], size);
    const small = table.n <= 64n && kv.canDrawSlots(table, shownPolicies.reduce(
      (/** @type {bigint} */ most, { policy }) => rows(policy).reduce((a, b) => (b > a ? b : a), most), longest));
    const widest = shownPolicies.reduce((most, { ledger: { allocated_slots, shared_tokens } }) => (
      allocated_slots + shared_tokens > most ? allocated_slots + shared_tokens : most), 0n);
    const slotWidth = small ? Math.max(...shownPolicies.flatMap(({ policy }) => rows(policy).map((held) => (
      Number(held) + (policy === "contiguous" ? 0 : Math.ceil(Number(held) / Number(size)) * kv.PAGE_GAP))))) : 0;
    const panels = shownPolicies.map(({ policy, title, ledger: held }) => {
      const heading = `${title}: ${plural(held.allocated_slots, "slot")} for ${plural(held.logical_tokens, "token")}`;
      const said = `${heading}. ${kv.grouped(held.tail_slack_slots)} tail slack, ${kv.grouped(held.reserved_slots)} reserved.`;
      const made = small
        ? squaresOf(policy, list(source), rows(policy), size, { width, slotWidth, said })
        : kv.bar(partsOf(held), held.shared_tokens, widest, width, said);
      return kv.html("div", { class: "kvx-panel" }, kv.html("h3", {}, heading), made, kv.key(keyOf(held, small)));
    });
    if (small) return panels;
    return [...panels, kv.html("p", { class: "kvx-note" }, "All on one scale. Up to a dozen short requests are drawn slot by slot.")];
  }

  /** Few lengths, in order. @param {any} source @returns {bigint[]} */
  function list(source) {
    if (!source.counts) return source.array().map(BigInt);
    const { tokens, requests } = source.table();
    return tokens.flatMap((/** @type {bigint} */ n, /** @type {number} */ i) => Array(Number(requests[i])).fill(n));
  }

  /** Slots of each request. @param {string} policy @param {bigint[]} lengths @param {bigint} pageSize */
  function heldSlots(policy, lengths, pageSize) {
    if (policy !== "contiguous") return lengths.map((n) => ((n + pageSize - 1n) / pageSize) * pageSize);
    return lengths.map((n) => kv.contiguous(new kv.Lengths([n]), kv.literal(settings.reserve), "count").allocated_slots);
  }

  /** @param {string} policy @param {bigint[]} lengths @param {bigint[]} held @param {bigint} pageSize @param {any} look */
  function squaresOf(policy, lengths, held, pageSize, { width, slotWidth, said }) {
    const shared = policy === "shared" ? Number((prefixNow() / pageSize) * pageSize) : 0;
    const kept = lengths.map((n, i) => ({ n: Number(n), held: Number(held[i]) })).filter((row) => row.held);
    const spare = policy === "contiguous" ? "reserved" : "slack";
    const rows = kv.layOut(kept.map((row) => row.n), kept.map((row) => row.held), shared, spare);
    return kv.squares(rows, kept.map((row) => row.n), policy === "contiguous" ? 0 : Number(pageSize), slotWidth, width, said);
  }

  /** @param {any} held a ledger */
  const partsOf = (held) => [
    { part: "used", slots: held.distinct_tokens },
    { part: "slack", slots: held.tail_slack_slots },
    { part: "reserved", slots: held.reserved_slots },
  ].filter(({ slots: many }) => many);

  /** @param {any} held a ledger @param {boolean} small */
  function keyOf(held, small) {
    const items = [{ part: "used", words: `${kv.grouped(held.distinct_tokens)} used` }];
    if (held.tail_slack_slots) items.push({ part: "slack", words: `${kv.grouped(held.tail_slack_slots)} tail slack` });
    if (held.reserved_slots) items.push({ part: "reserved", words: `${kv.grouped(held.reserved_slots)} reserved` });
    if (held.shared_tokens) {
      items.push({ part: "shared", words: small ? `${plural(held.shared_tokens, "position")} that point at shared pages`
        : `${kv.grouped(held.shared_tokens)} spared by sharing` });
    }
    if (held.refused_requests) items.push({ part: "none", words: `${plural(held.refused_requests, "request")} above the maximum, refused` });
    return items;
  }

  /** @param {any} answers */
  function ledger(answers) {
    const found = policies(answers);
    if (!found.length) return [];
    const names = ["requests", "logical_tokens", "shared_tokens", "distinct_tokens", "tail_slack_slots", "reserved_slots",
                   "allocated_slots", "pages", "refused_requests", "refused_tokens"];
    /** @type {(string|string[])[][]} */
    const rows = names
      .filter((name) => !name.startsWith("refused") || found.some(({ ledger: held }) => held[name]))
      .map((name) => [name, ...found.map(({ ledger: held }) => kv.grouped(held[name]))]);
    rows.push(["unused_share", ...found.map(({ ledger: held }) => kv.percentText(held.unused_share))]);
    if ("value" in answers.bytes_per_token) {
      rows.push(["allocated bytes", ...found.map(({ ledger: held }) => {
        const bytes = held.allocated_slots * answers.bytes_per_token.value;
        return [kv.iecText(bytes), kv.grouped(bytes)];
      })]);
    }
    return [kv.table("Tokens and slots of each policy, at final lengths.", ["quantity", ...found.map(({ name }) => name)], rows, { code: true })];
  }

  /** @param {any} answers @param {number} width */
  function costs({ costs: tested, best, near_best, paged, c }, width) {
    if ("error" in tested) return [];
    const near = near_best.value;
    const words = `Pages of ${kv.grouped(best.value.page_size)} cost least: ${costText(best.value.cost)} slots. ` +
      `Within one percent of that: ${near.length > 1 ? `${kv.grouped(near[0])} to ${kv.grouped(near[near.length - 1])}` : kv.grouped(near[0])}.`;
    const marks = { best: best.value.page_size, near, chosen: "value" in paged ? pageSizeNow() : null };
    const picture = kv.curve(tested.value, marks, width,
      `Cost beyond the tokens against page size. ${words} The table below has every number.`);
    const rows = tested.value.map((/** @type {any} */ each) => [kv.grouped(each.page_size), kv.grouped(each.pages),
      kv.grouped(each.tail_slack_slots), costText(each.metadata), costText(each.cost)]);
    const table = kv.table(`Cost of each page size if a page costs ${kv.exactText(c.value)} slots: logical tokens + tail slack + c × pages.`,
      ["page size", "pages", "tail slack", "c × pages", "cost"], rows);
    return [
      kv.html("p", { class: "kvx-finding" }, words),
      kv.html("p", { class: "kvx-axis-title" }, "slots beyond the tokens"),
      picture,
      kv.key([{ part: "total", words: "both together" }, { part: "slack-line", words: "tail slack" }, { part: "metadata-line", words: "c × pages" },
              { part: "near", words: "within one percent" }, { part: "chosen", words: "page size set" }]),
      kept("cost-table", "The numbers of this drawing", table),
    ];
  }

  /** A folded part, which stays as it is when it is made again. @param {string} id @param {string} words @param {Node} content */
  function kept(id, words, content) {
    const folded = kv.html("details", { id: `kvx-${id}` }, kv.html("summary", {}, words), content);
    /** @type {HTMLDetailsElement} */ (folded).open = Boolean($(id)?.open);
    return folded;
  }

  /** @param {any} f a fraction */
  const costText = (f) => (f.d === 1n ? kv.grouped(f.n) : `${kv.decimalText(f)}`);

  /** @param {any} answers @param {number} width */
  function envelope({ envelope: found, c, bytes_per_token }, width) {
    if ("error" in found) return [];
    const intervals = found.value;
    const now = "value" in c ? c.value : null;
    const cell = (/** @type {any} */ f) => (f === null ? "∞" : f.d === 1n ? kv.grouped(f.n) : [kv.decimalText(f), kv.exactText(f)]);
    const bytes = (/** @type {any} */ f) => (f === null ? "∞" : kv.decimalText(kv.times(f, kv.fraction(bytes_per_token.value))));
    const withBytes = "value" in bytes_per_token;
    const rows = intervals.map((/** @type {any} */ { page_size, c_from, c_to }) => [
      kv.grouped(page_size), cell(c_from), cell(c_to), ...(withBytes ? [bytes(c_to)] : [])]);
    const label = `The best page size along the cost of a page: ${intervals.map((/** @type {any} */ each) => each.page_size).join(", ")}. ` +
      "The table below has where each begins and ends.";
    return [
      kv.html("p", { class: "kvx-axis-title" }, "best page size, along the cost of a page c in slots"),
      kv.strip(intervals, now, width, label),
      kv.table("From which cost of a page, and below which, each page size is the best of those compared. Exact.",
        ["best page size", "from c, slots", "to c, slots", ...(withBytes ? ["to, bytes a page"] : [])], rows),
    ];
  }

  Object.assign(kv, { DEFAULTS, compute, linkOf, readLink });
  if (document.readyState === "loading") document.addEventListener("DOMContentLoaded", start);
  else start();
})(globalThis.kvledgerExplorer);
