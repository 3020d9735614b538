"""Small populations for property tests of the theory."""

from fractions import Fraction

from hypothesis import strategies as st

from stream_calib.calibration.multicalibration.exact_population import Population, Report, make_population


@st.composite
def populations(draw: st.DrawFn) -> tuple[Population, Report]:
    """A population of 1 to 7 points with overlapping groups, and a report."""
    n = draw(st.integers(1, 7))
    twentieths = st.lists(st.integers(0, 20).map(lambda k: Fraction(k, 20)), min_size=n, max_size=n)
    masks = draw(st.lists(st.lists(st.booleans(), min_size=n, max_size=n), min_size=1, max_size=4))
    groups = {"all": [True] * n} | {f"group {i}": mask for i, mask in enumerate(masks)}
    inner = draw(st.sets(st.integers(1, 9), max_size=3))
    edges = [Fraction(0), *(Fraction(k, 10) for k in sorted(inner)), Fraction(1)]
    mass = draw(st.lists(st.integers(1, 6), min_size=n, max_size=n))
    population = make_population(mass, draw(twentieths), groups, edges)
    return population, population.report(draw(twentieths))
