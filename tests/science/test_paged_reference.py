"""The meaning of paged decode attention, and what it refuses."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch

from kvledger.core.errors import LedgerError
from kvledger.measure.decode_step import DecodeInputs, check_decode, paged_decode_reference


def step(**changes: Any) -> dict[str, Any]:
    """Two requests of 20 and 16 tokens in pages of 16, with some tensors exchanged."""
    generator = torch.Generator().manual_seed(1)
    pages = torch.randn(3, 16, 2, 8, generator=generator)
    tensors: dict[str, Any] = {
        "q": torch.randn(2, 4, 8, generator=generator),
        "k_pages": pages,
        "v_pages": torch.randn(3, 16, 2, 8, generator=generator),
        "page_table": torch.tensor([[2, 0], [1, -1]], dtype=torch.int32),
        "lengths": torch.tensor([20, 16], dtype=torch.int32),
        "scale": None,
    }
    return tensors | changes


def test_it_is_the_sum_that_the_definition_says() -> None:
    tensors = step(scale=0.3)
    out = paged_decode_reference(DecodeInputs(**tensors))
    for request, length in enumerate([20, 16]):
        for head in range(4):
            query = tensors["q"][request, head].tolist()
            scores, values = [], []
            for token in range(length):
                page = int(tensors["page_table"][request, token // 16])
                key = tensors["k_pages"][page, token % 16, head // 2].tolist()
                scores.append(0.3 * math.fsum(a * b for a, b in zip(query, key, strict=True)))
                values.append(tensors["v_pages"][page, token % 16, head // 2].tolist())
            weights = [math.exp(score) for score in scores]
            expected = [
                math.fsum(w * v for w, v in zip(weights, column, strict=True)) / math.fsum(weights)
                for column in zip(*values, strict=True)
            ]
            assert out[request, head].tolist() == pytest.approx(expected, rel=1e-12)


def test_it_agrees_with_torch_on_contiguous_tokens() -> None:
    tensors = step(lengths=torch.tensor([32, 32], dtype=torch.int32))
    tensors["page_table"] = torch.tensor([[0, 1], [2, 1]], dtype=torch.int32)
    out = paged_decode_reference(DecodeInputs(**tensors))
    for request in range(2):
        k, v = (
            tensors[name][tensors["page_table"][request].long()].flatten(0, 1).double()
            for name in ("k_pages", "v_pages")
        )
        expected = torch.nn.functional.scaled_dot_product_attention(
            tensors["q"][request, :, None].double(),
            k.transpose(0, 1),
            v.transpose(0, 1),
            enable_gqa=True,
        )
        torch.testing.assert_close(out[request], expected[:, 0])


def test_only_slots_and_entries_of_tokens_are_read() -> None:
    tensors = step()
    expected = paged_decode_reference(DecodeInputs(**tensors))
    for name in ("k_pages", "v_pages"):
        tensors[name][0, 4:] = math.nan  # page 0 holds the last four tokens of request 0
    torch.testing.assert_close(paged_decode_reference(DecodeInputs(**tensors)), expected)
    tensors = step()
    expected = paged_decode_reference(DecodeInputs(**tensors))
    tensors["page_table"][1, 1] = 2**31 - 1
    assert torch.equal(paged_decode_reference(DecodeInputs(**tensors)), expected)


def test_the_shape_and_type_are_named() -> None:
    shape = check_decode(DecodeInputs(**step()))
    assert shape._asdict() == {
        "dtype": "float32",
        "batch": 2,
        "q_heads": 4,
        "kv_heads": 2,
        "head_dim": 8,
        "value_dim": 8,
        "page_size": 16,
        "pages": 3,
        "max_pages": 2,
        "longest": 20,
        "tokens": 36,
        "latent": False,
    }
    assert paged_decode_reference(DecodeInputs(**step())).dtype == torch.float64
    assert (
        paged_decode_reference(DecodeInputs(**step()), dtype=torch.float32).dtype == torch.float32
    )
    pages = torch.randn(3, 16, 1, 12)
    tensors = step(q=torch.randn(2, 4, 12), k_pages=pages, v_pages=pages[..., :8])
    assert check_decode(DecodeInputs(**tensors)).latent
    tensors_apart = tensors | {"v_pages": pages[..., :8].contiguous()}
    assert not check_decode(DecodeInputs(**tensors_apart)).latent
    assert paged_decode_reference(DecodeInputs(**tensors)).shape == (2, 4, 8)


ids = torch.int32
REFUSED: list[tuple[dict[str, Any], str]] = [
    ({"q": [[1.0]]}, "q is a list; accepted: a tensor [batch, q_heads, head_dim]"),
    ({"q": torch.zeros(2, 4)}, "q has shape [2, 4]; accepted: [batch, q_heads, head_dim]"),
    ({"q": torch.zeros(2, 0, 8)}, "q has shape [2, 0, 8]; accepted: [batch, q_heads, head_dim]"),
    ({"q": torch.zeros(2, 3, 8)}, "q has 3 heads and k_pages 2; accepted: as many query heads"),
    ({"q": torch.zeros(2, 4, 9)}, "k_pages has head_dim 8 and q 9; accepted: the same"),
    ({"q": torch.zeros(2, 4, 8, dtype=torch.float64)}, "q is torch.float64; accepted: torch.float"),
    ({"q": torch.zeros(2, 8, 4).transpose(1, 2)}, "q has strides [32, 1, 4]; accepted: elements"),
    ({"q": torch.zeros(2, 4, 8, device="meta")}, "k_pages is on cpu and q on meta; accepted: one"),
    ({"k_pages": torch.zeros(3, 16, 2, 8).half()}, "k_pages is torch.float16 beside a q of"),
    ({"k_pages": torch.zeros(3, 16, 2, 8).to(torch.float8_e5m2)}, "k_pages is torch.float8_e5m2"),
    ({"v_pages": torch.zeros(3, 16, 2, 8).half()}, "v_pages is torch.float16 and k_pages torch.f"),
    ({"v_pages": torch.zeros(4, 16, 2, 8)}, "v_pages has num_pages 4 and k_pages 3; accepted"),
    ({"v_pages": torch.zeros(3, 8, 2, 8)}, "v_pages has page_size 8 and k_pages 16; accepted"),
    ({"v_pages": torch.zeros(3, 16, 1, 8)}, "v_pages has kv_heads 1 and k_pages 2; accepted"),
    ({"page_table": torch.zeros(3, 2, dtype=ids)}, "page_table has batch 3 and q 2; accepted"),
    ({"page_table": torch.zeros(2, 2).long()}, "page_table is torch.int64; accepted: torch.int32"),
    ({"page_table": torch.tensor([[2, 0], [3, 0]], dtype=ids)}, "page_table[1, 0] is 3; accepted"),
    ({"page_table": torch.tensor([[2, -1], [1, 0]], dtype=ids)}, "page_table[0, 1] is -1; accept"),
    ({"lengths": torch.tensor([20.0, 16.0])}, "lengths is torch.float32; accepted: torch.int32"),
    ({"lengths": torch.tensor([20], dtype=ids)}, "lengths has batch 1 and q 2; accepted"),
    ({"lengths": torch.tensor([20, 0], dtype=ids)}, "lengths[1] is 0; accepted: 1 to 32 tokens"),
    ({"lengths": torch.tensor([33, 1], dtype=ids)}, "lengths[0] is 33; accepted: 1 to 32 tokens"),
    ({"lengths": torch.tensor([-5, 1], dtype=ids)}, "lengths[0] is -5; accepted: 1 to 32 tokens"),
    ({"scale": math.inf}, "scale is inf; accepted: a finite number"),
    ({"scale": "1"}, "scale is '1'; accepted: a finite number"),
]


@pytest.mark.parametrize(("changes", "message"), REFUSED, ids=[text[:30] for _, text in REFUSED])
def test_what_does_not_match_is_one_clear_error(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(LedgerError) as error:
        paged_decode_reference(DecodeInputs(**step(**changes)))
    assert str(error.value).startswith(message)
    assert "\n" not in str(error.value)
