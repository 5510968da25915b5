/* Chat logs with token counts: an OpenAI batch's output file, or one response object a line. */
"use strict";
(function (kv) {
  const { printed, seen, truthy } = kv;
  const OBJECTS = ["chat.completion", "chat.completion.chunk", "text_completion", "response"];
  const NAMES = [
    ["prompt_tokens", "completion_tokens"],
    ["input_tokens", "output_tokens"],
  ];

  /** @param {any} value */
  const isObject = (value) => typeof value === "object" && value !== null && !Array.isArray(value);

  /** Whether an object is a line of such a log. @param {any} fields */
  function isOpenAI(fields) {
    if (Object.hasOwn(fields, "custom_id")) return Object.hasOwn(fields, "response");
    return Object.hasOwn(fields, "usage") || OBJECTS.includes(fields.object);
  }

  /** @param {Iterable<any>} records @param {string} name @returns {Read} */
  function readOpenAI(records, name) {
    const skipped = new kv.Skipped();
    /** @type {Timed[]} */
    const requests = [];
    for (const record of records) {
      const found = requestOf(record);
      if (found instanceof LeftOut) skipped.add(found.reason, found.failed);
      else requests.push(found);
    }
    return kv.byTime(requests, name, "openai", skipped); // a batch is written as its requests finish
  }

  /** A line that is read and holds no request that can be used. */
  class LeftOut {
    /** @param {string} reason @param {boolean} failed */
    constructor(reason, failed) {
      this.reason = reason;
      this.failed = failed;
    }
  }

  /** @param {any} record @returns {Timed|LeftOut} */
  function requestOf(record) {
    const body = bodyOf(record);
    if (body instanceof LeftOut) return body;
    if (truthy(body.error ?? null)) return new LeftOut("reported an error", true);
    if (body === record.fields && !isOpenAI(body)) record.get("usage"); // an error
    if (body.object === "response" && ["failed", "cancelled"].includes(body.status)) {
      return new LeftOut(`status ${body.status}`, true);
    }
    const usage = body.usage ?? null;
    if (usage === null) return new LeftOut("no usage", false);
    if (!isObject(usage)) record.fail("usage", `is ${seen(usage)}`, "an object");
    const choices = body.choices ?? null;
    if (truthy(choices) && body.object === "chat.completion.chunk") {
      return new LeftOut("part of a stream", false); // the sum is in the last, which has no text
    }
    // Where choices are added up, how long each became is not known.
    if (Array.isArray(choices) && choices.length > 1)
      return new LeftOut("more than one choice", false);
    const both = tokensOf(record.inside(usage), body.object === "list");
    if (both instanceof LeftOut) return both;
    const created = (Object.hasOwn(body, "created") ? body.created : body.created_at) ?? null;
    return { ...both, time: created === null ? null : record.time("created", created) };
  }

  /** The response object of a line. @param {any} record */
  function bodyOf(record) {
    const { fields } = record;
    if (!Object.hasOwn(fields, "custom_id")) return fields;
    const response = fields.response ?? null;
    const refused = truthy(fields.error ?? null);
    if (response === null) return new LeftOut(refused ? "reported an error" : "no response", true);
    if (!isObject(response)) record.fail("response", `is ${seen(response)}`, "an object");
    const status = Object.hasOwn(response, "status_code") ? response.status_code : 200n;
    const code = record.whole("status_code", status, 100n);
    if (code > 599n) record.fail("status_code", `is ${code}`, "an HTTP status from 100 to 599");
    if (code < 200n || code >= 300n) return new LeftOut(`HTTP status ${code}`, true);
    if (refused) return new LeftOut("reported an error", true);
    const body = response.body ?? null;
    if (body === null) return new LeftOut("no response", true);
    if (!isObject(body)) record.fail("body", `is ${seen(body)}`, "an object");
    return body;
  }

  /**
   * @param {any} record the usage, as a record @param {boolean} embeddings which have no output
   * @returns {{prompt: bigint, output: bigint}|LeftOut}
   */
  function tokensOf(record, embeddings) {
    const usage = record.fields;
    const [first, second] = NAMES.find(([name]) => Object.hasOwn(usage, name)) || NAMES[0];
    if (embeddings) record = record.inside({ [second]: 0n, ...usage });
    const [before, after] = [record.get(first), record.get(second)];
    const { prompt, output } = record.tokens([first, before], [second, after], 0n);
    if (Object.hasOwn(usage, "total_tokens")) {
      const total = record.whole("total_tokens", usage.total_tokens, 0n);
      if (total !== prompt + output) {
        const sum = `the sum of prompt and output, ${prompt} + ${output}`;
        record.fail("total_tokens", `is ${printed(usage.total_tokens)}`, sum);
      }
    }
    if (prompt === 0n && output === 0n) return new LeftOut("no tokens", true);
    if (prompt === 0n) record.whole(first, before, 1n); // an error
    return { prompt, output };
  }

  Object.assign(kv, { isOpenAI, readOpenAI });
})(globalThis.kvledgerExplorer);
