"""The explorer against the package: the same answers and the same errors, in a real browser.

The small book built here has the explorer's page alone. It is opened from its file, as a reader
opens a copy on a disk; its looks are tested with the rest of the book in tests/browser.
"""

from __future__ import annotations

import gzip
import io
import json
import math
import os
import random
import re
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import fields
from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest
from browser.driver import MODES, WIDTHS, Visit, chromium, new_visit, serve
from browser.whole import CHECKS, ONCE
from playwright.sync_api import Browser, Page

import kvledger as kv
from kvledger.accounting import metadata
from kvledger.accounting.allocations import contiguous, page_counts, paged
from kvledger.accounting.ledger import Ledger
from kvledger.accounting.sharing import shared
from kvledger.chapters import explorer
from kvledger.core.errors import LedgerError
from kvledger.core.lengths import as_lengths
from kvledger.models.known import load_model
from kvledger.models.shapes import Model
from kvledger.traces import load_lengths, load_trace

ROOT = Path(__file__).resolve().parent.parent
PAGE = "chapters/explorer.html"


# ---------------------------------------------------------------- the page and a browser
@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A book of the explorer's page, with an empty page for each that it refers to."""
    root = tmp_path_factory.mktemp("explorer")
    (root / "chapters").mkdir()
    copied = ("chapters/explorer.md", "chapters/references.bib")
    for name in (*copied, "_config.yml", "pyproject.toml", "README.md", "CITATION.cff"):
        shutil.copyfile(ROOT / name, root / name)
    text = (root / "chapters" / "explorer.md").read_text(encoding="utf-8")
    others = sorted(set(re.findall(r"\{doc\}`(\w+)`", text)))
    assert others, "the page refers to no other"
    toc = ["format: jb-book", "root: chapters/explorer", "chapters:"]
    for name in others:
        (root / "chapters" / f"{name}.md").write_text(f"# {name}\n", encoding="utf-8")
        toc.append(f"  - file: chapters/{name}")
    (root / "_toc.yml").write_text("\n".join(toc), encoding="utf-8")
    (root / "requirements.txt").write_text("# of the explorer's book\n", encoding="utf-8")
    skip = shutil.ignore_patterns("__pycache__", "*.egg-info")
    shutil.copytree(ROOT / "src", root / "src", ignore=skip)
    shutil.copytree(ROOT / "data", root / "data")
    command = [sys.executable, "-m", "proofbook.build", "book"]
    env = {**os.environ, "PYTHONPATH": str(root / "src")}
    made = subprocess.run(command, cwd=root, env=env, capture_output=True, text=True, check=False)
    assert made.returncode == 0, made.stdout + made.stderr
    return root / "_build" / "html"


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with chromium() as found:
        yield found


Opened = Callable[..., Page]


@pytest.fixture
def opened(browser: Browser, site: Path) -> Iterator[Opened]:
    """Open the page from its file, and see to it that nothing goes wrong meanwhile."""
    contexts = []
    wrong: list[str] = []

    def keep(words: str, seen: bool = True) -> None:
        wrong.extend([words] * seen)

    def open(state: str = "") -> Page:
        context = browser.new_context(viewport={"width": 1400, "height": 900})
        contexts.append(context)
        page = context.new_page()
        local = ("file://", "data:", "blob:")
        page.on("request", lambda r: keep(r.url, not r.url.startswith(local)))
        page.on("pageerror", lambda e: keep(str(e)))
        page.on("dialog", lambda d: keep(d.message))
        page.on("console", lambda m: keep(m.text, m.type in {"error", "warning"}))
        page.goto((site / PAGE).as_uri() + state)
        return page

    yield open
    for context in contexts:
        context.close()
    assert wrong == []


@pytest.fixture(scope="module")
def page(browser: Browser, site: Path) -> Iterator[Page]:
    """One page, to compute with."""
    context = browser.new_context()
    found = context.new_page()
    found.goto((site / PAGE).as_uri())
    yield found
    context.close()


#: Whole numbers leave the browser as texts, so that none is rounded on the way.
PLAIN = "(_, value) => typeof value === 'bigint' ? String(value) : value"


def mapped(page: Page, script: str, inputs: list[Any]) -> list[dict[str, Any]]:
    """What a function of the page gives for each of some inputs."""
    text = page.evaluate(f"inputs => JSON.stringify(inputs.map({script}), {PLAIN})", inputs)
    answers: list[dict[str, Any]] = json.loads(text)
    return answers


def computed(page: Page, inputs: list[dict[str, str]]) -> list[dict[str, Any]]:
    return mapped(page, "(i) => kvledgerExplorer.compute(i)", inputs)


# ---------------------------------------------------------------- the package, asked the same
def literal(text: str) -> Any:
    """What a typed text stands for: nothing, a whole number, another number, or a word."""
    word = text.strip()
    if not word:
        return None
    if re.fullmatch(r"[+-]?[0-9]+", word):
        return int(word)
    if re.fullmatch(r"[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)(e[+-]?[0-9]+)?", word, re.IGNORECASE):
        return float(word)
    return word


def typed_list(text: str) -> list[Any]:
    text = re.sub(r"\s*[,;]$", "", text.strip())
    return [literal(word) for word in re.split(r"\s*[,;]\s*|\s+", text)] if text else []


def typed_cost(text: str) -> Any:
    parts = re.fullmatch(r"\s*([0-9]+)/([0-9]+)\s*", text)
    return Fraction(text.strip()) if parts and int(parts[2]) else literal(text)


def plain(value: Any) -> Any:
    """A result in the form in which the page gives it."""
    if isinstance(value, Ledger):
        names = [field.name for field in fields(value) if getattr(value, field.name) is not None]
        names += ["distinct_tokens", "reserved_never_used_slots", "unused_share"]
        return {name: plain(getattr(value, name)) for name in names}
    if isinstance(value, Fraction):
        return {"n": str(value.numerator), "d": str(value.denominator)}
    if isinstance(value, dict):
        return {name: plain(item) for name, item in value.items()}
    if isinstance(value, tuple) and hasattr(value, "_asdict"):
        return plain(value._asdict())
    if isinstance(value, list | tuple):
        return [plain(item) for item in value]
    if value == math.inf:
        return None
    return str(value)


def attempt(answer: Callable[[], Any]) -> dict[str, Any]:
    try:
        return {"value": plain(answer())}
    except LedgerError as error:
        return {"error": str(error)}


def expected(typed: dict[str, str]) -> dict[str, Any]:
    """Every answer of the page, from the package."""
    lengths: Any = typed_list(typed.get("lengths", ""))
    if "trace" in typed:
        marginals = load_lengths(typed["trace"])
        lengths = marginals.prompt if typed.get("of") == "prompt" else marginals.total
    size, prefix = literal(typed["page_size"]), literal(typed["prefix"])
    reserve, over = literal(typed["reserve"]), typed["over_maximum"]
    c, sizes = typed_cost(typed["c"]), typed_list(typed["page_sizes"])
    model: Any = typed.get("model")
    if not model:
        model = Model("own", 1, 1, int(typed["bytes_per_token"]), latent=True, bytes_per_element=1)

    def tested() -> list[dict[str, Any]]:
        exact, names = (
            metadata.exact_cost(c),
            ["page_size", "pages", "tail_slack_slots", "metadata", "cost"],
        )
        rows = [
            (p, n, p * n - as_lengths(lengths).total_tokens, n * exact, n * (p + exact))
            for p, n in page_counts(lengths, sizes).items()
        ]
        return [dict(zip(names, row, strict=True)) for row in rows]

    def summary() -> dict[str, int]:
        table = as_lengths(lengths)
        sums = {"requests": table.n_requests, "logical_tokens": table.total_tokens}
        return sums | {"shortest": int(table.tokens[0]), "longest": table.max_tokens}

    def corners() -> list[Any]:
        ends = [c_to for _, _, c_to in metadata.envelope(lengths, sizes)]
        return [end if end == math.inf else metadata.bytes_from_slots(end, model) for end in ends]

    ledgers = {
        "contiguous": lambda: contiguous(lengths, reserve, over_maximum=over),
        "paged": lambda: paged(lengths, size),
        "shared": lambda: shared(lengths, size, prefix),
    }
    answers = {
        "lengths": attempt(summary),
        **{name: attempt(ledger) for name, ledger in ledgers.items()},
        "c": attempt(lambda: metadata.exact_cost(c)),
        "cost": attempt(lambda: metadata.cost(lengths, size, c)),
        "costs": attempt(tested),
        "best": attempt(lambda: metadata.best_page_size(lengths, c, sizes)),
        "near_best": attempt(lambda: metadata.near_best(lengths, c, sizes)),
        "envelope": attempt(lambda: metadata.envelope(lengths, sizes)),
        "bytes_per_token": attempt(lambda: load_model(model).kv_bytes_per_token),
        "envelope_bytes": attempt(corners),
    }

    def held(ledger: Callable[[], Ledger]) -> int:
        exact = metadata.bytes_from_slots(ledger().allocated_slots, model)
        assert exact.denominator == 1  # slots are whole, and so are their bytes
        return int(exact)

    for name, ledger in ledgers.items():
        answers[f"{name}_bytes"] = attempt(lambda ledger=ledger: held(ledger))
    return answers


# ---------------------------------------------------------------- a thousand inputs
ODD_WORDS = ("0", "-3", "2.5", "5.0", "1e3", "x", "nan", "1O24", "'", "1e400", "-0.0", "", "é\t")
ODD_COSTS = ("", "-1", "-0.5", "abc", "1/0", "nan", "inf", "1e400", "-1/4", "1/", "0x1", "<b>1</b>")
TEST_MODELS = ("Llama-3.1-8B", "Gemma-3-27B", "DeepSeek-V3/R1", "OPT-175B")


def some_length(draw: random.Random) -> str:
    kind = draw.random()
    if kind < 0.75:
        return str(draw.randint(1, draw.choice((4, 40, 5000))))
    if kind < 0.9:
        return str(draw.choice((2**31, 2**53, 2**62)) + draw.randint(-3, 3))
    if kind < 0.97:
        large = draw.choice((2**63, 2**64)) // draw.choice((1, 2, 4, 64))
        return str(max(1, large - draw.randint(0, 2)))
    return draw.choice(ODD_WORDS)


def some_lengths(draw: random.Random) -> str:
    small = draw.random() < 0.6  # most lists have no length that 64 bits or a float find hard
    many = draw.choice((0, 1, 2, 3, 5, 8, 40)) if draw.random() < 0.98 else 0
    words = [str(draw.randint(1, 300)) if small else some_length(draw) for _ in range(many)]
    return draw.choice((", ", ",", " ", "\n", " ; ")).join(words)


def some_slots(draw: random.Random) -> str:
    kind = draw.random()
    if kind < 0.1:
        return draw.choice(ODD_WORDS)
    if kind < 0.15:
        return str(2 ** draw.choice((31, 53, 62, 63)) + draw.randint(-2, 2))
    return str(draw.choice((draw.randint(1, 64), 2 ** draw.randint(0, 12))))


def some_cost(draw: random.Random) -> str:
    kind = draw.random()
    if kind < 0.1:
        return draw.choice(ODD_COSTS)
    if kind < 0.4:
        return f"{draw.randint(0, 99)}/{draw.randint(1, 99)}"
    if kind < 0.7:
        return repr(draw.choice((0.0, 0.1, 1e-7, 1e22, draw.random(), draw.random() * 1e-5)))
    return str(draw.choice((0, 1, 4, 64, 10**20, draw.randint(0, 50))))


def some_settings(draw: random.Random) -> dict[str, str]:
    sizes = draw.sample(range(1, 70), draw.randint(1, 12))
    if draw.random() < 0.3:
        sizes = list(metadata.DEFAULT_PAGE_SIZES)
    page_sizes = ", ".join([*map(str, sizes), *([some_slots(draw)] if draw.random() < 0.2 else [])])
    typed = {
        "lengths": some_lengths(draw),
        "page_size": some_slots(draw),
        "reserve": draw.choice(("pow2", "oracle", some_slots(draw), "5000", "pow3")),
        "over_maximum": draw.choice(("error", "count")),
        "prefix": draw.choice(("0", "1", "4", some_slots(draw))),
        "c": some_cost(draw),
        "page_sizes": page_sizes if draw.random() < 0.97 else "",
        "model": draw.choice(TEST_MODELS),
    }
    if draw.random() < 0.3:
        typed["model"] = ""
        typed["bytes_per_token"] = str(draw.randint(1, 10**7))
    if draw.random() < 0.02:
        typed["trace"] = draw.choice(kv.TRACE_NAMES)
        typed["of"] = draw.choice(("total", "prompt"))
    return typed


def differences(typed: dict[str, str], answer: dict[str, Any]) -> list[str]:
    want = expected(typed)
    assert set(want) == set(answer)
    found = {name: (answer[name], want[name]) for name in want if answer[name] != want[name]}
    return [f"{name} of {typed}: page and package have {both}" for name, both in found.items()]


@pytest.mark.parametrize("seed", range(5))
def test_two_hundred_random_inputs_have_the_package_s_answers(page: Page, seed: int) -> None:
    draw = random.Random(f"explorer {seed}")
    inputs = [some_settings(draw) for _ in range(200)]
    pairs = zip(inputs, computed(page, inputs), strict=True)
    wrong = [found for typed, answer in pairs for found in differences(typed, answer)]
    assert not wrong, "\n".join(wrong[:5])


def test_the_random_inputs_reach_answers_and_errors_of_every_kind() -> None:
    draw = random.Random("explorer 0")
    seen: dict[str, set[str]] = {}
    errors = set()
    for _ in range(200):
        for name, answer in expected(some_settings(draw)).items():
            seen.setdefault(name, set()).update(answer)
            if "error" in answer:
                errors.add(re.sub(r"'.*'|\d+|\".*\"", "", answer["error"]))
    assert all(
        kinds == {"value", "error"} for name, kinds in seen.items() if name != "bytes_per_token"
    )
    kinds = ("add up to", " bits)", "is missing", "at most the reserved", "is empty", "prefix is")
    assert all(any(words in error for error in errors) for words in kinds)


USUAL = {"lengths": "5", "page_size": "4", "reserve": "oracle", "over_maximum": "error"}
USUAL |= {"prefix": "0", "c": "1/3", "page_sizes": "1, 2, 4", "model": "Llama-3.1-8B"}
BOTH_2_62 = {"lengths": f"{2**62}, {2**62}"}


@pytest.mark.parametrize(
    ("typed", "words"),
    [
        ({"lengths": f"{2**53 + 1}, {2**53 + 3}"}, None),
        ({"lengths": f"{2**62}, {2**62 - 1}", "page_size": "1"}, None),
        (BOTH_2_62, "lengths add up to 9223372036854775808; sums up to"),
        ({"lengths": str(2**63 - 1), "page_size": "2"}, "slots of 2-slot pages add up to"),
        ({"lengths": str(2**62 + 1), "reserve": "pow2"}, "next powers of two are given up to"),
        ({"lengths": "5, 9", "reserve": str(2**62)}, "reserved slots add up to"),
        ({**BOTH_2_62, "prefix": str(2**62), "page_size": "1"}, "shared pages add"),
        ({"lengths": "5, 9, 17", "page_size": str(2**63)}, "at least 1, and at most 92233720"),
        ({"lengths": "1, 2, 3, 6", "page_sizes": "1, 2, 3, 6", "c": "0"}, None),
        ({"lengths": "6", "page_sizes": "2, 3, 6", "c": "0"}, None),  # a tie: the larger
        ({"lengths": "5,, 9"}, r"lengths[1] is missing; a length is"),
        ({"lengths": "5, '\"\\"}, r"""lengths[1] is '\'"\\'; a length is"""),
        ({"lengths": "length\n5"}, "lengths[0] is 'length'; a length is"),
        ({"lengths": "5, " + "x" * 70}, "lengths[1] is '" + "x" * 56 + "...; a length"),
        ({"trace": "mooncake_conversation", "reserve": "8192"}, "a request of lengths is 126527"),
        ({"trace": "sharegpt_8k", "of": "prompt", "prefix": "2"}, "prefix is 2; request 0 has 1 "),
    ],
)
def test_hard_for_a_float_a_tie_or_a_word(
    page: Page, typed: dict[str, str], words: str | None
) -> None:
    whole = USUAL | typed
    (answer,) = computed(page, [whole])
    assert differences(whole, answer) == []
    errors = [each["error"] for each in answer.values() if "error" in each]
    assert any(words in error for error in errors) if words else not errors, errors


def test_every_trace_of_the_book_is_as_the_package_has_it(page: Page) -> None:
    usual = {"page_size": "16", "reserve": "pow2", "over_maximum": "error", "prefix": "1"}
    usual |= {"c": "1/1000", "page_sizes": "1, 7, 16, 48, 4096"}
    inputs = [
        {"trace": trace, "of": of, "model": model, **usual}
        for trace in kv.TRACE_NAMES
        for of in ("total", "prompt")
        for model in (list(kv.load_models())[:: 3 if of == "total" else 40])
    ]
    for typed, answer in zip(inputs, computed(page, inputs), strict=True):
        assert differences(typed, answer) == []
    tables = page.evaluate(
        """() => Object.entries(kvledgerExplorerData.traces).map(([name, { total }]) => {
          const { tokens, requests } = kvledgerExplorer.unpack(total).table();
          return [name, tokens.map(Number), requests.map(Number)];
        })"""
    )
    assert [name for name, _, _ in tables] == list(kv.TRACE_NAMES)
    for name, tokens, requests in tables:
        table = load_lengths(name).total
        assert (tokens, requests) == (table.tokens.tolist(), table.requests.tolist())


def test_every_model_has_the_package_s_bytes(page: Page) -> None:
    models = kv.load_models()
    answers = computed(page, [{"model": name} for name in models])
    assert [answer["bytes_per_token"] for answer in answers] == [
        {"value": str(model.kv_bytes_per_token)} for model in models.values()
    ]
    windowed = page.evaluate(
        """() => Object.entries(kvledgerExplorerData.models)
          .filter(([, model]) => model.windowed).map(([name]) => name)"""
    )
    assert windowed == [name for name, model in models.items() if model.window_layers]


@pytest.mark.parametrize(
    ("typed", "message"),
    [
        ({"model": "Llama-9"}, "model is 'Llama-9'; known are: OPT-13B, OPT-66B, "),
        ({"model": "toString"}, "model is 'toString'; known are: "),
        ({"bytes_per_token": "0"}, "bytes_per_token is 0; KV bytes per token are a whole"),
        ({"bytes_per_token": "<b>"}, "bytes_per_token is '<b>'; KV bytes per token are"),
        ({"bytes_per_token": ""}, "bytes_per_token is missing; KV bytes per token are"),
    ],
)
def test_an_unknown_model_is_one_error(page: Page, typed: dict[str, str], message: str) -> None:
    (answer,) = computed(page, [{"model": ""} | typed])
    for name in ("bytes_per_token", "paged_bytes", "envelope_bytes"):
        assert answer[name]["error"].startswith(message)
    assert "value" in answer["paged"]


def test_an_unknown_trace_is_the_package_s_error(page: Page) -> None:
    for name in ("azure", "__proto__", "<img src=x onerror=alert(1)>"):
        (answer,) = computed(page, [{"trace": name}])
        with pytest.raises(LedgerError) as error:
            load_lengths(name)
        assert answer["lengths"] == {"error": str(error.value)}


# ---------------------------------------------------------------- files
TOKENS = "prompt_tokens,output_tokens\n"
GOOD = {
    "azure": "TIMESTAMP,ContextTokens,GeneratedTokens\r\n"
    "2023-11-16 18:17:03.9799600,4808,10\r\n2023-11-16 18:17:04.0319600,3180,8",
    "burstgpt": "Timestamp,Model,Request tokens,Response tokens,Total tokens,Log Type\n"
    "5,ChatGPT,472,18,490,Conversation log\n45,GPT-4,0,0,1087,API log\n118,GPT-4,417,276,693,x\n",
    "prefill": "num_prefill_tokens,num_decode_tokens,num_total_tokens,pd_ratio\n"
    "74,918,992,0.08\n1,905,906,0.001\n",
    "tokens": "output_tokens,prompt_tokens,arrival_s\n0,7,.5\n2,8,1e0\n",
    "quoted": '"prompt_tokens","output_tokens"\n"7","1"\n"8",2\n',
    "quoted names": 'prompt_tokens,"a ""b"", c",output_tokens\n7,"x, y",1\n8,,"2"\n',
    "lengths": "5\n9.0\n+17\n\n",
    "one column": "\n length\n5\n\n9.\n",
    "large": f"prompt_tokens,output_tokens\n{2**53 + 1},{2**62}\n",
    "mooncake": '{"timestamp": 27482, "input_length": 1025, "output_length": 52, '
    '"hash_ids": [46, 47, 2]}\n'
    '{"timestamp": 30535, "input_length": 512, "output_length": 26, "hash_ids": [46]}\n',
    "mooncake without ids": '{"timestamp": 0, "input_length": 5, "output_length": 1}\n' * 2,
    "other letters": "T\u00e4glich\n5\n9\n",
}
#: What has another form, or none, and is refused with one line that says what reads more.
OTHER = {
    "": "trace.csv: the file is empty",
    " \n\r\n": "trace.csv: the file is empty",
    TOKENS: "trace.csv: no request that can be used",
    "[5, 9,\n 17]": "trace.csv, line 1: '[5, 9,' begins no trace",
    "a,b\n1,2\n": "trace.csv, line 1: 'a,b' begins no trace",
    "1O24\n5\n": "trace.csv, line 1: '1O24' begins no trace",
    "nan\n5\n": "trace.csv, line 1: 'nan' begins no trace",
    "TIMESTAMP,ContextTokens\n2023-11-16 18:17:03,5\n": "trace.csv, line 1: 'TIMESTAMP,Context",
    '{"input_lens": [1], "output_lens": [2]}': "trace.csv, line 1: no input_length",
    '{"object": "response", "usage": {"input_tokens": 4}}': "trace.csv, line 1: no input_length",
    '{"timestamp": 0, "input_length": 5}': "trace.csv, line 1: no output_length",
    GOOD["mooncake"] + "null\n": "trace.csv, line 3: no input_length",
    GOOD["mooncake"][:-20]: "trace.csv, line 2: JSON cut short or malformed",
    GOOD["mooncake"] + GOOD["tokens"]: "trace.csv, line 3: JSON cut short or malformed",
    TOKENS + "1,2,3\n": "trace.csv, line 2: 3 fields, where the header has 2",
    TOKENS + "1\n": "trace.csv, line 2: 1 fields, where the header has 2",
    TOKENS + '1,"2\n': "trace.csv, line 2: '1,\"2' is not CSV",
    TOKENS + '1,"2"3\n': "trace.csv, line 2: '1,\"2\"3' is not CSV",
}
#: A value that is none, and what is accepted.
WRONG = {
    "5\nnine\n": "line 2: the length is 'nine'; accepted: a whole number from 1 to",
    "5\n9,3\n": "line 2: the length is '9,3'; accepted: a whole number from 1 to",
    "5\n0\n": "line 2: the length is '0'; accepted: a whole number from 1 to",
    TOKENS + "1,-2\n": "line 2: output_tokens is '-2'; accepted: a whole number from 0 to",
    TOKENS + ",1\n": "line 2: prompt_tokens is ''; accepted: a whole number from 1 to",
    TOKENS + "x" * 99 + ",1\n": "line 2: prompt_tokens is 'xxx",
    GOOD["mooncake"].replace("512", "0"): "line 2: input_length is '0'; accepted",
    GOOD["mooncake"].replace("512", "512.5"): "line 2: input_length is '512.5'; accepted",
    GOOD["mooncake"].replace("512", '"512"'): "line 2: input_length is '\"512\"'; accepted",
    GOOD["mooncake"].replace("512", str(2**63)): "line 2: input_length is '92233720368547",
}


def read_by_page(page: Page, files: list[str]) -> list[dict[str, Any]]:
    script = """(file) => kvledgerExplorer.attempt(() => {
      const { buffer } = new TextEncoder().encode(file);
      const text = kvledgerExplorer.decode(buffer, "trace.csv");
      return kvledgerExplorer.readTrace(text, "trace.csv");
    })"""
    return mapped(page, script, files)


def read_by_package(content: str, folder: Path) -> dict[str, Any] | None:
    """What the package reads, and only of lengths; nothing where it refuses the file."""
    path = folder / "trace.csv"
    path.write_text(content, encoding="utf-8", newline="")
    try:
        trace = load_trace(path)
    except LedgerError:
        return None
    tokens = {"prompt": trace.prompt_tokens, "output": trace.output_tokens}
    read = {name: list(map(str, column.tolist())) for name, column in tokens.items()}
    return read | {"failed": trace.failed_requests}


def read_by_both(page: Page, files: list[str], folder: Path) -> int:
    """Count the files that both read, each with the same answer."""
    both = 0
    for text, got in zip(files, read_by_page(page, files), strict=True):
        want = read_by_package(text, folder)
        if want is not None and "value" in got:
            assert {name: got["value"][name] for name in want} == want, text
            both += 1
    return both


def test_files_whole_or_damaged_are_read_as_by_the_package_or_refused(
    page: Page, tmp_path: Path
) -> None:
    files = [*GOOD.values()]
    files += ["\ufeff" + text for text in GOOD.values()]
    files += [text.replace("\r\n", "\n").replace("\n", "\r\n") for text in GOOD.values()]
    assert read_by_both(page, files, tmp_path) == len(files)
    draw = random.Random("damaged")
    files = []
    for _ in range(400):
        text = draw.choice(list(GOOD.values()))
        for _ in range(draw.randint(1, 2)):
            at = draw.randrange(len(text))
            cut = draw.choice((0, 1, 1, 5))
            text = text[:at] + draw.choice(("", "", *'0,9.-"\nx ]}{ é')) + text[at + cut :]
        files.append(text)
    assert 50 < read_by_both(page, files, tmp_path) < 390
    wanted = OTHER | WRONG
    for (text, words), got in zip(wanted.items(), read_by_page(page, [*wanted]), strict=True):
        assert words in got.get("error", ""), text
        assert "\n" not in got["error"]
        assert got["error"].endswith("kvledger report reads traces of other forms") == (
            text in OTHER
        )


# ---------------------------------------------------------------- the page itself
TOKENS_OF, PAGE_SIZE, COST = "Tokens of each request", "Page size, slots", "Cost per page c, slots"
MAXIMUM, PREFIX, SIZES = "Maximum, slots", "Shared prefix, tokens", "Page sizes compared"
RESERVE = "Without pages, reserve"


def ledger_on(page: Page) -> dict[str, list[str]]:
    """The ledger's table as it is shown: each quantity with a value for each policy."""
    rows: list[list[str]] = page.evaluate(
        """() => [...document.querySelectorAll("#kvx-ledger tr")].map((row) =>
          [...row.cells].map((cell) => [...cell.childNodes].map((node) =>
            node.nodeName === "SMALL" ? "" : node.textContent).join("")))"""
    )
    return {name: values for name, *values in rows}


def column(ledger: Ledger) -> dict[str, str]:
    names = ["requests", "logical_tokens", "shared_tokens", "distinct_tokens", "tail_slack_slots"]
    names += ["reserved_slots", "allocated_slots", "pages"]
    return {name: f"{getattr(ledger, name):,}" for name in names}


def fill(page: Page, texts: dict[str, str]) -> None:
    for label, text in texts.items():
        page.get_by_label(label).fill(text)


def errors_on(page: Page) -> list[str]:
    return page.locator(".kvx-error:visible").all_text_contents()


def shows(page: Page, place: int, ledger: Ledger) -> None:
    shown = ledger_on(page)
    assert {name: shown[name][place] for name in column(ledger)} == column(ledger)


def test_what_is_typed_is_shown_as_the_package_has_it(opened: Opened) -> None:
    page = opened()
    lengths = [20, 23, 9]
    typed = {TOKENS_OF: "20 23\n9", PAGE_SIZE: "8", MAXIMUM: "24", PREFIX: "8", COST: "0.1"}
    fill(page, typed | {SIZES: "1, 2, 4, 8"})
    page.get_by_label("Model", exact=True).select_option("Qwen3-8B")
    shows(page, 0, contiguous(lengths, 24))
    shows(page, 1, paged(lengths, 8))
    shows(page, 2, shared(lengths, 8, 8))
    bytes_shown = page.locator("#kvx-ledger small").all_text_contents()
    slots = [ledger.allocated_slots for ledger in (contiguous(lengths, 24), paged(lengths, 8))]
    assert bytes_shown[:2] == [f"{int(metadata.bytes_from_slots(n, 'Qwen3-8B')):,}" for n in slots]
    best = metadata.best_page_size(lengths, 0.1, [1, 2, 4, 8])
    finding = page.locator(".kvx-finding").text_content() or ""
    assert finding.startswith(f"Pages of {best.page_size} cost least: {float(best.cost):g} slots.")
    rows = page.locator("#kvx-envelope tbody tr").all_inner_texts()
    assert len(rows) == len(metadata.envelope(lengths, [1, 2, 4, 8]))
    for row, (size, c_from, c_to) in zip(
        rows, metadata.envelope(lengths, [1, 2, 4, 8]), strict=True
    ):
        cells = row.split()
        assert cells[0] == str(size)
        for c in (c_from, c_to):
            assert ("∞" if c == math.inf else str(c)) in cells
    for reserve in ("pow2", "oracle"):
        page.get_by_label(RESERVE).select_option(reserve)
        shows(page, 0, contiguous(lengths, reserve))
    page.get_by_role("button", name="Start again").click()
    shows(page, 1, paged([5, 9, 17], 4))


@pytest.mark.parametrize(("page_size", "prefix"), [(4, 8), (3, 5), (16, 4), (1, 1)])
def test_the_squares_are_slots(opened: Opened, page_size: int, prefix: int) -> None:
    lengths = [20, 9, 23]
    state = f"#lengths=20,9,23&page_size={page_size}&prefix={prefix}&reserve=32"
    counts = opened(state).evaluate(
        """() => [...document.querySelectorAll("#kvx-slots .kvx-panel svg")].map((panel) =>
          Object.fromEntries(["used", "slack", "reserved", "shared"].map((part) =>
            [part, panel.querySelectorAll(`rect.kvx-part-${part}:not(pattern *)`).length])))"""
    )
    names = {"used": "distinct_tokens", "slack": "tail_slack_slots"}
    names |= {"reserved": "reserved_slots", "shared": "shared_tokens"}
    ledgers = contiguous(lengths, 32), paged(lengths, page_size), shared(lengths, page_size, prefix)
    assert counts == [
        {part: getattr(ledger, name) for part, name in names.items()} for ledger in ledgers
    ]


def test_a_trace_is_chosen_and_a_maximum_below_it_raised(opened: Opened) -> None:
    page = opened()
    page.get_by_label("Requests", exact=True).select_option(label="Azure code")
    marginals = load_lengths("azure_code_2023")
    shows(page, 0, contiguous(marginals.total, marginals.total.max_tokens))
    shows(page, 1, paged(marginals.total, 4))
    page.get_by_label("prompt alone").check()
    shows(page, 1, paged(marginals.prompt, 4))
    page.get_by_label(MAXIMUM).fill("4096")
    counted = contiguous(marginals.prompt, 4096, over_maximum="count")
    shows(page, 0, counted)
    assert ledger_on(page)["refused_requests"][0] == f"{counted.refused_requests:,}"
    assert counted.refused_requests
    # Bars, not squares; and the green line is apart from them.
    assert page.locator("#kvx-slots rect.kvx-part-used").count() < 20
    assert page.locator("#kvx-slots .kvx-part-shared").count() == 0


def test_the_keyboard_reaches_and_moves_everything(opened: Opened) -> None:
    page = opened()
    names = []
    page.locator("#kvx-source").focus()
    for _ in range(40):
        names.append(page.evaluate("document.activeElement.id || document.activeElement.className"))
        outline = page.evaluate("getComputedStyle(document.activeElement).outlineStyle")
        assert outline != "none", names[-1]
        page.keyboard.press("Tab")
        if not page.evaluate("document.activeElement.closest('.kvx') !== null"):
            break
    inputs = page.evaluate(
        """() => [...document.querySelectorAll(".kvx :is(input, select, textarea, button)")]
          .filter((e) => e.checkVisibility()).map((e) => e.id || e.className)"""
    )
    assert set(inputs) <= set(names)
    assert {"kvx-link", "kv-table kvx-table"} <= set(names)
    for slider, key, label, value in (
        ("Page size by powers of two", "ArrowRight", PAGE_SIZE, "8"),
        ("Cost of a page by powers of two", "Home", COST, "0"),
        ("Cost of a page by powers of two", "ArrowRight", COST, "1/262144"),
        ("Shared prefix, up to the shortest request", "End", PREFIX, "5"),
    ):
        page.get_by_label(slider).focus()
        page.keyboard.press(key)
        assert page.get_by_label(label).input_value() == value
    shows(page, 1, paged([5, 9, 17], 8))
    shows(page, 2, shared([5, 9, 17], 8, 5))


def test_what_changes_is_said_and_what_is_drawn_has_words(opened: Opened) -> None:
    page = opened("#lengths=1,2,3&page_size=2&prefix=0&c=1/3")
    status = page.get_by_role("status")
    assert "3 requests, 6 tokens" in (status.text_content() or "")
    fill(page, {PAGE_SIZE: "16"})
    said = status.text_content() or ""
    assert "In pages of 16 they hold 48 slots, 42 of them tail slack (87.50%)" in said
    labels = page.locator(".kvx svg").evaluate_all(
        "all => all.map((e) => [e.getAttribute('role'), e.getAttribute('aria-label')])"
    )
    assert len(labels) == 4  # two policies, the curve and the strip
    for role, label in labels:
        assert role == "img"
        assert len(label.split()) > 5


def test_each_error_stands_at_its_setting(opened: Opened) -> None:
    page = opened()
    for label, (name, text, answer) in {
        PAGE_SIZE: ("page_size", "0", lambda: paged([5], 0)),
        COST: ("c", "-1", lambda: metadata.exact_cost(-1)),
        MAXIMUM: ("reserve", "x", lambda: contiguous([5], "x")),
        PREFIX: ("prefix", "6", lambda: shared([5, 9, 17], 4, 6)),
        SIZES: ("page_sizes", "4, 2.5", lambda: metadata.envelope([5], [4, 2.5])),
        TOKENS_OF: ("lengths", "5, x", lambda: paged([5, "x"], 1)),
    }.items():
        field = page.get_by_label(label)
        before = field.input_value()
        field.fill(text)
        with pytest.raises(LedgerError) as error:
            answer()
        assert errors_on(page) == [str(error.value)]
        assert field.get_attribute("aria-invalid") == "true"
        assert field.get_attribute("aria-describedby") == f"kvx-{name}-error"
        field.fill(before)
        assert errors_on(page) == []
        assert field.get_attribute("aria-invalid") == "false"


# ---------------------------------------------------------------- files and markup
MARKUP = "<img src=x onerror=\"document.title='ran'\"><script>document.title='ran'</script>'\"&amp;"


def ran_nothing(page: Page) -> None:
    page.wait_for_timeout(50)
    assert page.title() != "ran"
    assert page.locator(".kvx :is(img, script, iframe)").count() == 0


def choose(page: Page, name: str, content: bytes) -> None:
    """Choose a file that is read."""
    offer(page, name, content)
    page.wait_for_function("document.getElementById('kvx-source').value === 'file'")


def offer(page: Page, name: str, content: bytes) -> None:
    file = {"name": name, "mimeType": "text/csv", "buffer": content}
    page.get_by_label("or a file").set_input_files(file)


def refused(page: Page, name: str, content: bytes) -> str:
    """Choose a file that is not read, and return what is said of it."""
    offer(page, name, content)
    alert = page.get_by_role("alert")
    alert.wait_for()
    return alert.text_content() or ""


def test_a_chosen_file_is_read_and_stays_here(opened: Opened) -> None:
    page = opened()
    name = MARKUP.replace("/", "") + ".csv"
    choose(page, name, GOOD["azure"].encode())
    shows(page, 1, paged([4818, 3188], 4))
    about = page.locator("#kvx-about").text_content() or ""
    assert about.startswith(f"{name}: 2 requests, read as CSV.")
    assert page.locator("#kvx-source option[value=file]").text_content() == name
    page.get_by_label("prompt alone").check()
    shows(page, 1, paged([4808, 3180], 4))
    page.wait_for_function("location.hash.includes('file=')")
    assert "4808" not in page.evaluate("location.hash")
    assert "not its content" in (page.locator("#kvx-link-note").text_content() or "")
    ran_nothing(page)


@pytest.mark.parametrize(
    "content",
    [
        f"{MARKUP.replace(',', '')},b\n1,2\n",
        TOKENS + f'1,2\n"{MARKUP.replace(chr(34), chr(34) * 2)}",1\n',
        json.dumps({MARKUP: 1}),
        json.dumps([5, MARKUP]),
        json.dumps({"input_length": MARKUP, "output_length": 1, "timestamp": 0}),
        TOKENS + f"1,2,{MARKUP}\n",
    ],
)
def test_markup_in_a_file_is_shown_and_never_run(opened: Opened, content: str) -> None:
    page = opened()
    name = f"{MARKUP.replace('/', '')}.csv"
    text = refused(page, name, content.encode())
    assert text.startswith(name)
    assert "accepted" in text
    ran_nothing(page)
    fill(page, {TOKENS_OF: content})
    assert page.locator("#kvx-lengths-error").is_visible()
    ran_nothing(page)
    assert page.get_by_role("alert").is_hidden()  # the next change takes the message away


def test_a_file_is_dropped(opened: Opened) -> None:
    page = opened()
    page.evaluate(
        """(text) => {
          const files = new DataTransfer();
          files.items.add(new File([text], "dropped.txt"));
          const drop = { dataTransfer: files, bubbles: true, cancelable: true };
          document.getElementById("kvx-results").dispatchEvent(new DragEvent("drop", drop));
        }""",
        "7\n8\n",
    )
    page.wait_for_function("document.getElementById('kvx-source').value === 'file'")
    shows(page, 1, paged([7, 8], 4))
    assert page.locator("#kvx-of").is_hidden()  # plain lengths have no output to leave out


@pytest.mark.parametrize(
    "content",
    [gzip.compress(b"5\n"), b"(\xb5/\xfd\x00", b"PAR1\x15\0", "5\n".encode("utf-16"), b"5\n\xe9\n"],
    ids=["gzip", "zstd", "Parquet", "UTF-16", "latin-1"],  # packed data may hold the time
)
def test_a_file_that_is_no_text_is_refused(opened: Opened, content: bytes) -> None:
    page = opened()
    said = refused(page, "packed", content)
    assert said.startswith("packed: the file is no text in UTF-8; accepted")
    shows(page, 1, paged([5, 9, 17], 4))  # what was there stays


def test_a_file_too_large_is_refused_unread(opened: Opened) -> None:
    page = opened()
    page.evaluate("kvledgerExplorer.LARGEST_FILE = 10")
    said = refused(page, "large.txt", b"5\n" * 6)
    assert "large.txt: 12 bytes; accepted here: up to 10 bytes" in said


# ---------------------------------------------------------------- the link
def test_the_address_holds_the_settings_and_restores_them(opened: Opened) -> None:
    page = opened()
    before = page.evaluate("history.length")
    fill(page, {TOKENS_OF: "20, 23; 9&c=5#"})
    page.get_by_label(RESERVE).select_option("pow2")
    typed = {PAGE_SIZE: "8", COST: "3/14", "KV bytes per token": "1000"}
    fill(page, {TOKENS_OF: "20, 23, 9"} | typed)
    page.wait_for_function("location.hash.includes('bytes_per_token=1000')")
    link = page.evaluate("location.hash")
    assert "lengths=20,23,9&" in link
    assert "c=3/14&" in link
    shown = page.get_by_label("Link to these settings")
    assert shown.input_value() == page.evaluate("location.href")
    shown.focus()
    assert page.evaluate("getSelection().toString()") == page.evaluate("location.href")
    assert page.evaluate("history.length") == before  # moving a slider is no new page
    other = opened(link)
    for label, value in {"Model": "", TOKENS_OF: "20,23,9", RESERVE: "pow2", **typed}.items():
        assert other.get_by_label(label, exact=True).input_value() == value
    assert ledger_on(other) == ledger_on(page)
    again = "kvledgerExplorer.linkOf(kvledgerExplorer.readLink(location.hash).settings)"
    assert other.evaluate(again) == link
    other.evaluate("location.hash = '#trace=sharegpt_8k&of=prompt&page_size=16'")
    other.wait_for_function("document.getElementById('kvx-source').value === 'trace:sharegpt_8k'")
    shows(other, 1, paged(load_lengths("sharegpt_8k").prompt, 16))
    other.evaluate("location.hash = '#what-it-reads'")  # a place on the page is no setting
    other.wait_for_timeout(50)
    shows(other, 1, paged(load_lengths("sharegpt_8k").prompt, 16))


def test_odd_texts_survive_the_link(page: Page) -> None:
    kept = {"lengths": "5,\n9;\t17 % & = # + é 😀 <b>", "of": "prompt", "page_size": " 4 "}
    kept |= {"c": "1/4&c=2", "reserve": "", "prefix": "+1", "model": "DeepSeek-V3/R1"}
    kept |= {"page_sizes": "1,2"}
    link, back = page.evaluate(
        """(odd) => {
          const link = kvledgerExplorer.linkOf(odd);
          return [link, kvledgerExplorer.readLink(link)];
        }""",
        kept | {"trace": "", "file": "", "bytes_per_token": ""},
    )
    assert back == {"settings": kept, "problem": None}
    assert re.fullmatch(r"#[\x21-\x7e]+", link)
    long = page.evaluate(
        "kvledgerExplorer.linkOf({ lengths: '12345 '.repeat(2000), page_size: '4' })"
    )
    assert long is None


def test_too_many_lengths_for_a_link_are_said_so(opened: Opened) -> None:
    page = opened()
    fill(page, {TOKENS_OF: "12345 " * 2000})
    assert page.get_by_label("Link to these settings").is_disabled()
    assert "too many lengths" in (page.locator("#kvx-link-note").text_content() or "")
    shows(page, 1, paged([12345] * 2000, 4))


@pytest.mark.parametrize(
    ("state", "message"),
    [
        (f"#{MARKUP}=1", "a setting "),
        ("#javascript:alert(1)=1", "a setting 'javascript:alert(1)'; accepted: lengths,"),
        ("#__proto__=1", "a setting '__proto__'; accepted: lengths"),
        ("#page_size=4&page_size=8", "page_size twice; accepted: each setting once"),
        ("#of=half", "of is 'half'; accepted: total, prompt"),
        ("#lengths=5&trace=sharegpt_8k", "lengths and trace; accepted: one of lengths"),
        ("#page_size=%E0%A4%A", None),
        *((f"#{name}={MARKUP}", None) for name in ("trace", "file", "model", "lengths")),
        ("#page_size=M&c=M&prefix=M&reserve=M&page_sizes=M".replace("M", MARKUP), None),
        ("#lengths=" + "9" * 5000, None),
        ("#=&&&===", "a setting ''; accepted: lengths"),
    ],
)
def test_a_malformed_link_is_said(opened: Opened, state: str, message: str | None) -> None:
    page = opened(state.replace(" ", "%20").replace("&amp;", "%26amp%3B"))
    errors = errors_on(page)
    assert len(errors) == len(set(errors)) >= 1
    if message is not None:
        assert len(errors) == 1
        assert errors[0].removeprefix("this link has ").startswith(message)
    ran_nothing(page)


def test_a_file_named_by_a_link_is_asked_for(opened: Opened) -> None:
    page = opened("#file=mine.csv&page_size=8")
    assert errors_on(page) == ["mine.csv: a link holds no file; choose the file again"]
    choose(page, "mine.csv", b"5\n9\n")
    shows(page, 1, paged([5, 9], 8))
    assert errors_on(page) == []


# ---------------------------------------------------------------- looks, weight and making
def test_without_scripts_the_page_says_what_it_needs(
    page: Page, browser: Browser, site: Path
) -> None:
    assert page.locator("#kvledger-explorer").is_visible()
    assert page.locator(".kvx-noscript").count() == 0
    context = browser.new_context(java_script_enabled=False)
    plain = context.new_page()
    plain.goto((site / PAGE).as_uri())
    assert plain.locator("#kvledger-explorer").is_hidden()
    words = plain.locator(".kvx-noscript")
    assert words.is_visible()
    assert "needs JavaScript" in words.inner_text()
    assert "kvledger account" in words.inner_text()
    assert words.locator("a").get_attribute("href") == "reproduce.html"
    context.close()


STATES = (
    "",
    "#trace=mooncake_conversation&page_size=16&reserve=pow2&prefix=512&c=1/512",
    "#lengths=5,x&page_size=0&c=-1&reserve=0&prefix=9&page_sizes=0&model=none",
    f"#lengths={2**62}&page_size={2**40}&c=1e30&reserve=oracle&prefix=0&page_sizes=1,7,{2**40}",
    "#lengths=8,8&page_size=8&c=0&reserve=1&prefix=8&page_sizes=8",
)


@pytest.mark.parametrize("width", WIDTHS)
@pytest.mark.parametrize("mode", MODES)
def test_every_state_passes_page_checks(
    browser: Browser, site: Path, mode: str, width: int
) -> None:
    server = serve(site)
    visit: Visit = new_visit(browser, site, f"http://127.0.0.1:{server.server_port}", width, mode)
    wrong = []
    for state in STATES:
        visit.page.goto("about:blank")  # or the next state would be no new visit
        visit.open(PAGE + state, settle=False)
        for folded in visit.page.locator(".kvx summary").all():
            folded.click()
        once = ONCE if (width, mode) == (WIDTHS[0], MODES[0]) else ()  # as on every page
        for check in (*CHECKS, *once):
            wrong += [f"{state} {check.__name__}: {what}" for what in check(visit)]
        # What scrolls of its own on a narrow page is a table, which the keyboard reaches.
        wrong += visit.page.evaluate(
            """() => [...document.querySelectorAll(".kvx *")].filter((e) =>
              e.scrollWidth > e.clientWidth + 1 && getComputedStyle(e).overflowX === "auto"
              && !e.matches(".kvx-table[tabindex='0'], textarea")).map((e) => e.outerHTML)"""
        )
    visit.page.context.close()
    server.shutdown()
    assert not wrong, "\n".join(wrong)


def test_no_number_is_drawn_that_is_none(opened: Opened) -> None:
    for state in STATES:
        drawn = opened(state).locator("#kvledger-explorer").evaluate("e => e.outerHTML")
        assert not re.search(r"NaN|undefined|\[object|Infinity", drawn), state


def test_only_the_explorer_s_page_loads_its_scripts_and_light_data(site: Path) -> None:
    text = (site / PAGE).read_text(encoding="utf-8")
    loaded = re.findall(r'<script defer="defer" src="\.\./_static/(explorer[\w-]*\.js)', text)
    assert loaded == list(explorer.SCRIPTS)
    assert "explorer.css" in text
    for other in (site / "chapters").glob("*.html"):
        if other.name != "explorer.html":
            assert "explorer-" not in re.sub(r"<a .*?</a>", "", other.read_text(encoding="utf-8"))
    made = (site / "_static" / explorer.DATA).read_text(encoding="utf-8")
    explorer.data_script.cache_clear()
    assert explorer.data_script() == made
    assert "</" not in made
    total = sum((site / "_static" / name).stat().st_size for name in explorer.SCRIPTS)
    assert total < 400_000  # bytes: less than half a second of a slow line


def test_scripts_make_no_markup_and_share_no_names() -> None:
    """Text becomes text only: no script writes HTML, evaluates, fetches or stores."""
    assets = explorer.FORM.parent / "assets"
    shared_names: list[str] = []
    for name in explorer.SCRIPTS[1:]:
        text = (assets / name).read_text(encoding="utf-8")
        forbidden = re.findall(
            r"innerHTML|outerHTML|insertAdjacent|document\.write|\beval\b|new Function|\bfetch\b|"
            r"XMLHttpRequest|import\(|localStorage|sessionStorage|cookie|sendBeacon|setTimeout\(\"",
            text,
        )
        assert forbidden == [], name
        for names in re.findall(r"Object\.assign\(kv, \{(.*?)\}\)", text, re.DOTALL):
            shared_names += [each.strip() for each in names.split(",") if each.strip()]
    assert len(shared_names) == len(set(shared_names)) > 20


def test_an_explorer_without_words_for_readers_without_scripts_is_an_error() -> None:
    from docutils.core import publish_string
    from docutils.parsers.rst import directives

    directives.register_directive("explorer", explorer.ExplorerDirective)
    said = io.StringIO()
    publish_string(".. explorer::\n", settings_overrides={"warning_stream": said})
    assert "explorer: no content; accepted: what is read without JavaScript" in said.getvalue()
