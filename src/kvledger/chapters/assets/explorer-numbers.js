/* Exact numbers, and the words in which an error names a value: as the package has them.
 *
 * A whole number is a BigInt, any other number a Number, nothing at all is null. So 4 and 4.0 stay
 * apart, as they do in Python, and a whole number is exact however large it is.
 */
"use strict";
/** @typedef {bigint|number|string|boolean|null|any[]|{[name: string]: any}} Value */
/** @typedef {{n: bigint, d: bigint}} Fraction in lowest terms, d above 0 */
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
    /** @type {{[letter: string]: string}} */
    const short = { "\\": "\\\\", "\n": "\\n", "\r": "\\r", "\t": "\\t", [quote]: `\\${quote}` };
    const letters = Array.from(text, (letter) => {
      if (letter in short) return short[letter];
      if (letter === " " || !/[\p{C}\p{Z}]/u.test(letter)) return letter;
      const code = /** @type {number} */ (letter.codePointAt(0));
      const [mark, width] = code < 256 ? ["x", 2] : code < 65536 ? ["u", 4] : ["U", 8];
      return `\\${mark}${code.toString(16).padStart(width, "0")}`;
    });
    return quote + letters.join("") + quote;
  }

  /** Any value as Python prints it. @param {Value} value @returns {string} */
  function printed(value) {
    if (value === null) return "None";
    if (value === true) return "True";
    if (value === false) return "False";
    if (typeof value === "number") return floatText(value);
    if (typeof value === "string") return quoted(value);
    if (Array.isArray(value)) return `[${value.map(printed).join(", ")}]`;
    if (typeof value === "object") {
      const items = Object.entries(value).map(
        ([name, item]) => `${quoted(name)}: ${printed(item)}`,
      );
      return `{${items.join(", ")}}`;
    }
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

  /** @param {string} digits a whole number, maybe with a sign */
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

  Object.assign(kv, {
    INT64_MAX,
    LedgerError,
    checkedSum,
    compare,
    cut,
    decimalFraction,
    floatText,
    fraction,
    literal,
    plus,
    printed,
    quoted,
    shown,
    times,
    whole,
  });
})((globalThis.kvledgerExplorer = globalThis.kvledgerExplorer || {}));
