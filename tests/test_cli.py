"""The command says what the package computes, and one line when it cannot."""

from __future__ import annotations

import gzip
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from rawtraces import raw_folder

import kvledger as kv
from kvledger.cli import main


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


def test_paged(lengths: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["paged", lengths, "--page-sizes", "8,4,1"]) == 0
    out, err = capsys.readouterr()
    assert err == ""
    assert cells(out) == [
        ["three: 3 requests, 31 tokens, mean 10.3, longest 17"],
        ["policy", "allocated slots", "tail slack", "reserved", "unused", "pages"],
        ["pages of 1", "31", "0", "0", "0.00%", "31"],
        ["pages of 4", "40", "9", "0", "22.50%", "10"],
        ["pages of 8", "48", "17", "0", "35.42%", "6"],
    ]


def test_contiguous(lengths: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["contiguous", lengths, "--reserve", "32, pow2,oracle"]) == 0
    assert cells(capsys.readouterr().out)[2:] == [
        ["reserve 32", "96", "0", "65", "67.71%", "-"],
        ["reserve pow2", "56", "0", "25", "44.64%", "-"],
        ["reserve oracle", "31", "0", "0", "0.00%", "-"],
    ]


def test_best(lengths: str, capsys: pytest.CaptureFixture[str]) -> None:
    sizes = ["--page-sizes", "1,2,4,8,16"]
    assert main(["best", lengths, "--c", "0,0.25,1,4,1/3", *sizes]) == 0
    assert cells(capsys.readouterr().out)[2:] == [
        ["0", "1", "31.00"],
        ["1/4", "2", "38.25"],
        ["1", "4", "50.00"],
        ["4", "8", "72.00"],
        ["1/3", "2", "39.67"],
    ]


def test_envelope(lengths: str, capsys: pytest.CaptureFixture[str]) -> None:
    arguments = ["--page-sizes", "1,2,4,8,16", "--model", "Llama-3.1-8B"]
    assert main(["envelope", lengths, *arguments]) == 0
    rows = cells(capsys.readouterr().out)[2:]
    assert [(row[0], row[3]) for row in rows] == [
        ("1", "3/14"), ("2", "6/7"), ("4", "2"), ("8", "8"), ("16", "any"),
    ]  # fmt: skip
    assert [row[4] for row in rows] == ["28,087", "112,347", "262,144", "1,048,576", "any"]


def test_report_on_a_committed_trace(capsys: pytest.CaptureFixture[str]) -> None:
    arguments = ["--page-sizes", "16,32", "--reserve", "2048,pow2", "--model", "Llama-3.1-8B"]
    assert main(["report", "azure_conv_2023", *arguments]) == 0
    out, err = capsys.readouterr()
    assert err == ""
    trace = kv_lengths("azure_conv_2023")
    rows = {row[0]: row for row in cells(out) if row}
    paged = kv.paged(trace, 16)
    assert rows["pages of 16"][1:4] == [
        f"{paged.allocated_slots:,}", f"{paged.tail_slack_slots:,}", "0",
    ]  # fmt: skip
    refused = kv.contiguous(trace, 2048, over_maximum="count")
    assert rows["reserve 2,048"][1] == f"{refused.allocated_slots:,}"
    assert rows["reserve 2,048"][6] == f"{refused.refused_requests:,}" != "0"
    assert rows["policy"][-1] == "GiB of Llama-3.1-8B"
    assert rows["best page size"][-1] == "to bytes per page of Llama-3.1-8B"


def kv_lengths(name: str) -> kv.LengthTable:
    from kvledger.traces import load_lengths

    return load_lengths(name).total


def test_report_reserves_the_longest_by_itself(
    lengths: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["report", lengths]) == 0
    out = capsys.readouterr().out
    assert "refused" not in out
    assert [row[0] for row in cells(out)[3:6]] == [
        "reserve 17", "reserve pow2", "reserve oracle",
    ]  # fmt: skip


def test_prompts_alone(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["paged", "azure_code_2023", "--of", "prompt", "--page-sizes", "16"]) == 0
    assert "8,819 prompts, 18,059,974 tokens" in capsys.readouterr().out


def test_a_gzipped_trace(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "t.csv.gz"
    path.write_bytes(gzip.compress(b"prompt_tokens,output_tokens\n5,4\n"))
    assert main(["paged", str(path), "--page-sizes", "4"]) == 0
    assert "t: 1 requests, 9 tokens" in capsys.readouterr().out


def test_bytes(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["bytes", "Llama-3.1-8B"]) == 0
    assert capsys.readouterr().out == (
        "Llama-3.1-8B: 131,072 bytes of KV cache per token (128.0 KiB)\n"
    )


def test_version(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as caught:
        main(["--version"])
    assert caught.value.code == 0
    assert capsys.readouterr().out == f"kvledger {kv.__version__}\n"


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["report", "absent.csv"], "absent.csv: no such file and no such trace; accepted"),
        (["report", "{lengths}", "--c=-1"], "a cost per page is '-1'; accepted: a number"),
        (["report", "{lengths}", "--c", "1/0"], "a cost per page is '1/0'; accepted"),
        (["report", "{lengths}", "--c", "nan"], "a cost per page is 'nan'; accepted"),
        (["report", "{lengths}", "--model", "GPT-9"], "'GPT-9'; known are"),
        (["report", "{lengths}", "--reserve", "max"], "'max'; accepted: a whole number of slots, "
         "at least 1, or pow2, or oracle"),
        (["paged", "{lengths}", "--page-sizes", "4,0"], "a page size is '0'; accepted"),
        (["paged", "{lengths}", "--page-sizes", "4,"], "a page size is ''; accepted"),
        (["paged", "{lengths}", "--page-sizes", "2.5"], "a page size is '2.5'; accepted"),
        (["contiguous", "{lengths}", "--reserve", "16"], "17 tokens"),
        (["envelope", "{lengths}", "--page-sizes=-4"], "a page size is '-4'"),
        (["bytes", "GPT-9"], "'GPT-9'; known are"),
        (["derive", "--raw", "{folder}"], "no raw file azure_code_2023.csv or AzureLLM"),
    ],
)  # fmt: skip
def test_bad_input_is_one_line_and_exit_2(
    lengths: str,
    tmp_path: Path,
    arguments: list[str],
    message: str,
    capsys: pytest.CaptureFixture[str],
) -> None:
    given = [a.format(lengths=lengths, folder=tmp_path) for a in arguments]
    assert main(given) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert err.startswith("kvledger: ")
    assert err.count("\n") == 1
    assert message in err


@pytest.mark.parametrize(
    "arguments", [[], ["audit"], ["paged"], ["contiguous", "x"], ["paged", "x", "--of", "y"]]
)
def test_a_wrong_command_line_is_exit_2(
    arguments: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as caught:
        main(arguments)
    assert caught.value.code == 2
    assert "usage: kvledger" in capsys.readouterr().err


def test_an_unknown_format_lists_the_formats_on_one_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "odd.csv"
    path.write_text("a,b\n1,2\n")
    assert main(["report", str(path)]) == 2
    err = capsys.readouterr().err
    assert err.count("\n") == 1
    assert "azure: CSV with columns TIMESTAMP" in err


def test_derive_writes_the_committed_tables(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["derive", "--raw", str(raw_folder()), "--out", str(tmp_path)]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert f"wrote {tmp_path / 'traces' / 'bwb_v2.lengths.csv'}" in lines


def test_a_reader_that_has_seen_enough_is_no_error() -> None:
    command = [sys.executable, "-m", "kvledger.cli", "report", "azure_code_2023"]
    environment = os.environ | {"PYTHONPATH": str(Path(kv.__file__).parent.parent)}
    read, write = os.pipe()
    os.close(read)
    try:
        done: Any = subprocess.run(
            command, stdout=write, stderr=subprocess.PIPE, text=True, env=environment, check=False
        )
    finally:
        os.close(write)
    assert (done.returncode, done.stderr) == (0, "")
