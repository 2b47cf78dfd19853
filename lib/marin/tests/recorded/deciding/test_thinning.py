"""Curves on the columns of a chart."""

from hypothesis import given
from hypothesis import strategies as st

from marin.recorded.deciding.thinning import curve_of, on_columns

_CURVES = st.lists(st.dictionaries(st.integers(0, 3000), st.floats(-1e6, 1e6), max_size=300), min_size=1, max_size=4)


@given(_CURVES, st.integers(10, 40), st.sampled_from([(None, None), (100.0, 700.0), (2990.0, 2991.0)]))
def test_a_chart_shows_the_extremes_of_each_curve(
    found: list[dict[int, float]], columns: int, window: tuple[float | None, float | None]
) -> None:
    curves = [curve_of((sorted(curve), [curve[step] for step in sorted(curve)])) for curve in found]
    steps, values = on_columns(curves, *window, columns)
    assert len(steps) <= 2 * columns + 1
    assert steps == sorted(steps)
    first, last = (0.0, 3000.0) if window[0] is None else window
    for curve, drawn in zip(found, values, strict=True):
        assert len(drawn) == len(steps)
        inside = [value for step, value in curve.items() if first <= step <= last]
        shown = [value for value in drawn if value is not None]
        assert set(shown) <= set(curve.values())
        assert not inside or (min(shown) <= min(inside) and max(shown) >= max(inside))
