"""Random streams: known answers, the normal law, independence, no state."""

from __future__ import annotations

import numpy as np
import pytest
from numba import njit
from scipy import stats

from thermoloom.engines.compiled.streams import (
    STREAMS,
    fill_normals,
    normals,
    philox,
    stream_key,
)


@njit
def philox_words(key, c0, c1, c2, c3):
    low = np.uint64(0xFFFFFFFF)
    w0, w1, w2, w3 = philox(key, c0, c1, c2, c3)
    return w0 & low, w1 & low, w2 & low, w3 & low


@pytest.mark.parametrize(
    ("key", "counter", "expected"),
    [
        (0, (0, 0, 0, 0), (0x6627E8D5, 0xE169C58D, 0xBC57AC4C, 0x9B00DBD8)),
        (2**64 - 1, (2**32 - 1,) * 4, (0x408F276D, 0x41C83B0E, 0xA20BC7C6, 0x6D5451FD)),
        (
            0x299F31D0A4093822,
            (0x243F6A88, 0x85A308D3, 0x13198A2E, 0x03707344),
            (0xD16CFE09, 0x94FDCCEB, 0x5001E420, 0x24126EA1),
        ),
    ],
)
def test_philox_gives_the_published_answers(key: int, counter: tuple, expected: tuple) -> None:
    """Test vectors published with the generator (Random123, philox4x32, 10 rounds)."""
    assert philox_words(np.uint64(key), *(np.uint64(c) for c in counter)) == expected


def philox_plain(key: int, counter: tuple[int, int, int, int]) -> tuple[int, ...]:
    """The generator from its description, in Python integers."""
    mask = 2**32 - 1
    c = list(counter)
    k = [key & mask, key >> 32]
    for _ in range(10):
        p0, p1 = 0xD2511F53 * c[0], 0xCD9E8D57 * c[2]
        c = [(p1 >> 32) ^ c[1] ^ k[0], p1 & mask, (p0 >> 32) ^ c[3] ^ k[1], p0 & mask]
        k = [(k[0] + 0x9E3779B9) & mask, (k[1] + 0xBB67AE85) & mask]
    return tuple(c)


def test_normals_are_box_muller_of_the_counter() -> None:
    """Against library log, sin and cos in float64, from words made in Python integers."""
    z = normals(7, "noising", 5, 8, 3)
    for block in range(2):
        for unit in range(3):
            words = philox_plain(int(stream_key(7, "noising")), (unit, block, 5, 0))
            for pair in range(2):
                w0, w1 = words[2 * pair], words[2 * pair + 1]
                u = ((w0 >> 1) + 0.5) / 2**31
                angle30 = (w1 & (2**30 - 1)) - (2**30 if w1 & 2**29 else 0)
                turn = 2 * np.pi * angle30 / 2**32
                cosine = np.cos(turn) * (-1 if w1 >> 31 else 1)
                first, second = cosine, np.sin(turn)
                if (w1 >> 30) & 1:
                    first, second = second, first
                radius = np.sqrt(-2 * np.log(u))
                found = z[4 * block + 2 * pair : 4 * block + 2 * pair + 2, unit]
                np.testing.assert_allclose(found, [radius * first, radius * second], atol=2e-6)


def test_normals_follow_the_normal_law() -> None:
    z = normals(3, "generation", 0, 1000, 1000).ravel().astype(float)
    assert stats.kstest(z, "norm").pvalue > 1e-3
    assert abs(z.mean()) < 4 / 1000
    assert abs(z.var() - 1) < 4 * np.sqrt(2) / 1000
    assert abs(stats.kurtosis(z)) < 4 * np.sqrt(24) / 1000
    assert stats.norm.sf(4) * 1e6 * 0.3 < np.sum(z > 4) < stats.norm.sf(4) * 1e6 * 2.5


def test_normals_are_uncorrelated_across_steps_units_and_trajectories() -> None:
    a, b = (normals(3, "noising", trajectory, 400, 400).astype(float) for trajectory in (0, 1))
    pairs = [(a[1:], a[:-1]), (a[2:], a[:-2]), (a[:, 1:], a[:, :-1]), (a, b), (a**2, b**2)]
    for x, y in pairs:
        correlation = np.corrcoef(x.ravel(), y.ravel())[0, 1]
        assert abs(correlation) < 4 / np.sqrt(x.size)


def test_streams_and_seeds_are_independent() -> None:
    drawn = [normals(1, name, 0, 100, 100).ravel() for name in STREAMS]
    drawn += [normals(2, "noising", 0, 100, 100).ravel()]
    correlations = np.corrcoef(drawn) - np.eye(len(drawn))
    assert np.abs(correlations).max() < 5 / 100


def test_any_piece_can_be_had_alone() -> None:
    whole = normals(9, "noising", 4, 12, 50)
    assert np.array_equal(normals(9, "noising", 4, 10, 20), whole[:10, :20])

    @njit
    def piece(key, z):
        fill_normals(key, 4, 2, 33, z)

    z = np.empty((4, 7), np.float32)
    piece(stream_key(9, "noising"), z)
    assert np.array_equal(z, whole[8:12, 33:40])


def test_values_do_not_change_between_versions() -> None:
    """Bits of a stream are part of the format: results on disk depend on them."""
    z = normals(101, "noising", 0, 4, 2)
    expected = [[-0.48422378, -1.0731562], [1.3950979, 1.5347992]]
    assert z[:2].tolist() == np.array(expected, np.float32).tolist()


def test_unknown_stream_is_refused() -> None:
    with pytest.raises(ValueError, match="not a stream"):
        stream_key(1, "thermal")
