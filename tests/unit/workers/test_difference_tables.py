"""What `snapshot diff` shows of slopes, patches and choices."""

from __future__ import annotations

from io import StringIO

from rich.console import Console

from stream_calib.snapshot.difference import difference
from stream_calib.snapshot.map_documents import FamilyDocument, OffsetDocument, PatchDocument, PatchRoundDocument
from stream_calib.snapshot.model import ResolvedSnapshot, StructureSnapshot
from stream_calib.snapshot.recent_traffic import NO_TRAFFIC
from tests.unit.snapshot.documents import choices, structure
from workers.difference_tables import difference_facts, difference_tables

RICHER = structure(
    attributes=("region",),
    families=(
        FamilyDocument(attributes=("region",), offsets=(OffsetDocument(values=("north",), offset=0.25, slope=-0.125),)),
    ),
    rounds=(
        PatchRoundDocument(
            attributes=("region",),
            edges=(0.0, 0.5, 1.0),
            patches=(PatchDocument(values=("south",), shifts=(0.0, 0.03)),),
        ),
    ),
    choices=choices(families_off=("region",), slopes=("region",)),
)
PLAIN = structure(attributes=("region",), families=())


def resolved(version: str, document: StructureSnapshot) -> ResolvedSnapshot:
    return ResolvedSnapshot(version, 1, version, document, 0.0)


def shown(before: StructureSnapshot, after: StructureSnapshot) -> str:
    found = difference(resolved("a", before), resolved("b", after), NO_TRAFFIC)
    output = StringIO()
    Console(file=output, width=80).print(*difference_tables(found, NO_TRAFFIC, 1_000), sep="\n")
    return output.getvalue()


def test_slopes_and_patches_have_tables_of_their_own() -> None:
    text = shown(PLAIN, RICHER)
    lines = [line.split() for line in text.splitlines()]
    assert "Offsets (log-odds): 1 changed" in text
    assert "Slopes in the raw log-odds: 1 changed" in text
    assert "Largest patches (probability): 1 changed" in text
    assert ["region=north", "-", "+0.2500", "+0.2500"] in lines
    assert ["region=north", "-", "-0.1250", "-0.1250"] in lines
    assert ["region=south", "-", "+0.0300", "+0.0300"] in lines
    assert ["base", "map", "-", "platt"] in lines
    assert ["families", "off", "-", "region"] in lines
    assert ["patched", "groups", "0", "1"] in lines


def test_without_slopes_and_patches_there_are_no_tables_for_them() -> None:
    text = shown(PLAIN, PLAIN)
    assert "Slopes in" not in text
    assert "Largest patches" not in text


def test_facts_for_programs() -> None:
    found = difference(resolved("a", PLAIN), resolved("b", RICHER), NO_TRAFFIC)
    facts = difference_facts(found, NO_TRAFFIC, 1_000)
    (slope,), (patch,) = facts["slopes"], facts["patches"]
    assert slope == {
        "attributes": ("region",),
        "values": ("north",),
        "predicate": None,
        "before": None,
        "after": -0.125,
        "change": -0.125,
    }
    assert (patch["values"], patch["change"]) == (("south",), 0.03)
    assert (facts["before"]["rung"], facts["after"]["rung"]) == (None, "platt")
