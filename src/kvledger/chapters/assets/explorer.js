/* The explorer's page: settings in, answers out, and the address that holds the settings. */
"use strict";
(function (kv) {
  const data = globalThis.kvledgerExplorerData;
  const { DEFAULTS, attempt, compute, linkOf, readLink } = kv;

  /** Powers of two from the least to the most; below them nothing, where that is allowed. */
  const SLIDERS = {
    page_size: { least: 0, most: 12, none: false },
    c: { least: -18, most: 12, none: true },
    reserve: { least: 0, most: 18, none: false },
  };
  const TYPED = ["lengths", "page_size", "c", "reserve", "prefix", "bytes_per_token", "page_sizes"];
  const LINK_DELAY_MS = 250; // browsers stop a page that changes its address too often

  /** The parts of the page by their ids, without kvx-. */
  const $ = (id) => document.getElementById(`kvx-${id}`);

  let settings = { ...DEFAULTS };
  /** The file that was read last. */
  let file = null;
  /** What is wrong with the link or the file, until the next change. */
  let problem = null;
  let waiting = 0;
  let width = 0; // of what is drawn

  /** Fill lists, set the sliders' ends, and listen. */
  function start() {
    if (!$("form")) return;
    const option = (value, words) => kv.html("option", { value }, words);
    const traces = Object.entries(data.traces).map(([name, trace]) =>
      option(`trace:${name}`, trace.label),
    );
    $("source").append(
      option("typed", "your own, typed below"),
      kv.html("optgroup", { label: "Traces of this book" }, ...traces),
    );
    $("model").append(
      ...Object.keys(data.models).map((name) => option(name, name)),
      option("", "another: give its bytes"),
    );
    for (const [name, { least, most, none }] of Object.entries(SLIDERS)) {
      Object.assign($(`${name}-slider`), { min: least - (none ? 1 : 0), max: most, step: 1 });
    }
    for (const name of TYPED) {
      $(name).addEventListener("input", () => change(typedChange(name, $(name).value)));
    }
    for (const name of Object.keys(SLIDERS)) {
      $(`${name}-slider`).addEventListener("input", () =>
        change({ [name]: sliderText(name, $(`${name}-slider`).value) }),
      );
    }
    $("prefix-slider").addEventListener("input", () =>
      change({ prefix: $("prefix-slider").value }),
    );
    $("source").addEventListener("change", () => chooseSource($("source").value));
    $("policy").addEventListener("change", () => {
      const policy = $("policy").value;
      change({ reserve: policy === "slots" ? DEFAULTS.reserve : policy });
      if (policy === "slots") raiseMaximum();
    });
    $("model").addEventListener("change", () => {
      const bytes = modelNow()?.bytes || settings.bytes_per_token; // a first value for one's own
      change({ model: $("model").value, bytes_per_token: $("model").value ? "" : bytes });
    });
    for (const choice of $("of").querySelectorAll("input")) {
      choice.addEventListener("change", () => change({ of: choice.value }));
    }
    $("file").addEventListener("change", () => readFile($("file").files[0]));
    $("link").addEventListener("focus", () => $("link").select());
    listenForDrops();
    $("form").addEventListener("submit", (event) => event.preventDefault());
    $("form").addEventListener("reset", (event) => {
      event.preventDefault();
      [file, problem] = [null, null];
      $("file").value = "";
      change(DEFAULTS);
    });
    globalThis.addEventListener("hashchange", () => restore(location.hash));
    // Drawings are as wide as their place, so that letters stay as large as the page's.
    new ResizeObserver(() => {
      if ($("results").clientWidth !== width) show();
    }).observe($("results"));
    document.getElementById("kvledger-explorer")?.removeAttribute("hidden");
    if (!restore(location.hash)) show();
  }

  function typedChange(name, value) {
    if (name === "lengths") return { lengths: value, trace: "", file: "" };
    if (name === "bytes_per_token") return { model: "", bytes_per_token: value };
    return { [name]: value };
  }

  function sliderText(name, position) {
    const power = Number(position);
    const { least, none } = SLIDERS[name];
    if (none && power < least) return "0";
    return power < 0 ? `1/${2 ** -power}` : String(2 ** power);
  }

  /** The nearest position of a value. */
  function sliderPosition(name, value) {
    const { least, most, none } = SLIDERS[name];
    if (!(value > 0)) return none ? least - 1 : least;
    return Math.min(Math.max(Math.round(Math.log2(value)), least), most);
  }

  /** source: "typed", "file" or a trace. */
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

  /** The model in use, if it is one of the book's. */
  const modelNow = () =>
    Object.hasOwn(data.models, settings.model) ? data.models[settings.model] : null;

  /** The file in use, if one is. */
  const readNow = () => (settings.file && file && file.name === settings.file ? file : null);

  function listenForDrops() {
    const place = document.getElementById("kvledger-explorer");
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

  function readFile(chosen) {
    if (!chosen) return;
    const fail = (message) => {
      problem = message;
      show();
    };
    if (chosen.size > kv.LARGEST_FILE) {
      fail(
        `${chosen.name}: ${kv.grouped(chosen.size)} bytes; accepted here: up to ` +
          `${kv.grouped(kv.LARGEST_FILE)} bytes (the command line reads larger files)`,
      );
      return;
    }
    const reader = new FileReader();
    reader.addEventListener("error", () => fail(`${chosen.name}: cannot be read`));
    reader.addEventListener("load", () => {
      const result = attempt(() =>
        kv.readTrace(kv.decode(reader.result, chosen.name), chosen.name),
      );
      if ("error" in result) fail(result.error);
      else {
        file = result.value;
        chooseSource("file");
      }
    });
    reader.readAsArrayBuffer(chosen);
  }

  /** Take settings from a link; anything else after # is a place on the page. */
  function restore(hash) {
    if (!hash.includes("=") || hash === linkOf(settings)) return false;
    const link = readLink(hash);
    settings = { ...DEFAULTS, ...link.settings };
    problem = link.problem;
    show();
    return true;
  }

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
    const read = readNow();
    const answers = compute({ ...settings, over_maximum: "count" }, read);
    showSettings(answers);
    showErrors(answers);
    width = $("results").clientWidth;
    const shown = kv.showAnswers({
      answers,
      settings,
      width: Math.max(width, 200),
      lengths: () => kv.lengthsFor(settings, read),
    });
    for (const [id, nodes] of Object.entries(shown)) {
      $(id).replaceChildren(...nodes);
      $(id).closest("section")?.toggleAttribute("hidden", !nodes.length);
    }
  }

  /** value: typed text is left alone, so that the cursor stays. */
  const set = (id, value) => {
    if ($(id).value !== value) $(id).value = value;
  };

  function showSettings({ lengths, c, bytes_per_token }) {
    const read = readNow();
    const fileOption = $("source").querySelector('[value="file"]');
    if (file && !fileOption) $("source").append(kv.html("option", { value: "file" }, file.name));
    else if (file) fileOption.textContent = file.name;
    const typed = !settings.trace && !read;
    $("source").value = settings.trace ? `trace:${settings.trace}` : read ? "file" : "typed";
    $("own").hidden = !typed;
    const outputs = read
      ? read.output.some((output) => output)
      : settings.trace || kv.looksLikeTrace(settings.lengths);
    $("of").hidden = !outputs;
    for (const choice of $("of").querySelectorAll("input"))
      choice.checked = choice.value === settings.of;
    for (const name of TYPED) set(name, settings[name]);
    const numeric = settings.reserve !== "pow2" && settings.reserve !== "oracle";
    $("policy").value = numeric ? "slots" : settings.reserve;
    $("maximum").hidden = !numeric;
    $("model").value = modelNow() ? settings.model : "";
    if (settings.model && "value" in bytes_per_token)
      set("bytes_per_token", String(bytes_per_token.value));
    $("model-note").textContent = modelNow()?.windowed
      ? "Window layers are counted in full, as one page size for all layers does."
      : "";
    for (const name of Object.keys(SLIDERS)) {
      const value =
        name === "c" && "value" in c
          ? Number(c.value.n) / Number(c.value.d)
          : Number(settings[name]);
      set(`${name}-slider`, String(sliderPosition(name, value)));
      $(`${name}-slider`).setAttribute("aria-valuetext", `${settings[name]} slots`);
    }
    const shortest = "value" in lengths ? Number(lengths.value.shortest) : 1;
    $("prefix-slider").max = String(shortest);
    set("prefix-slider", String(Math.min(Number(settings.prefix) || 0, shortest)));
    $("prefix-slider").setAttribute("aria-valuetext", `${settings.prefix} tokens`);
    $("about").textContent = read
      ? aboutFile(read)
      : typed
        ? "Numbers, or a trace as CSV or JSONL. All of it stays in your browser."
        : "";
    const link = linkOf(settings);
    set("link", link ? location.href.split("#", 1)[0] + link : "");
    $("link").disabled = !link;
    $("link-note").textContent = link
      ? read
        ? "The link holds the file's name and not its content."
        : ""
      : "These are too many lengths for a link.";
  }

  function aboutFile(read) {
    const failed = read.failed ? `, ${kv.grouped(read.failed)} failed left out` : "";
    return `${read.name}: ${kv.grouped(read.prompt.length)} requests, read as ${read.format}${failed}. It was read here and went nowhere.`;
  }

  /** The setting that an error is about. */
  function settingOf(answer, message) {
    const [first] = message.split(" ", 1);
    if (first === "bytes_per_token" || first === "model") return "bytes_per_token";
    if (
      ["costs", "best", "near_best", "envelope", "envelope_bytes"].includes(answer) &&
      first.startsWith("page_size")
    )
      return "page_sizes";
    return ["page_size", "prefix", "reserve", "c"].includes(first) ? first : "lengths";
  }

  /** Put each error at the setting that it is about. */
  function showErrors(answers) {
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

  if (document.readyState === "loading") document.addEventListener("DOMContentLoaded", start);
  else start();
})(globalThis.kvledgerExplorer);
