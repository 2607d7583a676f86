import pytest

from mixtree.errors import InputError
from mixtree.experiments.specs import EXPERIMENTS, experiments

PAPER = ("allstate", "wine-price", "wine-quartile", "amazon")


@pytest.mark.parametrize("name", EXPERIMENTS)
def test_every_claim_is_made_once_and_has_its_place(name):
    claims = EXPERIMENTS[name].claims
    assert len({claim.text for claim in claims}) == len(claims)
    assert len({(claim.relation, claim.pairs, claim.pick) for claim in claims}) == len(claims)
    assert all(claim.place for claim in claims)


@pytest.mark.parametrize("name", EXPERIMENTS)
def test_claims_are_about_algorithms_that_are_run(name):
    experiment = EXPERIMENTS[name]
    known = {"only:*", "CH", "DP", "CH+commit", "DP+commit", *experiment.algorithms()}
    named = {
        each for claim in experiment.claims for pair in (*claim.pairs, claim.than or ()) for each in pair
    }
    assert named <= known


def test_what_the_paper_says_of_allstate():
    pairs = {(claim.relation, pair) for claim in EXPERIMENTS["allstate"].claims for pair in claim.pairs}
    variants = ("CH", "DP", "CH+commit", "DP+commit")
    assert {("≈", (name, "genie")) for name in variants} <= pairs
    assert {("better", (name, other)) for name in variants for other in ("validation", "only:*")} <= pairs
    assert {
        ("no worse", ("genie", other)) for other in (*variants, "uniform", "validation", "only:*")
    } <= pairs
    assert ("≈", ("CH", "DP")) in pairs
    assert ("better", ("uniform", "only:*")) not in pairs, "the paper does not say so"


def test_the_gap_that_half_a_budget_narrows():
    (claim,) = (each for each in EXPERIMENTS["wine-price"].claims if each.than)
    assert (claim.relation, claim.pairs, claim.than) == (
        "narrower",
        (("CH+commit", "DP+commit"),),
        ("CH", "DP"),
    )


def test_validation_alone_is_insufficient_for_amazon():
    (claim,) = (each for each in EXPERIMENTS["amazon"].claims if "insufficient" in each.text)
    assert claim.pairs == (("CH", "validation"), ("uniform", "validation"))


def test_all_are_the_papers_and_the_flights_and_the_notes():
    names = [each.name for each in experiments("all")]
    assert names[:4] == list(PAPER)
    assert {"flights-new", "flights-known", "wine-price-notes", "wine-quartile-notes"} == set(names[4:])


def test_notes_are_of_wine_only():
    assert [each.name for each in experiments("wine-quartile", features="notes")] == ["wine-quartile-notes"]
    assert [each.name for each in experiments("wine-price-notes", features="notes")] == ["wine-price-notes"]
    assert experiments("wine-price-notes")[0].load.keywords == {"features": "notes"}
    with pytest.raises(InputError, match="only wine-price and wine-quartile have"):
        experiments("flights", features="notes")


def test_unknown_names_are_refused():
    with pytest.raises(InputError, match="the experiments are allstate"):
        experiments("wine")


def test_every_figure_of_the_paper_has_its_experiment():
    figures = [number for name in PAPER for number in EXPERIMENTS[name].figures.split(" and ")]
    assert sorted(figures) == list("123456")
    assert all(not EXPERIMENTS[name].figures for name in ("flights-new", "flights-known"))
