"""The command says what the package computes, and one line when it cannot."""

from __future__ import annotations

import gzip
import json
import os
import re
import shlex
import subprocess
import sys
from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest
from attention_records import made_record, write_made
from command_line import ENVIRONMENT, answer, on_a_terminal, refusal, run, said
from conftest import ROOT, refused
from editions import book, number
from hypothesis import given
from hypothesis import strategies as st
from rawtraces import raw_folder

import kvledger as kv
from kvledger import cli
from kvledger.cli import COMMANDS, main, make_app
from kvledger.cli.account_commands import layer_groups
from kvledger.core.lengths import as_lengths
from kvledger.core.units import UNITS, bytes_text, parse_bytes
from kvledger.models.known import load_model
from kvledger.models.layers import StateTensor
from kvledger.traces import load_lengths
from kvledger.traces.derivation import load_requests
from proofbook.catalogue import Entry, write_catalogue
from proofbook.catalogue.editions import edition

Capture = pytest.CaptureFixture[str]


@pytest.fixture
def lengths(tmp_path: Path) -> str:
    path = tmp_path / "three.txt"
    path.write_text("5\n9\n17\n")
    return str(path)


def cells(output: str) -> list[list[str]]:
    """The lines of a table, their columns parted by two spaces or more."""
    return [
        [cell for cell in (part.strip() for part in line.split("  ")) if cell]
        for line in output.splitlines()
    ]


def rows(output: str) -> dict[str, list[str]]:
    """The lines of tables by their first cell."""
    return {row[0]: row[1:] for row in cells(output) if row}


# --------------------------------------------------------------------------- account
def test_account_of_lengths_and_of_costs(capsys: Capture, lengths: str) -> None:
    out = said(["account", "--lengths", "5,9,17", "--page-size", "8,4,1,4"], capsys)
    assert cells(out)[:8] == [
        ["lengths given: 3 requests, 31 tokens, mean 10.3, longest 17"],
        [],
        ["policy", "allocated slots", "tail slack", "reserved", "unused", "pages"],
        ["reserve 17", "51", "0", "20", "39.22%", "-"],
        ["reserve pow2", "56", "0", "25", "44.64%", "-"],
        ["reserve oracle", "31", "0", "0", "0.00%", "-"],
        ["pages of 1", "31", "0", "0", "0.00%", "31"],
        ["pages of 4", "40", "9", "0", "22.50%", "10"],
    ]
    sizes = ["--test-sizes", "1,2,4,8,16", "--model", "Llama-3.1-8B"]
    table = cells(said(["account", lengths, "--c", "0,0.25,1,4,1/3", *sizes], capsys))
    start = table.index(["c (token slots a page)", "best page size", "cost"])
    assert table[start + 1 : start + 6] == [
        ["0", "1", "31.00"], ["1/4", "2", "38.25"], ["1", "4", "50.00"], ["4", "8", "72.00"],
        ["1/3", "2", "39.67"],
    ]  # fmt: skip
    corners = table[start + 8 :]
    assert [(row[0], row[3]) for row in corners] == [
        ("1", "3/14"), ("2", "6/7"), ("4", "2"), ("8", "8"), ("16", "any"),
    ]  # fmt: skip
    assert [row[4] for row in corners] == ["28,087", "112,347", "262,144", "1,048,576", "any"]


def test_account_of_a_committed_trace_of_its_prompts_and_of_a_gzipped_one(
    capsys: Capture, tmp_path: Path
) -> None:
    arguments = ["--page-size", "16,32", "--reserve", "2048,pow2", "--model", "Llama-3.1-8B"]
    out = said(["account", "azure_conv_2023", *arguments, "--kv-memory", "60GiB"], capsys)
    trace = load_lengths("azure_conv_2023").total
    table = rows(out)
    paged = kv.paged(trace, 16)
    assert table["pages of 16"][:3] == [
        f"{paged.allocated_slots:,}", f"{paged.tail_slack_slots:,}", "0",
    ]  # fmt: skip
    refused = kv.contiguous(trace, 2048, over_maximum="count")
    assert table["reserve 2,048"][0] == f"{refused.allocated_slots:,}"
    assert table["reserve 2,048"][5] == f"{refused.refused_requests:,}" != "0"
    assert table["policy"][-2:] == ["GiB of Llama-3.1-8B", "requests in 60GiB"]
    slots = 60 * 2**30 // 131072
    fit = slots * trace.n_requests // paged.allocated_slots
    assert table["pages of 16"][-1] == f"{fit:,}"
    assert f"60GiB hold {slots:,} slots of Llama-3.1-8B" in out
    assert "8,819 prompts, 18,059,974 tokens" in said(
        ["account", "azure_code_2023", "--of", "prompt", "--page-size", "16"], capsys
    )
    path = tmp_path / "t.csv.gz"
    path.write_bytes(gzip.compress(b"prompt_tokens,output_tokens\n5,4\n"))
    assert "t: 1 requests, 9 tokens" in said(["account", str(path), "--page-size", "4"], capsys)


FIELDS = ("requests", "logical_tokens", "allocated_slots", "tail_slack_slots", "reserved_slots")


@given(
    lengths=st.lists(st.integers(1, 10**12), min_size=1, max_size=8),
    sizes=st.lists(st.integers(1, 5000), min_size=1, max_size=4),
    c=st.fractions(0, 1000, max_denominator=10**6),
)
def test_json_is_exact(lengths: list[int], sizes: list[int], c: Fraction) -> None:
    """Every number of the document is the library's, to the last digit, read back from text."""
    given_sizes = ",".join(map(str, sizes))
    with pytest.MonkeyPatch.context() as patch:
        texts: list[str] = []
        patch.setattr(cli, "_print", lambda text: texts.append(text) or 0)
        arguments = ["--lengths", ",".join(map(str, lengths)), "--page-size", given_sizes]
        arguments += ["--test-sizes", given_sizes, "--c", str(c), "--json"]
        assert main(["account", *arguments]) == 0
    found = json.loads(texts[0])
    assert Fraction(found["lengths"]["mean_tokens"]) == Fraction(sum(lengths), len(lengths))
    paged = [each for each in found["ledgers"] if each["policy"] == "paged"]
    assert [each["page_size"] for each in paged] == sorted(set(sizes))
    for each in paged:
        ledger = kv.paged(lengths, each["page_size"])
        assert {name: each[name] for name in FIELDS} == {n: getattr(ledger, n) for n in FIELDS}
        assert Fraction(each["unused_share"]) == ledger.unused_share
        assert each["pages"] == sum(-(-n // each["page_size"]) for n in lengths)
    (best,) = found["best"]
    size, cost = kv.best_page_size(lengths, c, sizes)
    assert (best["page_size"], Fraction(best["cost"]), Fraction(best["c"])) == (size, cost, c)
    corners = [(e["page_size"], Fraction(e["c_from"])) for e in found["envelope"]]
    assert corners == [(size, start) for size, start, _ in kv.envelope(lengths, sizes)]
    assert found["envelope"][-1]["c_to"] is None


def test_json_of_a_model_and_a_memory(lengths: str, capsys: Capture) -> None:
    found = answer(
        ["account", lengths, "--model", "Llama-3.1-8B", "--kv-memory", "1GB", "--page-size", "4"],
        capsys,
    )
    assert found["model"] == {"name": "Llama-3.1-8B", "kv_bytes_per_token": 131072}
    assert found["kv_memory"] == {"bytes": 10**9, "slots": 10**9 // 131072}
    assert found["ledgers"][-1]["allocated_bytes"] == 40 * 131072
    assert found["envelope"][0]["bytes_to"] == str(Fraction(3, 14) * 131072)


# --------------------------------------------------------------------------- models
def test_models_lists_all_that_are_known_or_those_named(capsys: Capture) -> None:
    found = answer(["models"], capsys)
    assert {each["name"]: each["kv_bytes_per_token"] for each in found["models"]} == {
        name: model.kv_bytes_per_token for name, model in kv.load_models().items()
    }
    arguments = ["models", "Gemma-2-9B", "Llama-3.1-8B", "--dtype", "fp8", "--kv-memory", "60GB"]
    assert main(arguments) == 0
    models, _, _ = capsys.readouterr().out.partition("layers by what they keep")
    table = rows(models)
    gemma = kv.load_models()["Gemma-2-9B"].with_dtype("fp8")
    assert table["Gemma-2-9B"][1:3] == [
        f"{gemma.kv_bytes_per_token:,}", f"{gemma.growth_bytes_per_token:,}",
    ]  # fmt: skip
    assert table["Llama-3.1-8B"] == ["32", "65,536", "-", "-", f"{60 * 10**9 // 65536:,}"]
    assert table["model"][-1] == "slots in 60GB"


def test_models_by_config_and_ranks_and_layers_by_what_they_keep(
    tmp_path: Path, capsys: Capture
) -> None:
    config = {
        "model_type": "llama", "num_hidden_layers": 32, "num_attention_heads": 32,
        "num_key_value_heads": 8, "hidden_size": 4096, "torch_dtype": "bfloat16",
    }  # fmt: skip
    path = tmp_path / "mine"
    path.mkdir()
    (path / "config.json").write_text(json.dumps(config))
    found = answer(["models", str(path), "Llama-3.1-8B", "--tensor-parallel", "4"], capsys)
    assert [each["kv_bytes_per_token"] for each in found["models"]] == [32768, 32768]
    assert found["models"][0]["name"] == "mine"
    found = answer(["account", "--lengths", "5", "--model", str(path), "--dtype", "fp8"], capsys)
    assert found["model"]["kv_bytes_per_token"] == 65536
    (model,) = answer(["models", "Gemma-2-9B"], capsys)["models"]
    assert sum(g["kv_bytes_per_token"] for g in model["groups"]) == model["kv_bytes_per_token"]
    growing = [g["kv_bytes_per_token"] for g in model["groups"] if g["window"] is None]
    assert sum(growing) == model["growth_bytes_per_token"]
    table = cells(said(["models", "Gemma-2-9B"], capsys))
    assert ["Gemma-2-9B", "window", "21", "8", "256", "4,096", "172,032", "-"] in table
    assert ["Gemma-2-9B", "full", "21", "8", "256", "-", "172,032", "-"] in table


# --------------------------------------------------------------------------- decide
def test_layers_that_drop_tokens_are_accounted_apart(capsys: Capture) -> None:
    """Gemma-3-27B: 10 full layers, 52 with windows of 1,024; one page size for both."""
    arguments = ["account", "azure_conv_2023", "--model", "Gemma-3-27B", "--page-size", "16,64"]
    found = answer(arguments, capsys)["layer_groups"]
    lengths = kv.load_lengths("azure_conv_2023").total
    expected = [
        (size, held)
        for size in (16, 64)
        for held in kv.hybrid_pages(lengths, kv.unified_layout(load_model("Gemma-3-27B"), size))
    ]
    assert [(each["page_size"], each["kind"]) for each in found] == [
        (16, "full"), (16, "window"), (64, "full"), (64, "window")
    ]  # fmt: skip
    for each, (_, held) in zip(found, expected, strict=True):
        assert each["pages"] == held.pages
        assert each["allocated_bytes"] == held.allocated_bytes
        parts = ("kept", "tail_slack", "expired", "page_padding", "layer_padding")
        assert each["allocated_bytes"] == sum(each[f"{part}_bytes"] for part in parts)
    table = rows(said(arguments, capsys))
    assert table["52 window of 1,024"][:3] == ["64", "64", f"{expected[-1][1].pages:,}"]


def test_layers_that_keep_all_need_no_second_table(capsys: Capture) -> None:
    arguments = ["account", "--lengths", "5,9,17", "--model", "Llama-3.1-8B"]
    assert answer(arguments, capsys)["layer_groups"] == []
    assert "every layer is charged" not in said(arguments, capsys)


def test_layers_that_no_one_page_size_fits_are_said_to_be() -> None:
    """Beside a fixed state, layers of two widths: no rule makes their pages equal."""
    groups = (
        kv.LayerGroup(kind="full", layers=1, kv_heads=1, head_dim=64),
        kv.LayerGroup(kind="full", layers=1, kv_heads=2, head_dim=64),
        kv.LayerGroup(kind="state", layers=1, states=(StateTensor("s", 1000, 1, 4),)),
    )
    lines, document = layer_groups(as_lengths([5]), kv.Model("odd", groups=groups), [16])
    assert document == []
    assert lines[1].startswith("Layer by layer: no pages of one size for all. odd: layers take")


def test_decide_is_the_decision(capsys: Capture) -> None:
    arguments = ["azure_conv_2023", "--model", "Llama-3.1-8B", "--record", "none"]
    found = answer(["decide", *arguments, "--page-size", "1,2,4,8,16,32"], capsys)
    decision = kv.decide(
        load_requests("azure_conv_2023"), "Llama-3.1-8B", page_sizes=[1, 2, 4, 8, 16, 32]
    )
    assert found == {"command": "decide", "left_out": {}, **decision.as_dict()}
    out = said(["decide", *arguments, "--page-size", "1,2,4,8,16,32"], capsys)
    assert out.startswith(decision.text())
    table = rows(out)
    assert table["16"][-2:] == ["yes" if 16 in decision.answer.near else "no", table["16"][-1]]
    assert table["16"][3] == "not measured"


def test_decide_by_measurement_and_kernel(tmp_path: Path, capsys: Capture) -> None:
    record = made_record("cuda")
    path = write_made(tmp_path, record)
    arguments = ["decide", "azure_conv_2023", "--model", "Llama-3.1-8B", "--record", str(path)]
    found = answer([*arguments, "--tolerance", "0.05", "--metadata", "none"], capsys)
    assert found["read"]["device"] == record.label
    assert found["tolerance"] == "1/20"
    assert found["structures"] == []
    assert f"measured on {record.label}" in said(arguments, capsys)


def test_decide_takes_the_latest_record_of_a_gpu(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Capture
) -> None:
    monkeypatch.setenv("KVLEDGER_MEASUREMENTS", str(tmp_path))
    arguments = ["decide", "azure_conv_2023", "--model", "Llama-3.1-8B"]
    write_made(tmp_path, made_record("cpu"))
    assert answer(arguments, capsys)["read"] is None
    record = made_record("cuda")
    write_made(tmp_path, record)
    assert answer(arguments, capsys)["read"]["device"] == record.label
    assert answer([*arguments, "--record", "none"], capsys)["read"] is None


# --------------------------------------------------------------------------- how traces are read
@pytest.mark.slow
def test_standard_input_and_named_formats(tmp_path: Path) -> None:
    done = run("account", "-", "--page-size", "4", "--json", input="5 9\n17\n")
    assert (done.returncode, done.stderr) == (0, "")
    assert json.loads(done.stdout)["lengths"]["tokens"] == 31
    done = run("account", "-", "--format", "tokens", input="5,9,17\n")
    assert done.returncode == 2
    assert "accepted as tokens" in done.stderr
    path = tmp_path / "t.csv"
    path.write_text("prompt_tokens,output_tokens\n5,4\nx,1\n9,3\n")
    assert run("account", str(path)).returncode == 2
    done = run("account", str(path), "--unusable", "count", "--page-size", "4")
    assert (done.returncode, done.stderr) == (0, "")
    assert "2 requests, 21 tokens" in done.stdout
    assert "1 unusable row left out (1 prompt_tokens" in done.stdout
    reasons = {"prompt_tokens not accepted": 1}
    for arguments, name in (
        (["replay", str(path), "--capacity", "64"], None),
        (["sweep", str(path), "--capacity", "64"], "t"),
        (["decide", str(path), "--model", "Llama-3.1-8B"], None),
    ):
        done = run(*arguments, "--unusable", "count", "--json")
        found = json.loads(done.stdout)
        assert (found["left_out"] if name is None else found["left_out"][name]) == reasons
        assert (found["requests"] if name is None else found["rows"][0]["requests"]) == 2
        said = run(*arguments, "--unusable", "count").stdout
        assert "1 unusable row left out (1 prompt_tokens" in said


# --------------------------------------------------------------------------- replay and sweep
def test_replay_is_the_replay_of_pages_reservations_and_a_prefix_cache(capsys: Capture) -> None:
    arguments = ["azure_conv_2023", "--first", "500", "--max-running", "32"]
    found = answer(["replay", *arguments, "--capacity", "32768", "--page-size", "32"], capsys)
    trace = load_requests("azure_conv_2023")
    cut = kv.Trace(trace.prompt_tokens[:500], trace.output_tokens[:500])
    result = kv.replay(cut, kv.Paged(32), capacity_slots=32768, max_running=32)
    assert found["requests"] == 500
    assert found["steps"] == len(result)
    assert found["preempted"] == result.total("preempted")
    assert found["finished"] == result.count("finished")
    drop = len(result) // 10
    kept = result.tail_slack_slots[drop : len(result) - drop]
    assert Fraction(found["mean_slots"]["tail_slack"]) == Fraction(int(kept.sum()), kept.size)
    assert sum(Fraction(v) for v in found["mean_slots"].values()) == 32768
    arguments = ["replay", "azure_conv_2023", "--first", "300", "--model", "Llama-3.1-8B"]
    arguments += ["--kv-memory", "4GiB", "--step-time", "0.02,0,0"]
    out = said([*arguments, "--reserve", "pow2"], capsys)
    assert "300 requests, reserve pow2, a pool of 32,768 slots, at their times" in out
    table = rows(out)
    assert table["tail slack"] == ["0.00%"]
    assert table["finished"] == ["300"]
    assert "prompt tokens found cached" not in table
    arguments = ["replay", "mooncake_conversation", "--first", "200", "--capacity", "524288"]
    found = answer([*arguments, "--prefix-cache", "--page-size", "512"], capsys)
    assert found["hit_tokens"] > 0
    assert found["hit_tokens"] % 512 == 0
    assert main([*arguments, "--prefix-cache", "--page-size", "512"]) == 0
    share = found["hit_tokens"] / (found["hit_tokens"] + found["computed_prompt_tokens"])
    assert rows(capsys.readouterr().out)["prompt tokens found cached"] == [f"{share:.2%}"]


def test_sweep_in_json(lengths: str, capsys: Capture) -> None:
    arguments = ["sweep", lengths, "--capacity", "64", "--page-size", "4,8", "--jobs", "1"]
    found = answer([*arguments, "--reserve", "32"], capsys)
    assert [(row["policy"], row.get("page_size")) for row in found["rows"]] == [
        ("paged", 4), ("paged", 8), ("contiguous", None),
    ]  # fmt: skip
    assert all(row["finished"] == 3 for row in found["rows"])


def test_derive_writes_committed_tables(tmp_path: Path, capsys: Capture) -> None:
    assert main(["derive", "--raw", str(raw_folder()), "--out", str(tmp_path)]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert f"wrote {tmp_path / 'traces' / 'bwb_v2.lengths.csv'}" in lines


# --------------------------------------------------------------------------- the book's own
def built(folder: Path, *entries: Entry, version: str = "0.1.0") -> str:
    folder.mkdir()
    write_catalogue(book(*entries, version=version).catalogue, folder)
    return str(folder)


def test_diff_of_two_built_books(tmp_path: Path, capsys: Capture) -> None:
    gone = number("a.gone", page="chapters/gone")
    old = built(tmp_path / "old", number("a.b", "9"), gone)
    new = built(tmp_path / "new", number("a.b", "10"), version="0.2.0")
    found = answer(["diff", old, new], capsys)
    assert (found["old"]["version"], found["new"]["version"]) == ("0.1.0", "0.2.0")
    ((id, ways, was, now),) = [
        (c["id"], c["ways"], c["old"]["value"], c["new"]["value"]) for c in found["changed"]
    ]
    assert (id, ways, was, now) == ("a.b", ["value"], "9", "10")
    assert [entry["id"] for entry in found["removed"]] == ["a.gone"]
    out = tmp_path / "changes.md"
    assert main(["diff", old, new, "--out", str(out)]) == 0
    printed = capsys.readouterr().out
    assert ["first", "value", "a.b", "9 slots", "10 slots"] in cells(printed)
    assert printed.splitlines()[0].startswith(f"From 0.1.0 in {old} to 0.2.0 in {new}: 1 number")
    assert printed.splitlines()[-1] == f"wrote {out}"
    assert "- `a.b`: 9 slots, now 10 slots." in out.read_text(encoding="utf-8").splitlines()
    assert "nothing changed, nothing added or removed" in said(["diff", new, new], capsys)


def test_diff_obeys_no_text_from_outside(tmp_path: Path, capsys: Capture) -> None:
    old = built(tmp_path / "old", number("a.b", "9"))
    new = built(tmp_path / "new", number("a.b", "\x1b[2J[bold]9\u202e |", unit="text"))
    out = said(["diff", old, new, "--out", str(tmp_path / "changes.md")], capsys)
    assert all(line.isprintable() for line in out.splitlines())
    assert r"\x1b[2J[bold]9\u202e |" in out
    assert all(line.isprintable() for line in (tmp_path / "changes.md").read_text().splitlines())


def test_diff_of_this_checkout_and_its_first_release(capsys: Capture) -> None:
    found = answer(["diff", "0.1.0", "."], capsys)
    release, book = edition("0.1.0").catalogue.entries, edition(".").catalogue.entries
    assert [entry["id"] for entry in found["added"]] == [id for id in book if id not in release]
    assert [entry["id"] for entry in found["removed"]] == [id for id in release if id not in book]
    assert set(found["same"]) | {c["id"] for c in found["changed"]} <= set(release) & set(book)


# --------------------------------------------------------------------------- help, completion
def test_version_and_help_of_every_command_and_exit_status(capsys: Capture) -> None:
    assert main(["--version"]) == 0
    assert capsys.readouterr().out == f"kvledger {kv.__version__}\n"
    out = said(["--help"], capsys)
    assert all(re.search(rf"^\W*{name}\s", out, re.M) for name in COMMANDS)
    text = " ".join(out.split())
    assert "Exit status: 0 done; 1 an error" in text
    assert "130 interrupted" in text


@pytest.mark.slow
@pytest.mark.parametrize("name", COMMANDS)
def test_the_example_of_the_help_works(name: str, tmp_path: Path) -> None:
    """What ``--help`` shows is run word for word; the report's own tests run the report's."""
    shown = run(name, "--help")
    assert (shown.returncode, shown.stderr) == (0, "")
    (example,) = re.findall(r"Example: (.*\S)", shown.stdout)
    assert example == COMMANDS[name].example
    program, *arguments = shlex.split(example)
    assert (program, arguments[0]) == ("kvledger", name)
    if name == "report":
        return
    if name == "derive":
        (tmp_path / "traces").symlink_to(raw_folder())
        (tmp_path / "out").mkdir()
        arguments += ["--out", str(tmp_path / "out")]  # the example writes to data/ of the checkout
    if name == "measure":
        # Without the peer that compiles, and with time enough on a busy machine.
        arguments += ["--peers", "sdpa,gather_sdpa", "--time-limit", "120"]
        arguments += ["--out", str(tmp_path / "record.json")]
    done = run(*arguments, cwd=tmp_path)
    assert (done.returncode, done.stderr) == (0, "")  # no progress either: stderr is no terminal
    assert done.stdout.strip()


@pytest.mark.slow
@pytest.mark.parametrize(
    ("words", "expected"),
    [
        ("acc", {"account"}),
        ("account azure", {"azure_code_2023", "azure_conv_2023"}),
        ("account --model Llama-3.1-8", {"Llama-3.1-8B"}),
        ("account --of p", {"prompt"}),
        ("decide --prefix e", {"expected"}),
        ("models Gemma-2", {"Gemma-2-9B"}),
        ("report moon", {"mooncake_conversation", "mooncake_synthetic"}),
        ("cite fig-slack-sh", {"fig-slack-share"}),
        ("cite --format p", {"plain"}),
        ("figure tab-slack-sh", {"tab-slack-share"}),
        ("diff 0.1", {"0.1.0"}),
    ],
)
def test_the_shell_completes(words: str, expected: set[str]) -> None:
    words = f"kvledger {words}"
    done = run(
        environment={
            "_KVLEDGER_COMPLETE": "complete_bash",
            "COMP_WORDS": words,
            "COMP_CWORD": str(len(words.split()) - 1),
        }
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert set(done.stdout.split()) == expected


@pytest.mark.parametrize("page", ["README.md", "chapters/api.md"])
def test_what_is_written_of_the_commands_is_what_they_are(page: str) -> None:
    """Every command line of the pages is of a command, and the reference has every example."""
    text = (ROOT / page).read_text(encoding="utf-8")
    named = set(re.findall(r"(?:^ +|`)kvledger ([a-z]+)", text, re.M))
    assert "account" in named
    assert named <= set(COMMANDS)
    if page.endswith("api.md"):
        assert all(f"`{command.example}`" in text for command in COMMANDS.values())


def test_completion_can_be_shown_for_a_shell() -> None:
    # What the shell is depends on what started the tests; typer lets it be named.
    named = {"_TYPER_COMPLETE_TEST_DISABLE_SHELL_DETECTION": "1"}
    done = run("--show-completion", "bash", environment=named)
    assert (done.returncode, done.stderr) == (0, "")
    assert "_KVLEDGER_COMPLETE" in done.stdout


# --------------------------------------------------------------------------- bad input
@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["account"], "accepted: a TRACE or --lengths, one of the two"),
        (["account", "x", "--lengths", "5"], "accepted: a TRACE or --lengths"),
        (["account", "absent.csv"], "absent.csv: no such file and no such trace; accepted"),
        (["account", "{lengths}", "--c=-1"], "a cost per page is '-1'; accepted: a number"),
        (["account", "{lengths}", "--c", "1/0"], "a cost per page is '1/0'; accepted"),
        (["account", "{lengths}", "--c", "nan"], "a cost per page is 'nan'; accepted"),
        (["account", "{lengths}", "--c", "1e999999999"], "a cost per page is '1e999999999'"),
        (["account", "{lengths}", "--model", "GPT-9"], "'GPT-9'; known are"),
        (["account", "{lengths}", "--model", "Llama-3.1-8B", "--dtype", "x"], "dtype is 'x'"),
        (["account", "{lengths}", "--reserve", "max"], "'max'; accepted: a whole number of slots, "
         "at least 1, or pow2, or oracle"),
        (["account", "{lengths}", "--page-size", "4,0"], "a page size is '0'; accepted"),
        (["account", "{lengths}", "--page-size", "4,"], "a page size is ''; accepted"),
        (["account", "{lengths}", "--page-size", "2.5"], "a page size is '2.5'; accepted"),
        (["account", "{lengths}", "--page-size", "²"], "a page size is '²'; accepted"),
        (["account", "{lengths}", "--page-size", "9" * 5000], "...; accepted: a whole number"),
        (["account", "{lengths}", "--test-sizes=-4"], "a page size is '-4'"),
        (["account", "{lengths}", "--of", "x"], "'--of': 'x' is not one of 'total', 'prompt'"),
        (["account", "{lengths}", "--kv-memory", "60GiB"], "--kv-memory without --model"),
        (["account", "{lengths}", "--kv-memory", "60G", "--model", "Llama-3.1-8B"],
         "--kv-memory is '60G'; say 60GB (powers of 1000) or 60GiB (powers of 1024)"),
        (["account", "{lengths}", "--kv-memory", "1kB", "--model", "Llama-3.1-8B"],
         "room for a page at least, 131,072 bytes of Llama-3.1-8B"),
        (["account", "--lengths", "5,x"], "a length is 'x'; accepted: whole numbers of tokens"),
        (["account", "--lengths", "5,,9"], "a length is ''; accepted"),
        (["account", "--lengths", "5,0"], "a length is '0'; accepted"),
        (["account", "--lengths", "9223372036854775807,1"], "64 bits"),
        (["models", "GPT-9"], "'GPT-9'; known are"),
        (["models", "--tensor-parallel", "0"], "greater than or equal to 1, not '0'"),
        (["replay", "{lengths}"], "accepted: --capacity, or --kv-memory with --model"),
        (["replay", "{lengths}", "--capacity", "10"], "capacity_slots is 10"),
        (["replay", "{lengths}", "--capacity", "64", "--reserve", "8,9"], "accepted: one policy"),
        (["replay", "{lengths}", "--capacity", "64", "--step-time", "1,2"], "--step-time is '1,2'"),
        (["replay", "{lengths}", "--capacity", "64", "--step-time", "1,2,nan"], "'1,2,nan'"),
        (["replay", "{lengths}", "--capacity", "64", "--step-time", "1,0,0"], "no arrival_s"),
        (["replay", "{lengths}", "--capacity", "64", "--first", "x"], "an integer, not 'x'"),
        (["replay", "{lengths}", "--capacity", "64", "--max-running", "-1"],
         "equal to 1, not '-1'"),
        (["replay", "bwb_v2", "--capacity", "64"], "bwb_v2: of this trace only the lengths"),
        (["replay", "{lengths}", "--capacity", "4", "--page-size", "4"], "nothing ran"),
        (["sweep", "{lengths}", "--capacity", "64", "--jobs", "x"], "as an integer, not 'x'"),
        (["decide", "{lengths}"], "Missing option '--model'"),
        (["decide", "{lengths}", "--model", "Llama-3.1-8B", "--prefix", "x"],
         "'x' is not one of 'ids'"),
        (["decide", "{lengths}", "--model", "Llama-3.1-8B", "--kernel", "x"], "'x'"),
        (["decide", "{lengths}", "--model", "Llama-3.1-8B", "--metadata", "x"], "'x'"),
        (["decide", "{lengths}", "--model", "Llama-3.1-8B", "--tolerance", "-1"],
         "--tolerance is '-1'; accepted: a number from 0"),
        (["decide", "{lengths}", "--model", "Llama-3.1-8B", "--record", "absent.json"], "absent"),
        (["decide", "absent", "--model", "Llama-3.1-8B"], "absent: no such file"),
        (["account", "{lengths}", "--format", "x"], "format 'x' is not known"),
        (["account", "{lengths}", "--unusable", "x"], "'x' is not one of 'error', 'count'"),
        (["measure", "--page-sizes", "x"], "page sizes are 'x'; accepted: whole numbers"),
        (["measure", "--seed", "x"], "invalid int value: 'x' (see --help)"),
        (["measure", "--nope"], "unrecognized arguments: --nope (see --help)"),
        (["cite"], "Missing argument 'ID'"),
        (["cite", "fig-slack-shar"], "the nearest are fig-slack-share"),
        (["cite", "fig-slack-share", "--format", "x"], "'--format': 'x' is not one of 'bibtex'"),
        (["cite", "fig-slack-share", "--book", "{folder}/x"], "x: no such folder; accepted: a bu"),
        (["cite", "fig-slack-share", "--book", "{folder}"], "a folder without numbers.json"),
        (["figure", "{lengths}"], "neither PNG nor SVG"),
        (["figure", "{folder}"], "no such file; accepted: a PNG or SVG"),
        (["figure", "paged.p4.tail_slack_slots"], "is a number; accepted: a figure or a table"),
        (["figure", "fig-slack-share", "--again"], "--again and --out DIR; accepted: both"),
        (["figure", "fig-slack-share", "--again", "--out", "{folder}"], "already exists"),
        (["figure", "fig-slack-share", "--again", "--out", "{folder}/a/b"], "cannot be written"),
        (["diff", "0.1.0"], "Missing argument 'NEW'"),
        (["diff", "0.0.1", "."], "'0.0.1': no such release or file; accepted"),
        (["diff", "{lengths}", "."], "three.txt: "),
        (["diff", "{folder}", "."], "a folder without numbers.json; accepted"),
        (["diff", "0.1.0", ".", "--out", "{folder}"], "(it is a folder); accepted: a file"),
        (["diff", "0.1.0", ".", "--out", "{folder}/a/b.md"], "cannot be written"),
        (["derive", "--raw", "{folder}"], "no raw file azure_code_2023.csv or AzureLLM"),
        ([], "no command; accepted: account, sweep"),
        (["audit"], "No such command 'audit' (see --help)"),
        (["account", "--lenths", "5"], "No such option: --lenths"),
        (["account", "a", "b"], "unexpected extra argument"),
        (["account", "--lengths"], "'--lengths' requires an argument"),
        (["sweep", "x"], "Missing option '--capacity'"),
        (["report", "x"], "Missing option '--model'"),
    ],
)  # fmt: skip
def test_bad_input_is_one_line_and_exit_2(
    lengths: str, tmp_path: Path, arguments: list[str], message: str, capsys: Capture
) -> None:
    before = sorted(tmp_path.rglob("*"))
    err = refusal([a.format(lengths=lengths, folder=tmp_path) for a in arguments], capsys)
    assert len(err) < 2000
    assert message in err
    assert sorted(tmp_path.rglob("*")) == before


def test_an_unknown_format_lists_the_formats(tmp_path: Path, capsys: Capture) -> None:
    path = tmp_path / "odd.csv"
    path.write_text("a,b\n1,2\n")
    assert "azure: CSV with columns TIMESTAMP" in refusal(["account", str(path)], capsys)


@pytest.mark.parametrize(
    "arguments",
    [
        ["--debug", "account", "--lengths", "0"],
        ["account", "--debug", "--lengths", "0"],
        ["account", "--lengths", "0", "--debug"],
    ],
)
def test_debug_shows_a_traceback(arguments: list[str], capsys: Capture) -> None:
    assert main(arguments) == 2
    err = capsys.readouterr().err
    assert "Traceback (most recent call last)" in err
    assert err.splitlines()[-1].startswith("kvledger: a length is '0'")


def test_what_stands_after_two_dashes_is_no_option(capsys: Capture) -> None:
    assert main(["models", "--", "--debug"]) == 2
    err = capsys.readouterr().err
    assert "model is '--debug'" in err
    assert "Traceback" not in err


def broken(*_: object, **__: object) -> None:
    raise ZeroDivisionError("of the program itself")


def test_an_error_of_the_program_is_exit_1(
    monkeypatch: pytest.MonkeyPatch, capsys: Capture
) -> None:
    monkeypatch.setattr("kvledger.cli.account_commands.envelope", broken)
    assert main(["account", "--lengths", "5"]) == 1
    out, err = capsys.readouterr()
    assert (out, err.count("\n")) == ("", 1)
    assert "internal error, ZeroDivisionError: of the program itself (--debug shows where)" in err
    assert main(["account", "--lengths", "5", "--debug"]) == 1
    assert 'raise ZeroDivisionError("of the program itself")' in capsys.readouterr().err


def interrupted(*_: object, **__: object) -> None:
    raise KeyboardInterrupt


def test_an_interrupt_is_one_line_and_exit_130(
    monkeypatch: pytest.MonkeyPatch, capsys: Capture
) -> None:
    monkeypatch.setattr("kvledger.cli.account_commands.envelope", interrupted)
    assert main(["account", "--lengths", "5"]) == 130
    assert capsys.readouterr() == ("", "kvledger: interrupted\n")


def test_a_reader_that_has_seen_enough_is_no_error() -> None:
    read, write = os.pipe()
    os.close(read)
    try:
        done = run("account", "azure_code_2023", capture_output=False, stdout=write,
                   stderr=subprocess.PIPE)  # fmt: skip
    finally:
        os.close(write)
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs /dev/full")
def test_an_output_without_room_is_one_line_and_exit_2() -> None:
    with Path("/dev/full").open("w") as full:
        done = run("account", "--lengths", "5", capture_output=False, stdout=full,
                   stderr=subprocess.PIPE)  # fmt: skip
    assert done.returncode == 2
    assert done.stderr == "kvledger: the output cannot be written: No space left on device\n"


# --------------------------------------------------------------------------- names from outside
NAMES = (
    "\x1b[31mred\x1b]0;title\x07.csv",
    "[bold red]markup[link=x] :smile:.csv",
    "line\nend\r.csv",
    "\u202egnp.csv",
    'o\'clock "quoted" $(touch ran) `touch ran`.csv',
    "\udcff.csv",
)


@pytest.mark.slow
@pytest.mark.parametrize("name", NAMES)
def test_a_name_is_shown_and_steers_nothing(name: str, tmp_path: Path) -> None:
    path = tmp_path / name
    path.write_text("prompt_tokens,output_tokens\n5,4\n")
    done = run("account", name, "--page-size", "4", "--model", "Llama-3.1-8B", cwd=tmp_path)
    assert (done.returncode, done.stderr) == (0, "")
    title = done.stdout.splitlines()[0]
    assert ": 1 requests, 9 tokens" in title
    assert title.isprintable()
    (tmp_path / "plain.csv").write_text(path.read_text())
    plain = run("account", "plain.csv", "--page-size", "4", "--model", "Llama-3.1-8B", cwd=tmp_path)
    assert done.stdout.splitlines()[1:] == plain.stdout.splitlines()[1:]
    (tmp_path / "plain.csv").unlink()
    for plain in ("[bold red]markup[link=x] :smile:", "$(touch ran) `touch ran`"):
        assert (plain in name) == (plain in title)
    path.write_text("prompt_tokens,output_tokens\n5,x\n")
    done = run("account", name, cwd=tmp_path)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.removesuffix("\n").isprintable()
    done = run("account", name, "--json", cwd=tmp_path)
    assert done.stderr.removesuffix("\n").isprintable()
    assert sorted(each.name for each in tmp_path.iterdir()) == [name]


def test_a_locale_without_letters_shows_them_written_out(tmp_path: Path) -> None:
    (tmp_path / "größe.csv").write_text("prompt_tokens,output_tokens\n5,4\n")
    environment = {"PYTHONIOENCODING": "ascii", "PYTHONUTF8": "0"}
    done = run("account", "größe.csv", cwd=tmp_path, environment=environment)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith("gr\\xf6\\xdfe: 1 requests")


def test_a_terminal_gets_the_same_words_with_a_rule() -> None:
    arguments = ("account", "--lengths", "5,9,17", "--page-size", "4")
    shown, piped = on_a_terminal(*arguments), run(*arguments).stdout
    assert re.sub(r"\x1b\[[0-9;]*m|\u2500", " ", shown).split() == piped.split()
    assert "\u2500" in shown
    assert "\x1b[1m" in shown
    assert "\u2500" not in piped
    assert "\x1b" not in piped


# --------------------------------------------------------------------------- what is imported
HEAVY = ("matplotlib", "nbclient", "numba", "pandas", "pyarrow", "rich", "torch")

IMPORTS = {
    "account --lengths 5,9,17 --page-size 4": {"rich"},
    "account --lengths 5,9,17 --page-size 4 --json": set(),
    "account azure_code_2023 --json": {"pandas"},
    "models Llama-3.1-8B --json": set(),
    "cite fig-slack-share --json": set(),
    "figure fig-slack-share --json": set(),
    "diff 0.1.0 . --json": set(),
    "replay azure_conv_2023 --capacity 65536 --first 9 --json": {"numba", "pandas"},
    "decide azure_conv_2023 --model Llama-3.1-8B --json": {"pandas"},
    "sweep azure_conv_2023 --capacity 1048576 --jobs 1 --json": {"numba", "pandas"},
}


@pytest.mark.slow
@pytest.mark.parametrize("arguments", IMPORTS)
def test_a_command_imports_no_more_than_it_needs(arguments: str) -> None:
    """Only ``measure`` may import torch; it is not among these."""
    script = (
        "import sys\nfrom kvledger.cli import main\n"
        f"status = main({arguments.split()!r})\n"
        f"print(*(m for m in {HEAVY!r} if m in sys.modules), file=sys.stderr)\nsys.exit(status)"
    )
    done = subprocess.run(
        [sys.executable, "-c", script], env=ENVIRONMENT, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    loaded = set(done.stderr.split())
    assert loaded - {"pyarrow"} == IMPORTS[arguments] or loaded == IMPORTS[arguments]


def test_only_the_named_command_is_built() -> None:
    assert [c.name for c in make_app(["models"]).registered_commands] == ["models"]
    assert [c.name for c in make_app().registered_commands] == list(COMMANDS)
    # What a command could import later is seen in its source: torch is named by none.
    package = Path(kv.__file__).parent
    sources = [*package.glob("*.py"), *package.glob("cli/*.py"), *package.glob("report/*.py")]
    importing = re.compile(r"^\s*(?:import|from) (?:torch|kvledger\.measure\.__main__)\b", re.M)
    found = {path.name for path in sources if importing.search(path.read_text(encoding="utf-8"))}
    assert found == {"data_commands.py"}


# --------------------------------------------------------------------------- units
@given(number=st.integers(1, 10**6), places=st.integers(0, 4), unit=st.sampled_from(sorted(UNITS)))
def test_bytes_are_exact(number: int, places: int, unit: str) -> None:
    text = f"{number:0{places + 1}d}"
    text = f"{text[: len(text) - places]}.{text[len(text) - places :]}" if places else text
    exact = Fraction(number, 10**places) * UNITS[unit]
    if not 1 <= exact < 2**63:
        refused("accepted: from 1 byte", parse_bytes, f"{text}{unit}")
        return
    for written in (f"{text}{unit}", f"{text} {unit}", f" {text}{unit.lower()} "):
        assert parse_bytes(written) == int(exact)


def test_units_of_1000_and_of_1024_differ() -> None:
    assert parse_bytes("60GB") == 60 * 1000**3
    assert parse_bytes("60GiB") == 60 * 1024**3
    assert parse_bytes("60000000000") == parse_bytes(60000000000) == parse_bytes("60GB")
    assert {unit: parse_bytes(f"1{unit}") for unit in UNITS} == UNITS


NO_BYTES = ["", "GiB", "-1GiB", "1e9", "1_000", "1,000", "٦GiB", "60 bananas", "60GB; rm", "inf"]
NO_BYTES += [True, None]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        *((text, "accepted: bytes as a whole number") for text in NO_BYTES),
        ("60G", "say 60GB (powers of 1000) or 60GiB (powers of 1024)"),
        ("1.5k", "say 1.5kB (powers of 1000) or 1.5KiB"),
        ("60Gi", "say 60GB"),
        ("60Gb", "could mean bits; accepted: 60GB"),
        ("60Gib", "could mean bits"),
        ("0", "accepted: from 1 byte"),
        ("0.4B", "accepted: from 1 byte"),
        ("9999999PiB", "accepted: from 1 byte"),
    ],
)
def test_units_that_do_not_parse(text: Any, message: str) -> None:
    said = refused(re.escape(message), parse_bytes, text, "--kv-memory")
    assert said.startswith("--kv-memory is ")
    assert "\n" not in said


@given(st.integers(1, 2**62))
def test_bytes_are_written_in_the_largest_unit_they_fill(n_bytes: int) -> None:
    number, unit = bytes_text(n_bytes).split()
    assert n_bytes / UNITS[unit] >= 1
    assert unit == "PiB" or n_bytes / UNITS[unit] < 1024
    assert abs(float(number.replace(",", "")) - n_bytes / UNITS[unit]) <= 0.005
