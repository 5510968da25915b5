"""The explorer against the package: the same answers and the same errors, in a real browser.

The small book built here has the explorer's page alone. It is opened from its file, as a reader
opens a copy on a disk; its looks are tested with the rest of the book in test_browser.py.
"""

from __future__ import annotations

import base64
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
from playwright.sync_api import Browser, Page, sync_playwright
from test_browser import (
    CHECKS,
    FLAGS,
    MODES,
    WIDTHS,
    Visit,
    find_chromium,
    new_visit,
    serve,
)

import kvledger as kv
from kvledger.book import explorer, style
from kvledger.errors import LedgerError
from kvledger.ledger import Ledger
from kvledger.metadata import (
    DEFAULT_PAGE_SIZES,
    best_page_size,
    bytes_from_slots,
    cost,
    envelope,
    exact_cost,
    near_best,
)
from kvledger.models import Model
from kvledger.paging import page_counts, paged
from kvledger.reservation import contiguous
from kvledger.sharing import shared
from kvledger.traces import load_lengths, load_trace

ROOT = Path(__file__).resolve().parent.parent
PAGE = "chapters/explorer.html"

# ---------------------------------------------------------------- the page and a browser


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A book of the explorer's page, with an empty page for each that it refers to."""
    root = tmp_path_factory.mktemp("explorer")
    (root / "chapters").mkdir()
    text = (ROOT / "chapters" / "explorer.md").read_text(encoding="utf-8")
    (root / "chapters" / "explorer.md").write_text(text, encoding="utf-8")
    others = sorted(set(re.findall(r"\{doc\}`(\w+)`", text)))
    assert others, "the page refers to no other"
    for name in others:
        (root / "chapters" / f"{name}.md").write_text(f"# {name}\n", encoding="utf-8")
    toc = ["format: jb-book", "root: chapters/explorer", "chapters:"]
    toc += [f"  - file: chapters/{name}" for name in others]
    (root / "_toc.yml").write_text("\n".join(toc), encoding="utf-8")
    shutil.copyfile(ROOT / "_config.yml", root / "_config.yml")
    shutil.copyfile(ROOT / "chapters" / "references.bib", root / "chapters" / "references.bib")
    (root / "requirements.txt").write_text("# of the explorer's book\n", encoding="utf-8")
    skip = shutil.ignore_patterns("__pycache__", "*.egg-info")
    shutil.copytree(ROOT / "src" / "kvledger", root / "src" / "kvledger", ignore=skip)
    shutil.copytree(ROOT / "data", root / "data")
    made = subprocess.run(
        [sys.executable, "-m", "kvledger.book.build", "book"],
        cwd=root,
        env={**os.environ, "PYTHONPATH": str(root / "src")},
        capture_output=True,
        text=True,
        check=False,
    )
    assert made.returncode == 0, made.stdout + made.stderr
    return root / "_build" / "html"


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with sync_playwright() as playwright:
        found = playwright.chromium.launch(executable_path=find_chromium(), args=FLAGS)
        yield found
        found.close()


@pytest.fixture
def opened(browser: Browser, site: Path) -> Iterator[Callable[..., Page]]:
    """Open the page from its file, and see to it that nothing goes wrong meanwhile."""
    contexts = []
    wrong: list[str] = []

    def open(state: str = "", **options: Any) -> Page:
        context = browser.new_context(viewport={"width": 1400, "height": 900}, **options)
        contexts.append(context)
        page = context.new_page()
        page.on("request", lambda r: None if _is_local(r.url) else wrong.append(r.url))
        page.on("pageerror", lambda e: wrong.append(str(e)))
        page.on("dialog", lambda d: wrong.append(d.message))
        page.on(
            "console",
            lambda m: wrong.append(m.text) if m.type in {"error", "warning"} else None,
        )
        page.goto((site / PAGE).as_uri() + state)
        return page

    yield open
    for context in contexts:
        context.close()
    assert wrong == []


def _is_local(url: str) -> bool:
    return url.startswith(("file://", "data:", "blob:"))


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


def computed(page: Page, inputs: list[dict[str, str]]) -> list[dict[str, Any]]:
    """What the page computes from each of some settings."""
    text = page.evaluate(
        f"inputs => JSON.stringify(inputs.map((i) => kvledgerExplorer.compute(i)), {PLAIN})",
        inputs,
    )
    answers: list[dict[str, Any]] = json.loads(text)
    return answers


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
        each = int(typed["bytes_per_token"])
        model = Model("own", 1, 1, each, latent=True, bytes_per_element=1)

    def tested() -> list[dict[str, Any]]:
        exact, total = exact_cost(c), kv.lengths.as_lengths
        return [
            {
                "page_size": p,
                "pages": pages,
                "tail_slack_slots": p * pages - total(lengths).total_tokens,
                "metadata": pages * exact,
                "cost": pages * (p + exact),
            }
            for p, pages in page_counts(lengths, sizes).items()
        ]

    def summary() -> dict[str, int]:
        table = kv.lengths.as_lengths(lengths)
        return {
            "requests": table.n_requests,
            "logical_tokens": table.total_tokens,
            "shortest": int(table.tokens[0]),
            "longest": table.max_tokens,
        }

    def held(ledger: Ledger) -> Fraction:
        return bytes_from_slots(ledger.allocated_slots, model)

    ledgers = {
        "contiguous": lambda: contiguous(lengths, reserve, over_maximum=over),
        "paged": lambda: paged(lengths, size),
        "shared": lambda: shared(lengths, size, prefix),
    }
    answers = {
        "lengths": attempt(summary),
        **{name: attempt(ledger) for name, ledger in ledgers.items()},
        "c": attempt(lambda: exact_cost(c)),
        "cost": attempt(lambda: cost(lengths, size, c)),
        "costs": attempt(tested),
        "best": attempt(lambda: best_page_size(lengths, c, sizes)),
        "near_best": attempt(lambda: near_best(lengths, c, sizes)),
        "envelope": attempt(lambda: envelope(lengths, sizes)),
        "bytes_per_token": attempt(lambda: kv.models.load_model(model).kv_bytes_per_token),
        "envelope_bytes": attempt(
            lambda: [
                math.inf if c_to == math.inf else bytes_from_slots(c_to, model)
                for _, _, c_to in envelope(lengths, sizes)
            ]
        ),
    }
    for name, ledger in ledgers.items():
        answer = attempt(lambda ledger=ledger: held(ledger()))  # type: ignore[misc]
        if "value" in answer:  # slots are whole, and so are their bytes
            assert answer["value"]["d"] == "1"
            answer = {"value": answer["value"]["n"]}
        answers[f"{name}_bytes"] = answer
    return answers


# ---------------------------------------------------------------- a thousand inputs

ODD_WORDS = ("0", "-3", "2.5", "5.0", "1e3", "x", "nan", "", "1O24", "'", '"<b>', "1e400", "é\t", "-0.0")
ODD_COSTS = ("", "-1", "-0.5", "abc", "1/0", "nan", "inf", "1e400", "-1/4", "1/", "0x1", "<b>1</b>")
TEST_MODELS = ("Llama-3.1-8B", "Gemma-3-27B", "DeepSeek-V3/R1", "OPT-175B")


def some_length(draw: random.Random) -> str:
    kind = draw.random()
    if kind < 0.75:
        return str(draw.randint(1, draw.choice((4, 40, 5000))))
    if kind < 0.9:
        return str(draw.choice((2**31, 2**53, 2**62)) + draw.randint(-3, 3))
    if kind < 0.97:
        return str(max(1, draw.choice((2**63, 2**64)) // draw.choice((1, 2, 4, 64)) - draw.randint(0, 2)))
    return draw.choice(ODD_WORDS)


def some_lengths(draw: random.Random) -> str:
    small = draw.random() < 0.6  # most lists have no length that 64 bits or a float find hard
    many = draw.choice((0, 1, 2, 3, 5, 8, 40)) if draw.random() < 0.98 else 0
    words = [str(draw.randint(1, 300)) if small else some_length(draw) for _ in range(many)]
    return draw.choice((", ", ",", " ", "\n", " ; ")).join(words)


def some_slots(draw: random.Random, odd: tuple[str, ...] = ODD_WORDS) -> str:
    kind = draw.random()
    if kind < 0.1:
        return draw.choice(odd)
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
        sizes = list(DEFAULT_PAGE_SIZES)
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
    return [
        f"{name} of {typed}: the page has {answer[name]}, the package {want[name]}"
        for name in want
        if answer[name] != want[name]
    ]


@pytest.mark.parametrize("seed", range(5))
def test_two_hundred_random_inputs_have_the_package_s_answers(page: Page, seed: int) -> None:
    draw = random.Random(f"explorer {seed}")
    inputs = [some_settings(draw) for _ in range(200)]
    wrong = [
        difference
        for typed, answer in zip(inputs, computed(page, inputs), strict=True)
        for difference in differences(typed, answer)
    ]
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
    assert all(kinds == {"value", "error"} for name, kinds in seen.items() if name != "bytes_per_token")
    for words in ("add up to", " bits)", "is missing", "at most the reserved", "is empty", "prefix is"):
        assert any(words in error for error in errors), words


@pytest.mark.parametrize(
    ("typed", "words"),
    [
        ({"lengths": f"{2**53 + 1}, {2**53 + 3}"}, None),
        ({"lengths": f"{2**62}, {2**62 - 1}", "page_size": "1"}, None),
        ({"lengths": f"{2**62}, {2**62}"}, "lengths add up to 9223372036854775808; sums up to"),
        ({"lengths": str(2**63 - 1), "page_size": "2"}, "slots of 2-slot pages add up to"),
        ({"lengths": str(2**62 + 1), "reserve": "pow2"}, "next powers of two are given up to"),
        ({"lengths": "5, 9", "reserve": str(2**62)}, "reserved slots add up to"),
        ({"lengths": f"{2**62}, {2**62}", "prefix": str(2**62), "page_size": "1"}, "shared pages add"),
        ({"lengths": "5, 9, 17", "page_size": str(2**63)}, "at least 1, and at most 92233720"),
        ({"lengths": "1, 2, 3, 6", "page_sizes": "1, 2, 3, 6", "c": "0"}, None),
        ({"lengths": "6", "page_sizes": "2, 3, 6", "c": "0"}, None),  # a tie: the larger
        ({"lengths": "5,, 9"}, r"lengths[1] is missing; a length is"),
        ({"lengths": "5, '\"\\"}, r"""lengths[1] is '\'"\\'; a length is"""),
        ({"lengths": "length\n5"}, "lengths[0] is 'length'; a length is"),
        ({"lengths": "5, " + "x" * 70}, "lengths[1] is '" + "x" * 56 + "...; a length"),
        ({"trace": "mooncake_conversation", "reserve": "8192"}, "a request of lengths is 126527 tok"),
        ({"trace": "sharegpt_8k", "of": "prompt", "prefix": "2"}, "prefix is 2; request 0 has 1 tok"),
    ],
)
def test_what_is_hard_for_a_float_a_tie_or_a_word(
    page: Page, typed: dict[str, str], words: str | None
) -> None:
    whole = {
        "lengths": "5",
        "page_size": "4",
        "reserve": "oracle",
        "over_maximum": "error",
        "prefix": "0",
        "c": "1/3",
        "page_sizes": "1, 2, 4",
        "model": "Llama-3.1-8B",
        **typed,
    }
    (answer,) = computed(page, [whole])
    assert differences(whole, answer) == []
    errors = [each["error"] for each in answer.values() if "error" in each]
    assert any(words in error for error in errors) if words else not errors, errors


def test_every_trace_of_the_book_is_as_the_package_has_it(page: Page) -> None:
    inputs = [
        {
            "trace": trace,
            "of": of,
            "page_size": "16",
            "reserve": "pow2",
            "over_maximum": "error",
            "prefix": "1",
            "c": "1/1000",
            "page_sizes": "1, 7, 16, 48, 4096",
            "model": model,
        }
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
        "() => Object.entries(kvledgerExplorerData.models).filter(([, m]) => m.windowed).map(([n]) => n)"
    )
    assert windowed == [name for name, model in models.items() if model.window_layers]


@pytest.mark.parametrize(
    ("typed", "message"),
    [
        ({"model": "Llama-9"}, "model is 'Llama-9'; known are: OPT-13B, OPT-66B, "),
        ({"model": "toString"}, "model is 'toString'; known are: "),
        ({"model": "", "bytes_per_token": "0"}, "bytes_per_token is 0; KV bytes per token are a wh"),
        ({"model": "", "bytes_per_token": "<b>"}, "bytes_per_token is '<b>'; KV bytes per token are"),
        ({"model": "", "bytes_per_token": ""}, "bytes_per_token is missing; KV bytes per token are"),
    ],
)
def test_an_unknown_model_is_one_error(page: Page, typed: dict[str, str], message: str) -> None:
    (answer,) = computed(page, [typed])
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

RUN = {
    "request_throughput": 1.5,
    "input_lens": [10, 20, 30],
    "output_lens": [1, 0, 3],
    "start_times": [100.5, 100.25, 101.0],
    "errors": ["", "timed out", ""],
}
GOOD = {
    "azure": "TIMESTAMP,ContextTokens,GeneratedTokens\r\n"
    "2023-11-16 18:17:03.9799600,4808,10\r\n2023-11-16 18:17:04.0319600,3180,8",
    "azure with zones": "TIMESTAMP,ContextTokens,GeneratedTokens\n"
    "2024-05-10 00:00:00.009930+00:00,2162,5\n2024-05-10T00:30:01+0030,2399,6\n"
    "2024-05-10 00:00:03Z,7,0\n",
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
    "array": " [5, 9,\n 17.0]\n",
    "large array": f"[{2**53 + 1}, {2**62}]",
    "mooncake": '{"timestamp": 27482, "input_length": 1025, "output_length": 52, "hash_ids": [46, 47, 2]}\n'
    '{"timestamp": 30535, "input_length": 512, "output_length": 26, "hash_ids": [46]}\n',
    "mooncake without ids": '{"timestamp": 0, "input_length": 5, "output_length": 1}\n' * 2,
    "qwen": '{"chat_id": 159, "timestamp": 61.1, "input_length": 33, "output_length": 1, "hash_ids": [1, 2, 3]}\n'
    '{"chat_id": 160, "timestamp": 61.2, "input_length": 33, "output_length": 1, "hash_ids": [7, 8]}\n',
    "benchmark": json.dumps(RUN) + "\n",
    "two benchmarks": json.dumps(RUN) + "\n" + json.dumps(RUN) + "\n",
    "benchmark, indented": json.dumps(RUN, indent=1),
    "other letters": "Täglich\n5\n9\n",
}
TOKENS = "prompt_tokens,output_tokens\n"
BAD = {
    "nothing": "",
    "blank": " \n\r\n",
    "header only": TOKENS,
    "empty array": "[]",
    "all failed": json.dumps({**RUN, "errors": ["a", "b", "c"]}),
    "all of burstgpt failed": GOOD["burstgpt"].replace(",18,", ",0,").replace(",276,", ",0,"),
    "a cut row": GOOD["prefill"].rstrip()[:-6],
    "a wrong total": GOOD["prefill"].replace("906", "90"),
    "a cut JSON line": GOOD["mooncake"][:-20],
    "a cut JSON object": json.dumps(RUN, indent=1)[:-3],
    "a cut array": "[5, 9,",
    "an unknown column": "a,b\n1,2\n",
    "a missing column": "TIMESTAMP,ContextTokens\n2023-11-16 18:17:03,5\n",
    "unknown keys": '{"a": 1, "b": 2}',
    "text": '{"prompt": "Hi", "output_tokens": 5}',
    "a missing key": '{"timestamp": 0, "input_length": 5}',
    "no detail": '{"request_throughput": 1.5}',
    "arrays of two sizes": json.dumps({**RUN, "output_lens": [1]}),
    "no array": json.dumps({**RUN, "output_lens": 1}),
    "an odd item": json.dumps({**RUN, "input_lens": [10, 20, True]}),
    "no object": GOOD["mooncake without ids"] + "[5, 2.50, null, {'': 1}]\n".replace("'", '"'),
    "a number": GOOD["mooncake without ids"] + "1e3\n",
    "ids vanish": GOOD["mooncake"] + '{"timestamp": 30536, "input_length": 5, "output_length": 1}',
    "ids appear": GOOD["mooncake without ids"] + GOOD["mooncake"],
    "too few ids": GOOD["mooncake"].replace("[46, 47, 2]", "[46, 47]"),
    "an odd id": GOOD["mooncake"].replace("[46]", '["46"]'),
    "a fractional id": GOOD["mooncake"].replace("[46]", "[46.0]"),
    "time goes back": GOOD["mooncake"].replace("30535", "27481.5"),
    "no time": GOOD["mooncake"].replace("30535", "null"),
    "a huge time": GOOD["mooncake"].replace("30535", "1e400"),
    "a prompt of nothing": GOOD["mooncake"].replace("512", "0"),
    "a fraction": GOOD["mooncake"].replace("512", "512.5"),
    "a negative zero": GOOD["mooncake"].replace("512", "-0.0"),
    "beyond 64 bits": GOOD["mooncake"].replace("512", str(2**63)),
    "a sum beyond 64 bits": TOKENS + f"{2**63 - 1},1\n",
    "an array item": '[5, "9"]',
    "an array of arrays": "[5, [9, [1.5e300, false]]]",
    "two lengths on a line": "5\n9,3\n",
    "not a length": "5\nnine\n",
    "an odd first line": "1O24\n5\n",
    "nan": "nan\n5\n",
    "an open quote": TOKENS + '1,"2\n',
    "a quote too many": TOKENS + '1,"2"3\n',
    "an open quote in the header": '"prompt_tokens,output_tokens\n1,2\n',
    "time goes back in a table": GOOD["tokens"].replace("1e0", ".25"),
    "an endless time": GOOD["tokens"].replace("1e0", "1e999"),
    "no such day": GOOD["azure"].replace("11-16 18:17:04", "02-30 18:17:04"),
    "no such hour": GOOD["azure"].replace("18:17:04", "24:00:00"),
    "a date too early": GOOD["azure"].replace("2023-11-16 18:17:03", "1600-11-16 18:17:03"),
    "no date": GOOD["azure"].replace("2023-11-16 18:17:04.0319600", "yesterday"),
    "markup": "<script>document.title='ran'</script>,b\n1,2\n",
    "markup in a value": TOKENS + "\"<img src=x onerror=alert(1)>\",'\n",
    "a long value": TOKENS + "x" * 99 + ",1\n",
    "UTF-16": GOOD["azure"].encode("utf-16"),
    "UTF-16 without a mark": GOOD["azure"].encode("utf-16-le"),
    "latin-1": (TOKENS + "1,2\n3,\ufffd4\n5,é6\n").replace("é", "\x00").encode().replace(b"\x00", b"\xe9"),
}


def read_by_page(page: Page, files: list[bytes]) -> list[dict[str, Any]]:
    text = page.evaluate(
        f"""files => JSON.stringify(files.map((file) => {{
          const bytes = Uint8Array.from(atob(file), (letter) => letter.charCodeAt(0));
          return kvledgerExplorer.attempt(() => {{
            const text = kvledgerExplorer.decode(bytes.buffer, "trace.csv");
            return kvledgerExplorer.readTrace(text, "trace.csv");
          }});
        }}), {PLAIN})""",
        [base64.b64encode(file).decode() for file in files],
    )
    answers: list[dict[str, Any]] = json.loads(text)
    return answers


def read_by_package(content: bytes) -> dict[str, Any]:
    """What the package reads, and only of lengths; it runs in a folder of its own."""
    Path("trace.csv").write_bytes(content)
    return attempt(lambda: _lengths_only(load_trace("trace.csv")))


def _lengths_only(trace: kv.Trace) -> dict[str, Any]:
    return {
        "prompt": trace.prompt_tokens.tolist(),
        "output": trace.output_tokens.tolist(),
        "failed": trace.failed_requests,
    }


def same_reading(got: dict[str, Any], want: dict[str, Any]) -> bool:
    """Whether both read the same; what a parser says of broken JSON is its own affair."""
    if "value" in got and "value" in want:
        value = {**got["value"], "failed": str(got["value"]["failed"])}
        return bool({name: value[name] for name in want["value"]} == want["value"])
    if "error" in got and "error" in want:
        return _without_parser_s_words(got["error"]) == _without_parser_s_words(want["error"])
    return False


def _without_parser_s_words(error: str) -> str:
    if "JSON cut short" not in error:
        return error
    error = re.sub(r"malformed \(.*\); accepted", "malformed; accepted", error)
    return re.sub(r"^trace.csv, line \d+: (.*one length a line)", r"trace.csv: \1", error)


@pytest.mark.parametrize("kind", ["good", "bad"])
def test_files_are_read_and_refused_as_by_the_package(
    page: Page, kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    corpus = GOOD if kind == "good" else BAD
    files = {n: c.encode() if isinstance(c, str) else c for n, c in corpus.items()}
    if kind == "good":
        files |= {f"{name}, marked": b"\xef\xbb\xbf" + content for name, content in files.items()}
        files |= {
            f"{name}, CRLF": content.replace(b"\r\n", b"\n").replace(b"\n", b"\r\n")
            for name, content in files.items()
        }
    wrong = []
    for name, got in zip(files, read_by_page(page, list(files.values())), strict=True):
        want = read_by_package(files[name])
        assert ("value" in want) == (kind == "good"), (name, want)
        if not same_reading(got, want):
            wrong.append(f"{name}: the page has {got}, the package {want}")
    assert not wrong, "\n".join(wrong)


def test_damaged_files_are_read_and_refused_as_by_the_package(
    page: Page, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    draw = random.Random("damaged")
    files = []
    for _ in range(400):
        text = draw.choice(list(GOOD.values()))
        for _ in range(draw.randint(1, 2)):
            at = draw.randrange(len(text))
            cut = draw.choice((0, 1, 1, 5))
            text = text[:at] + draw.choice(("", "", *"0,9.-\"\nx ]}{ é")) + text[at + cut :]
        files.append(text.encode())
    answers = read_by_page(page, files)
    wrong = [
        f"{file!r}: the page has {got}, the package {want}"
        for file, got in zip(files, answers, strict=True)
        if not same_reading(got, want := read_by_package(file))
    ]
    assert not wrong, "\n".join(wrong[:5])
    assert 100 < sum("error" in answer for answer in answers) < 390
