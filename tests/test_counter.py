"""hyperes.counter: bit-exact against a plain-integer reference, and random by the usual tests."""

import hashlib

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from hyperes import counter
from hyperes.counter import gumbel, key, uniform, uniform_rows


def reference(k: int, j: int) -> float:
    """The field in Python's unbounded integers."""
    mask64, mask32 = 2**64 - 1, 2**32 - 1
    x = (k + 0x9E3779B97F4A7C15) & mask64
    x = ((x ^ x >> 33) * 0xFF51AFD7ED558CCD) & mask64
    x = ((x ^ x >> 33) * 0xC4CEB9FE1A85EC53) & mask64
    x ^= x >> 33
    first, second = x & mask32, x >> 32
    h = (j + first) & mask32
    h = ((h ^ h >> 17) * 0xED5AD4BB) & mask32
    h = (((h ^ h >> 11) + second) * 0xAC4C1B51) & mask32
    h = ((h ^ h >> 15) * 0x31848BAB) & mask32
    return ((h ^ h >> 14) >> 8) / 2**24


@given(st.lists(st.integers(0, 2**63 - 1), min_size=1, max_size=4), st.integers(0, 40))
@settings(max_examples=100, deadline=None)
def test_agrees_with_the_integer_reference(keys: list[int], columns: int) -> None:
    rows = uniform_rows(torch.tensor(keys), columns)
    assert rows.dtype == torch.float32
    assert rows.tolist() == [[reference(k, j) for j in range(columns)] for k in keys]


def test_golden_values() -> None:
    """Stored results depend on these: they may never change."""
    assert key("mask", 0, "model.layers.0.mlp.up_proj.weight") == 2269494573119685126
    assert (uniform(0, (4,)) * 2**24).tolist() == [12383899, 1845563, 11869494, 4498505]
    assert (uniform(2**63 - 1, (4,)) * 2**24).tolist() == [1283329, 16285063, 13496856, 16044043]
    field = uniform(key("golden"), (300, 1000)).numpy().astype("<f4")
    golden = "d5acc4685a16ad2d4a1cfe69409e24e7298c79e17742e275665e60afc3e4dec3"
    assert hashlib.sha256(field.tobytes()).hexdigest() == golden


def test_keys() -> None:
    assert len({key(1), key("1"), key("1", 1), key(1, "1"), key("11"), key("", "11"), key("11", "")}) == 7
    keys = [key("sample", i) for i in range(2000)]
    assert all(0 <= k < 2**63 for k in keys)
    assert len(set(keys)) == 2000
    assert np.mean(keys) / 2**63 == pytest.approx(0.5, abs=0.03)


def test_shape_and_blocks_leave_no_trace(monkeypatch: pytest.MonkeyPatch) -> None:
    k = key("shape")
    flat = uniform(k, (60,))
    assert torch.equal(uniform(k, (3, 4, 5)), flat.reshape(3, 4, 5))
    assert torch.equal(uniform(k, (7,)), flat[:7])
    assert uniform(k, ()).item() == flat[0]
    assert uniform(k, (0, 3)).shape == (0, 3)
    assert uniform_rows(torch.empty(0, dtype=torch.int64), 5).shape == (0, 5)
    keys = torch.arange(11)
    rows = uniform_rows(keys, 13)
    for block in (1, 5, 30):
        monkeypatch.setattr(counter, "CPU_BLOCK", block)
        assert torch.equal(uniform_rows(keys, 13), rows)


def test_threads_leave_no_trace() -> None:
    threads = torch.get_num_threads()
    try:
        torch.set_num_threads(1)
        alone = uniform(key("threads"), (400_000,))
        torch.set_num_threads(2)
        assert torch.equal(uniform(key("threads"), (400_000,)), alone)
    finally:
        torch.set_num_threads(threads)


@pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")
def test_cuda_draws_the_same() -> None:
    keys = torch.tensor([0, 1, 2**63 - 1, key("cuda")])
    assert torch.equal(uniform_rows(keys.cuda(), 151_936).cpu(), uniform_rows(keys, 151_936))


@pytest.mark.parametrize("k", [0, 1, 2**63 - 1, key("a"), key("b", 1)])
def test_one_row_is_uniform(k: int) -> None:
    u = uniform(k, (1_000_000,)).double().numpy()
    assert u.min() >= 0
    assert u.max() < 1
    assert u.mean() == pytest.approx(0.5, abs=4 * np.sqrt(1 / 12 / u.size))
    assert u.var() == pytest.approx(1 / 12, abs=4 * np.sqrt(1 / 180 / u.size))
    assert stats.kstest(u, "uniform").pvalue > 1e-4
    for lag in (1, 2, 64, 896, 4864):
        assert abs(np.corrcoef(u[:-lag], u[lag:])[0, 1]) < 4 / np.sqrt(u.size)
    # Every one of the 24 bits is fair and independent of its neighbours.
    bits = (u[:200_000] * 2**24).astype(np.int64)[:, None] >> np.arange(24) & 1
    assert np.all(np.abs(bits.mean(0) - 0.5) < 4.5 * 0.5 / np.sqrt(len(bits)))
    correlation = np.corrcoef(bits.T) - np.eye(24)
    assert np.abs(correlation).max() < 5 / np.sqrt(len(bits))


def test_consecutive_keys_are_independent() -> None:
    """Down a column and along diagonals: a key that merely offset the counter would repeat itself there."""
    rows = uniform_rows(key("position") // 2 + torch.arange(4000), 500).double().numpy()
    limit = 4.5 / np.sqrt(rows.size)
    for right in (-2, -1, 0, 1, 2):
        ahead = rows[1:, max(right, 0) : 500 + min(right, 0)]
        behind = rows[:-1, max(-right, 0) : 500 - max(right, 0)]
        assert abs(np.corrcoef(ahead.ravel(), behind.ravel())[0, 1]) < limit
    assert stats.kstest(rows[:, 0], "uniform").pvalue > 1e-4
    assert stats.kstest(rows.mean(1), "norm", args=(0.5, np.sqrt(1 / 12 / 500))).pvalue > 1e-4
    assert stats.kstest(rows.mean(0), "norm", args=(0.5, np.sqrt(1 / 12 / 4000))).pvalue > 1e-4


def test_rows_share_no_stretch() -> None:
    """No four neighbours (96 bits) occur twice among 2,000 rows: streams do not overlap, even out of step."""
    words = (uniform_rows(torch.tensor([key("row", i) for i in range(2000)]), 403) * 2**24).long().numpy()
    pairs = np.stack([words[:, :-1], words[:, 1:]], axis=-1) @ np.array([2**24, 1])
    quads = pairs[:, :-2].astype(np.uint64) * np.uint64(0x9E3779B97F4A7C15) ^ pairs[:, 2:].astype(np.uint64)
    assert len(np.unique(quads)) == quads.size == 2000 * 400


def test_fair_survival() -> None:
    """The count of survivors at a drop rate is binomial over many small fields, as eq. 18 needs."""
    rows = uniform_rows(torch.tensor([key("mask", i) for i in range(3000)]), 64)
    counts = (rows >= 0.7).sum(1).numpy()
    observed = np.bincount(np.clip(counts, 12, 27) - 12, minlength=16)
    law = stats.binom(64, 0.3)
    expected = np.array([law.cdf(12), *law.pmf(np.arange(13, 27)), law.sf(26)])
    assert stats.chisquare(observed, expected / expected.sum() * 3000).pvalue > 1e-4


def test_gumbel() -> None:
    u = torch.tensor([0.0, 2**-24, 0.5, 1 - 2**-24])
    before = u.clone()
    noise = gumbel(u)
    assert torch.equal(u, before)
    expected = -np.log(-np.log(np.array([2**-25, 2**-24, 0.5, 1 - 2**-24])))
    np.testing.assert_allclose(noise.numpy(), expected, rtol=1e-6)
    draws = gumbel(uniform(key("gumbel"), (200_000,))).numpy()
    assert stats.kstest(draws, "gumbel_r").pvalue > 1e-4


def test_gumbel_max_samples_the_softmax() -> None:
    logits = torch.tensor([0.0, 1.0, 2.0, -3.0, 0.5])
    rows = uniform_rows(torch.arange(50_000), 5)
    counts = torch.bincount((logits + gumbel(rows)).argmax(1), minlength=5).numpy()
    assert stats.chisquare(counts, logits.softmax(0).double().numpy() * counts.sum()).pvalue > 1e-4


def test_wrong_arguments_are_refused() -> None:
    for bad in (-1, 2**63):
        with pytest.raises(ValueError, match="key must lie"):
            uniform(bad, (1,))
    with pytest.raises(ValueError, match="int64"):
        uniform_rows(torch.zeros(3, dtype=torch.int32), 2)
    with pytest.raises(ValueError, match="int64"):
        uniform_rows(torch.zeros(3, 1, dtype=torch.int64), 2)
    with pytest.raises(ValueError, match="columns"):
        uniform_rows(torch.zeros(3, dtype=torch.int64), 2**31 + 1)
