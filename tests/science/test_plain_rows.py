"""The compiled parser takes what the careful reader takes, with the same values, or nothing."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kvledger.traces import load_lengths, load_trace, plain_rows
from kvledger.traces.forms import Columns, Tally
from kvledger.traces.plain_rows import DATE, IGNORED, OUTPUT, PROMPT, SECONDS, TOTAL, parse_table
from kvledger.traces.streams import Block
from kvledger.traces.text_tables import TABLES, TableColumns, TextReader, date_nanoseconds


def parse(data: str, *roles: int, **options: Any) -> tuple[list[Any], ...] | None:
    """Return prompts, outputs and times as lists."""
    parsed = parse_table(data.encode(), np.array(roles, np.int8), **options)
    if parsed is None:
        return None
    return tuple([] if column is None else column.tolist() for column in parsed)


@pytest.mark.parametrize(
    ("data", "expected"),
    [
        ("5,1\n6,0\n", ([5, 6], [1, 0])),
        ("5,1\r\n6,0\r\n", ([5, 6], [1, 0])),
        ("5,1\n6,0", ([5, 6], [1, 0])),
        ("5,1\n6,0\r", ([5, 6], [1, 0])),
        ("\n\r\n5,1\n\n\n6,0\n\n", ([5, 6], [1, 0])),
        (" 5 ,\t1\n6,0 \n", ([5, 6], [1, 0])),
        ("5.,1.000\n", ([5], [1])),
        ("005,00\n", ([5], [0])),
        (f"{10**18 - 1},{10**18 - 1}\n", ([10**18 - 1], [10**18 - 1])),
        ("\n", ([], [])),
        ("", ([], [])),
    ],
)
def test_plain_rows_are_parsed(data: str, expected: Any) -> None:
    assert parse(data, PROMPT, OUTPUT) == (*expected, [])


@pytest.mark.parametrize(
    "row",
    [
        "0,1", "-5,1", "+5,1", "5.5,1", "5e3,1", "5,", ",1", "5", "5,1,2", "5;1", '"5",1', "a,1",
        "5 6,1", ".,1", ".0,1", f"{10**18},1", "5,1\r\r", "5\r,1", "\v5,1", "５,1", "0x5,1",
        "5_0,1", " ", "5,1 a",
    ],
)  # fmt: skip
def test_anything_else_is_left_to_the_careful_reader(row: str) -> None:
    assert parse(f"7,1\n{row}\n8,1\n", PROMPT, OUTPUT) is None
    assert parse(f"7,1\n{row}", PROMPT, OUTPUT) is None


def test_totals_are_checked_and_failures_let_through() -> None:
    assert parse("5,1,6\n", PROMPT, OUTPUT, TOTAL) == ([5], [1], [])
    assert parse("5,1,7\n", PROMPT, OUTPUT, TOTAL) is None
    assert parse("0,0\n5,1\n", PROMPT, OUTPUT) is None
    assert parse("0,0\n5,1\n", PROMPT, OUTPUT, zero_output_failed=True) == ([0, 5], [0, 1], [])
    assert parse("0,1\n", PROMPT, OUTPUT, zero_output_failed=True) is None
    roles = (IGNORED, PROMPT, IGNORED, OUTPUT, IGNORED)
    assert parse("GPT-4,5,é 'x' 0x10,1,\n,6,,2,nan\n", *roles) == ([5, 6], [1, 2], [])
    for field in ('"x"', "a\rb"):
        assert parse(f"{field},5,,1,\n", *roles) is None


# --------------------------------------------------------------------------- times
@given(
    st.one_of(
        st.decimals(0, 10**18, places=9).map("{:f}".format),
        st.floats(1e-4, 1e15).map(repr).filter(lambda text: "e" not in text),
        st.from_regex(r"\A[0-9]{1,18}(\.[0-9]{0,13})?\Z"),
        st.from_regex(r"\A\.[0-9]{1,30}\Z"),
    )
)
def test_seconds_are_those_that_python_reads(text: str) -> None:
    parsed = parse(f"{text},5\n", SECONDS, PROMPT)
    if len(text) <= 32:
        assert parsed is not None
    if parsed is not None:
        assert parsed[2] == [float(text)]


def test_many_rows_of_digits_and_days() -> None:
    texts = [repr(x) for x in np.cumsum(np.random.default_rng(0).exponential(0.01, 2000)).tolist()]
    parsed = parse("".join(f"{text},5\n" for text in texts), SECONDS, PROMPT)
    assert parsed[2] == [float(text) for text in texts]
    days = np.arange(np.datetime64("1700-01-01"), np.datetime64("2200-12-31"))
    parsed = parse("".join(f"{day} 00:00:00,5\n" for day in days), DATE, PROMPT)
    assert parsed[2] == days.astype("datetime64[ns]").astype(np.int64).tolist()


@pytest.mark.parametrize(
    "text", ["", ".", "1e3", "-1", "+1", "1.2.3", "nan", "inf", "1_0", "1" * 33, "0x1"]
)
def test_other_seconds_are_left_alone(text: str) -> None:
    assert parse(f"{text},5\n", SECONDS, PROMPT) is None


moments = st.datetimes(datetime(1700, 1, 2), datetime(2200, 12, 30), timezones=st.just(UTC))


@given(
    moments,
    st.sampled_from(" T"),
    st.integers(0, 9),
    st.integers(0, 10**9 - 1),
    st.one_of(st.none(), st.just("Z"), st.integers(-23 * 60 - 59, 23 * 60 + 59)),
    st.booleans(),
)
def test_dates_are_exact_to_the_nanosecond(
    moment: datetime, middle: str, places: int, fraction: int, zone: Any, colon: bool
) -> None:
    digits = f"{fraction:09}"[:places]
    text = f"{moment:%Y-%m-%d}".rjust(10, "0") + middle + f"{moment:%H:%M:%S}"
    text += f".{digits}" if digits else ""
    if isinstance(zone, int):
        sign, (hours, minutes) = "-+"[zone >= 0], divmod(abs(zone), 60)
        text += f"{sign}{hours:02}{':' if colon else ''}{minutes:02}"
        moment = moment.replace(microsecond=0, tzinfo=timezone(timedelta(minutes=zone)))
    else:
        text += zone or ""
        moment = moment.replace(microsecond=0)
    expected = round((moment - datetime(1970, 1, 1, tzinfo=UTC)).total_seconds()) * 10**9
    expected += int(digits.ljust(9, "0")) if digits else 0
    assert date_nanoseconds(text) == expected
    assert parse(f"{text},5\n", DATE, PROMPT) == ([5], [0], [expected])


@pytest.mark.parametrize(
    "text",
    [
        "2023-02-29 00:00:00", "2100-02-29 00:00:00", "2023-04-31 00:00:00", "2023-00-01 00:00:00",
        "2023-13-01 00:00:00", "2023-01-00 00:00:00", "2023-01-32 00:00:00", "2023-01-01 24:00:00",
        "2023-01-01 00:60:00", "2023-01-01 00:00:60", "2023-01-01 00:00:00.", "2023-01-01",
        "2023-01-01 00:00:00.1234567891", "2023-01-01 00:00", "2023-01-01  00:00:00",
        "2023-01-01 00:00:00+24:00", "2023-01-01 00:00:00+01:60", "2023-01-01 00:00:00+1",
        "2023-01-01 00:00:00+", "2023/01/01 00:00:00", "2023-01-01 00.00.00", "1699-12-31 00:00:00",
        "2023-01-01 00:00:00z", "20230101T000000.000", "", "2023-1-01 000:00:00",
    ],
)  # fmt: skip
def test_what_is_no_date_is_left_alone(text: str) -> None:
    assert parse(f"{text},5\n", DATE, PROMPT) is None
    assert parse(f"5,{text}", PROMPT, DATE) is None  # the data ends within it


# --------------------------------------------------------------------------- against the careful
FIELD = st.one_of(
    st.integers(0, 99).map(str),
    st.sampled_from(
        [
            "2023-11-16 18:17:03.9799600", "2023-11-16 18:17:04", "2023-11-16T18:17:03.5Z",
            "2023-11-16 18:17:03+0530", "2999-11-16 18:17:03.5", "1677-01-01 00:00:00", "NaT",
            "20231116T181703.000000", "2023-W46-4T18:17:03.0", "+5", "1.0", "1e3", "nan", "007",
            str(2**63 - 1), str(2**63), '"4"', "٣", "0x10",
        ]
    ),
    st.text('0123456789 .,-+eE"\r\tx', max_size=8),
)  # fmt: skip
BLOCKS = st.lists(st.lists(FIELD, min_size=1, max_size=4).map(",".join), max_size=4)


@pytest.mark.parametrize("name", [*TABLES, "lengths"])
@given(BLOCKS, st.sampled_from(["", "\n", "\r\n"]))
@settings(max_examples=300)
def test_both_readers_agree_on_noise(name: str, rows: list[str], end: str) -> None:
    table = TABLES.get(name, TableColumns("length", None))
    columns = [c for c in (table.time, table.prompt, table.output, table.total) if c is not None]
    block = Block(1, ("\n".join(rows) + end).encode())
    reader = TextReader("trace", name, table, columns, Tally())
    fast = reader.parser()(block)
    if fast is None or reader._goes_back(fast.time):
        return
    careful = reader.slowly(block)  # raises where it refuses
    assert [None if c is None else c.tolist() for c in fast] == [
        None if c is None else c.tolist() for c in careful
    ]


@given(st.text("0123456789, \t\n\rx", max_size=30))
def test_lengths_on_one_line_agree(text: str) -> None:
    table = TableColumns("length", None)
    reader = TextReader("trace", "lengths", table, ["length"], Tally(), several=True)
    fast = reader.parser()(Block(1, text.encode()))
    if fast is not None:
        assert fast.prompt.tolist() == reader.slowly(Block(1, text.encode())).prompt.tolist()


def table_file(path: Path, rows: int, *, odd: bool) -> None:
    """Write a table that spans many blocks, with rows here and there that are not plain."""
    rng = np.random.default_rng(0)
    times = np.cumsum(rng.exponential(0.1, rows)).round(3).tolist()
    prompts, outputs = rng.integers(1, 9000, rows).tolist(), rng.integers(0, 900, rows).tolist()
    with path.open("w") as file:
        file.write("arrival_s,prompt_tokens,model,output_tokens\n")
        for i, (time, prompt, output) in enumerate(zip(times, prompts, outputs, strict=True)):
            model = '"a, b"' if odd and i % 1000 == 7 else "a"
            file.write(f"{time},{prompt},{model},{output}\n")


@pytest.mark.parametrize("odd", [False, True])
def test_compiled_or_not_it_is_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, odd: bool
) -> None:
    table_file(tmp_path / "t.csv", 5000, odd=odd)
    plain, lengths = load_trace(tmp_path / "t.csv"), load_lengths(tmp_path / "t.csv")
    calls = []
    real = plain_rows.parse_table

    def counted(*arguments: Any, **options: Any) -> Columns | None:
        calls.append(1)
        return real(*arguments, **options)

    monkeypatch.setattr(plain_rows, "parse_table", counted)
    monkeypatch.setattr("kvledger.traces.streams._BLOCK_BYTES", 4096)
    compiled = load_trace(tmp_path / "t.csv")
    assert len(calls) > 20
    for name in ("prompt_tokens", "output_tokens", "arrival_s"):
        assert getattr(plain, name).tolist() == getattr(compiled, name).tolist()
    assert repr(load_lengths(tmp_path / "t.csv")) == repr(lengths)


def test_times_do_not_go_back_in_blocks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("kvledger.traces.streams._BLOCK_BYTES", 64)
    lines = [f"{i},5,1" for i in range(200)]
    lines[100] = "98.5,5,1"
    path = tmp_path / "t.csv"
    path.write_text("arrival_s,prompt_tokens,output_tokens\n" + "\n".join(lines))
    for load in (load_trace, load_lengths):
        with pytest.raises(ValueError, match=r"line 102: arrival_s is '98\.5'; accepted: a time"):
            load(path)
        counted = load(path, unusable="count")
        assert (counted.n_requests, dict(counted.skipped)) == (199, {"arrival_s goes back": 1})
