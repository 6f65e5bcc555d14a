from collections import Counter
from pathlib import Path

import pytest
import re2

from bisect_agent import library
from bisect_agent.errors import UsageError
from bisect_agent.signatures import check_pattern

NO_PROOF_THAT_GRAPHS_ARE_OFF = (
    "[rank0]:W1129 14:54:25.693000 [__cudagraphs] skipping cudagraphs due to mutated inputs (2 instances).",
    "TORCHINDUCTOR_CUDAGRAPHS=0",
    "torch._inductor.config.triton.cudagraphs = True",
    "torch._inductor.config.triton.cudagraph_trees = False",
)


def refutes_double_capture(line: str) -> bool:
    """Whether a log with that line contradicts the claim."""
    (claim,) = (h for h in library.family("torch-compile-capture").hypotheses if h.id == "double-capture")
    return any(re2.search(pattern, line) for pattern in claim.contradicted_by)


@pytest.fixture(params=library.families())
def family(request: pytest.FixtureRequest) -> library.Family:
    """Each shipped family."""
    return library.family(request.param)


def test_shipped_signatures_have_ids_of_their_own() -> None:
    """An id is how journals and reports speak of a signature."""
    counts = Counter(signature.id for signature in library.signatures())
    assert counts
    assert [id_ for id_, count in counts.items() if count > 1] == []


def test_shipped_signatures_say_what_they_mean() -> None:
    """A report shows the sentence; a sample line shows that the pattern is of this world."""
    assert [s.id for s in library.shipped_signatures() if not (s.means and s.matches)] == []


def test_a_family_is_called_as_its_file(family: library.Family) -> None:
    """A playbook names the file's stem, a report the family's name."""
    assert family.family in library.families()


def test_claims_have_ids_of_their_own() -> None:
    """Two families in one playbook must not share an id."""
    counts = Counter(h.id for name in library.families() for h in library.family(name).hypotheses)
    assert [id_ for id_, count in counts.items() if count > 1] == []


def test_a_claim_explains_and_advises(family: library.Family) -> None:
    """A verdict without a mechanism and a next step helps nobody."""
    assert [h.id for h in family.hypotheses if not (h.claim and h.because and h.advice)] == []


def test_a_factor_s_name_means_one_role(family: library.Family) -> None:
    """A name in two roles would be cast by accident."""
    counts = Counter(name for role in family.roles.values() for name in role.factors)
    assert [name for name, count in counts.items() if count > 1] == []


def test_patterns_that_contradict_are_re2(family: library.Family) -> None:
    """They are met by the same reader as signatures."""
    patterns = [pattern for h in family.hypotheses for pattern in h.contradicted_by]
    assert [pattern for pattern in patterns if check_pattern(pattern) is not None] == []


def test_a_family_that_names_an_unknown_role_is_refused() -> None:
    """A slip in a data file must not become a claim about nothing."""
    with pytest.raises(ValueError, match="no such role: kernl"):
        library.Family.model_validate(
            {
                "family": "f",
                "title": "t",
                "roles": {"kernel": {"factors": ["kernel"], "means": "m"}},
                "hypotheses": [
                    {"id": "h", "claim": "c", "involves": ["kernl"], "because": "b", "advice": "a"}
                ],
            }
        )


def test_the_first_factor_with_a_known_name_plays_the_role() -> None:
    """The order is the playbook's."""
    family = library.family("torch-compile-capture")
    cast = family.cast(["cuda_graph", "capture", "torch_compile", "other"], {})
    assert cast == {"capture": "cuda_graph", "compile": "torch_compile"}


def test_a_factor_given_to_a_role_plays_no_other() -> None:
    """Its name alone would have made it the kernel."""
    cast = library.family("torch-compile-capture").cast(["kernel", "compile"], {"capture": "kernel"})
    assert cast == {"capture": "kernel", "compile": "compile"}


def test_a_claim_without_all_its_roles_names_those_that_are_missing() -> None:
    """It stays undecided, and the report says why."""
    claims = {h.id: h for h in library.family("torch-compile-capture").resolve({"compile": "tc"})}
    assert claims["double-capture"].missing == ("inner_graphs",)
    assert claims["double-capture"].involves == ("tc",)
    assert claims["compile-alone"].missing == ("capture", "kernel", "inner_graphs")


def test_a_graph_that_is_skipped_does_not_refute_double_capture() -> None:
    """The first line stands in a real log that goes on to die of double capture."""
    assert [line for line in NO_PROOF_THAT_GRAPHS_ARE_OFF if refutes_double_capture(line)] == []


@pytest.mark.parametrize(
    "line",
    [
        "torch._inductor.config.triton.cudagraphs = False",
        "inductor_compile_config={'enable_auto_functionalized_v2': False, 'triton.cudagraphs': False}",
    ],
)
def test_a_line_that_states_that_inductor_s_graphs_are_off_refutes_double_capture(line: str) -> None:
    """The setting itself leaves nothing to argue about."""
    assert refutes_double_capture(line)


def test_a_shipped_playbook_is_found_by_its_name() -> None:
    """`run quickstart` works from an installed wheel too."""
    assert Path("quickstart", "playbook.yaml") == Path(*library.playbook("quickstart").parts[-2:])


def test_an_unknown_playbook_is_told_with_those_that_there_are() -> None:
    """The remedy is a name that works."""
    with pytest.raises(UsageError, match="`quikstart` is neither a file nor a shipped playbook") as caught:
        library.playbook("quikstart")
    assert "quickstart" in caught.value.remedy
