"""Each known bug of `make mutation` can still be put into the product, and the copy it is put into is what is run."""

import subprocess
import sys
from pathlib import Path

import pytest

from mutations.catalogue import MUTATIONS, Mutation
from mutations.tree import ROOT, Replacement, Stale, environment, make_copy


@pytest.mark.parametrize("mutation", MUTATIONS, ids=lambda mutation: mutation.name)
def test_what_a_mutation_replaces_stands_in_the_product_exactly_once(mutation: Mutation) -> None:
    texts: dict[str, str] = {}
    for each in mutation.replacements:
        text = texts.get(each.path) or (ROOT / each.path).read_text()
        texts[each.path] = each.applied_to(text)


def test_names_of_mutations_are_told_apart() -> None:
    assert len({mutation.name for mutation in MUTATIONS}) == len(MUTATIONS)


@pytest.mark.parametrize(("old", "new"), [("absent", "new"), ("twice", "new"), ("once", "once")])
def test_a_replacement_that_changes_nothing_or_more_than_one_place_is_stale(old: str, new: str) -> None:
    with pytest.raises(Stale, match="some/file"):
        Replacement("some/file", old, new).applied_to("once twice twice")


def test_python_finds_the_copy_before_what_is_installed(tmp_path: Path) -> None:
    bug = Replacement("workers/rota/child/fence.py", "NANOSECONDS: Final = 1_000_000_000", "NANOSECONDS: Final = 7")
    make_copy(tmp_path, (bug,))
    code = "import rota_supervisor, rota.child.fence as f; print(f.NANOSECONDS, f.__file__, rota_supervisor.__file__)"
    said = subprocess.check_output([sys.executable, "-c", code], env=environment(tmp_path), text=True).split()
    assert said[0] == "7"
    assert all(path.startswith(str(tmp_path)) for path in said[1:])
