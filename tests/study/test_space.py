"""The space of a study: every sample's values follow from its number, and are those of the distributions."""

import numpy as np
import pytest

from qddot.errors import InputError, UnknownNameError
from qddot.study import Choice, Grid, LogUniform, Normal, Uniform, philox, sequences, space
from qddot.study.distributions import normal_quantile

stats = pytest.importorskip("scipy.stats")


@pytest.mark.parametrize("sample", [0, 7, 2**40])
def test_random_words_are_those_of_numpy(sample):
    own = philox.words(5, "q0", np.array([sample]), 11)[0]
    assert (own == philox.generator(5, "q0", sample).bit_generator.random_raw(11)).all()


def test_seeds_names_and_samples_give_other_numbers():
    draws = [philox.words(s, n, np.arange(3), 5) for s in (0, 1) for n in ("a", "b")]
    assert np.unique(np.concatenate(draws).reshape(-1)).size == 4 * 15


def test_sobol_is_scipys():
    numbers = np.arange(2048)
    theirs = stats.qmc.Sobol(21, scramble=False).random(2048)
    assert np.array_equal(sequences.sobol_digits(21, numbers) * 2.0**-48, theirs)


def test_the_normal_quantile_is_scipys():
    u = np.r_[1e-300, 1e-20, np.linspace(1e-6, 1.0 - 1e-6, 20_001)]
    # AS 241 promises 1e-16 and a few roundings of the polynomials
    assert np.allclose(normal_quantile(u), stats.norm.ppf(u), rtol=4e-15, atol=1e-16)


@pytest.mark.parametrize("n", [1, 2, 7, 64, 1000])
def test_a_latin_hypercube_has_one_point_in_each_part(n):
    points = sequences.latin(sequences.Axes(3, n, 4), np.arange(n))
    assert (np.sort((points * n).astype(int), axis=0) == np.arange(n)[:, None]).all()


def test_saltelli_rows_differ_in_one_axis():
    rows = sequences.saltelli(sequences.Axes(0, 50, 3), np.arange(50)).reshape(10, 5, 3)
    a, b = rows[:, 0], rows[:, 1]
    for k in range(3):
        expected = a.copy()
        expected[:, k] = b[:, k]
        assert np.array_equal(rows[:, 2 + k], expected)


@pytest.mark.parametrize("design", ["random", "latin", "sobol"])
def test_values_depend_on_the_number_alone(design):
    given = {
        "a": Uniform([0.0, -1.0], 2.0),
        "b": Normal(1.0, 0.1),
        "c": lambda rng: rng.normal(size=3),
        "d": stats.gamma(2.0),
        "e": Choice([1.0, 5.0]),
        "f": LogUniform(0.1, 10.0),
        "g": Grid([1.0, 2.0, 3.0]),
        "h": np.arange(8.0).reshape(4, 2),
    }
    whole = space.made(given, 6, design, 11)
    assert len(whole) == 6 * 3 * 4
    every = whole.values(0, len(whole))
    for first, count in ((0, 1), (5, 20), (71, 1)):
        part = whole.values(first, count)
        assert all(np.array_equal(part[name], x[first : first + count]) for name, x in every.items())
    assert np.array_equal(every["h"][::18], given["h"])
    assert np.array_equal(every["g"][:18:6], [1.0, 2.0, 3.0])
    assert set(np.unique(every["e"])) == {1.0, 5.0}
    assert every["f"].min() >= 0.1
    assert every["f"].max() <= 10.0


def test_distributions_have_their_moments():
    found = space.made({"u": Uniform(1.0, 3.0), "n": Normal(-2.0, 0.5)}, 40_000, "random", 0).values(0, 40_000)
    # five standard errors of 40,000 samples
    assert abs(found["u"].mean() - 2.0) < 5 * (2 / np.sqrt(12)) / 200
    assert abs(found["n"].mean() + 2.0) < 5 * 0.5 / 200
    assert abs(found["n"].std() - 0.5) < 5 * 0.5 / np.sqrt(80_000)


@pytest.mark.parametrize(
    ("given", "samples", "design", "says"),
    [
        ({"a": Uniform(0, 1)}, None, "random", "say how many"),
        ({"a": [1.0]}, 3, "random", "samples=3 is for spaces that are drawn"),
        ({"a": [1.0], "b": [1.0, 2.0]}, None, "random", "a has 1, b has 2"),
        ({"a": Uniform(0, 1)}, 4, "saltelli", "multiple of 3"),
        ({"a": Uniform(np.zeros(22), 1)}, 4, "sobol", "21 drawn numbers"),
        ({"a": 1.0}, None, "random", "a row a sample"),
        ({"a": []}, None, "random", "a row a sample"),
        ({"a": "text"}, None, "random", "real numbers"),
        ([1.0], None, "random", "names and values"),
        ({1: [1.0]}, None, "random", "names are texts"),
    ],
)
def test_what_is_no_space(given, samples, design, says):
    with pytest.raises(InputError, match=says):
        space.made(given, samples, design, 0).values(0, 1)


def test_bad_choices():
    with pytest.raises(UnknownNameError, match="latin"):
        space.made({"a": [1.0]}, None, "latinn", 0)
    with pytest.raises(InputError, match="seed"):
        space.made({"a": [1.0]}, None, "random", -1)
    with pytest.raises(InputError, match="above upper"):
        Uniform(1.0, 0.0)
    with pytest.raises(InputError, match="negative"):
        Normal(0.0, -1.0)
    with pytest.raises(InputError, match="finite"):
        Uniform(0.0, np.nan)
    with pytest.raises(InputError, match="0 < lower"):
        LogUniform(0.0, 1.0)
