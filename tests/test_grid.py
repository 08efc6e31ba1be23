"""The grid: which points, which winner, which warning."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hyperes.errors import UserError
from hyperes.search.grid import GridPoint, choose, choose_start, edge_warnings, points

SCALES = [round(1 + 0.1 * i, 1) for i in range(21)]
DROP_RATES = [0.3, 0.5, 0.7, 0.9]
BOTH = [False, True]


def test_the_papers_grid_has_210_distinct_points_and_no_idle_drop_rate():
    grid = points(SCALES, DROP_RATES, BOTH, BOTH)
    assert len(grid) == len(set(grid)) == 2 * 21 * 4 + 2 * 21
    assert {point.drop_rate for point in grid if not point.dare} == {0.0}
    assert {(p.scale, p.drop_rate, p.ties) for p in grid if p.dare} == {
        (scale, drop_rate, ties) for scale in SCALES for drop_rate in DROP_RATES for ties in BOTH
    }


def test_order_is_the_documented_one():
    assert points([2, 1], [0.5, 0.3], [True, False], [True]) == [
        GridPoint(2, 0.5, True, True),
        GridPoint(2, 0.3, True, True),
        GridPoint(1, 0.5, True, True),
        GridPoint(1, 0.3, True, True),
        GridPoint(2, 0.0, False, True),
        GridPoint(1, 0.0, False, True),
    ]


def test_repeated_values_add_nothing():
    assert points([1, 1.0], [0.5, 0.5], [True, True], [True]) == [GridPoint(1, 0.5, True, True)]


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        (([], DROP_RATES, BOTH, BOTH), "scales"),
        ((SCALES, DROP_RATES, BOTH, []), "optimizer.grid.ties"),
        (([1, math.nan], DROP_RATES, BOTH, BOTH), "scales: nan"),
        (([0], DROP_RATES, BOTH, BOTH), "scales: 0"),
        ((SCALES, [0.5, 1.0], BOTH, BOTH), "drop_rates: 1.0"),
    ],
)
def test_impossible_axes_are_named(arguments, named):
    with pytest.raises(UserError, match=named):
        points(*arguments)


@given(st.permutations(points([1, 2, 3], DROP_RATES, BOTH, BOTH)), st.data())
def test_the_winner_beats_every_other_point_by_the_stated_order(grid, data):
    fitness = data.draw(st.lists(st.sampled_from([0.1, 0.2]), min_size=len(grid), max_size=len(grid)))
    winner = choose(grid, fitness)
    for i, (point, value) in enumerate(zip(grid, fitness, strict=True)):
        if value != fitness[winner]:
            assert value < fitness[winner]
        elif point.scale != grid[winner].scale:
            assert point.scale > grid[winner].scale
        elif point.drop_rate != grid[winner].drop_rate:
            assert point.drop_rate < grid[winner].drop_rate
        else:
            assert i >= winner


def test_the_start_has_the_mergers_own_flags():
    grid = points([1, 2], [0.3, 0.5], BOTH, BOTH)
    fitness = [0.9 if not point.ties else 0.1 for point in grid]
    own = GridPoint(2, 0.3, True, True)
    fitness[grid.index(own)] = 0.2
    assert not grid[choose(grid, fitness)].ties
    assert grid[choose_start(grid, fitness, dare=True, ties=True)] == own
    with pytest.raises(UserError, match="dare=False, ties=True"):
        choose_start(points([1], [0.3], [True], [True]), [0.5], dare=False, ties=True)


@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf])
def test_fitness_that_is_not_finite_is_refused(bad):
    grid = points([1, 2], [0.3], [True], [True])
    with pytest.raises(ValueError, match="scale=2"):
        choose(grid, [0.5, bad])
    with pytest.raises(ValueError, match="not finite"):
        choose_start(grid, [0.5, bad], dare=True, ties=True)
    with pytest.raises(ValueError, match="need as many"):
        choose(grid, [0.5])


def test_edges_say_which_way_to_widen():
    grid = points(SCALES, DROP_RATES, BOTH, [True])

    def warnings(*point):
        return edge_warnings(grid, grid.index(GridPoint(*point)))

    assert warnings(2.7, 0.7, True, True) == []
    assert warnings(2.7, 0.0, False, True) == []  # no DARE, no drop rate
    assert warnings(3.0, 0.3, True, True) == [
        "the best scale 3 is the upper edge of the grid 1 … 3: add scales above 3",
        "the best drop rate 0.3 is the lower edge of the grid 0.3 … 0.9: add drop_rates below 0.3",
    ]
    assert warnings(1.0, 0.0, False, True) == [
        "the best scale 1 is the lower edge of the grid 1 … 3: add scales below 1"
    ]
    # an axis without an inside says nothing
    short = points([1, 2], [0.5], [True], [True])
    assert [edge_warnings(short, i) for i in range(2)] == [[], []]
