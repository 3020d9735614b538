import pytest

from stream_calib.calibration.configuration import RUNGS, Configuration
from stream_calib.calibration.groups import family_rule
from stream_calib.errors import ConfigurationError

A, B, AB = (family_rule(names, ["a", "b"]) for names in (["a"], ["b"], ["a", "b"]))
FULL = Configuration("girb", (A, B, AB), slopes=(A,), firm=(AB,))


def test_names_say_everything() -> None:
    assert FULL.name == "girb + a (slope) + b + a & b (firm)"
    assert FULL.with_firm(A).on_rung("platt").name == "platt + a (slope, firm) + b + a & b (firm)"
    assert Configuration("identity", ()).name == "identity"


def test_places_are_those_among_the_families() -> None:
    assert FULL.slope_places == (0,)
    assert FULL.firm_places == (2,)


def test_variants_made_in_any_order_are_the_same_value() -> None:
    plain = Configuration("girb", (A, B))
    assert plain.with_slope(B).with_slope(A) == plain.with_slope(A).with_slope(B)
    assert hash(plain.with_firm(B).with_firm(A)) == hash(plain.with_firm(A).with_firm(B))
    assert plain.with_family(AB).families == (A, B, AB)


def test_a_family_goes_with_what_is_special_about_it() -> None:
    assert FULL.without(A) == Configuration("girb", (B, AB), firm=(AB,))
    assert FULL.without(AB) == Configuration("girb", (A, B), slopes=(A,))


def test_the_ladder_begins_with_the_simplest() -> None:
    assert RUNGS == ("identity", "platt", "beta", "isotonic", "girb")


def test_what_makes_no_sense_is_refused() -> None:
    with pytest.raises(ConfigurationError, match="base map 'spline' is unknown; the rungs are identity, platt"):
        Configuration("spline", ())  # type: ignore[arg-type]  # what the test is about
    with pytest.raises(ConfigurationError, match=r"families \['a', 'a'\] name one twice"):
        Configuration("girb", (A, A))
    with pytest.raises(ConfigurationError, match=r"slopes \['b'\] have no offsets"):
        Configuration("girb", (A,)).with_slope(B)
    with pytest.raises(ConfigurationError, match=r"firm \['a & b'\] have no offsets"):
        Configuration("girb", (A,), firm=(AB,))
    with pytest.raises(ConfigurationError, match=r"slopes \['a', 'a'\] name one twice"):
        FULL.with_slope(A)
