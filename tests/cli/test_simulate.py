import pytest


@pytest.fixture
def study(tables, done, base):
    done("fit", *base, "--policy", "mixmatch-bisect", "--out", "out")
    return "out"


def test_the_recorded_trials_with_other_numbers_of_workers(done, study):
    found = done("simulate", study, "--workers", "1,2,1000", "--json").json
    one, two, many = found["workers"]
    assert found["trials"] > found["rounds"] > 1
    assert one["idle"] == pytest.approx(0)
    assert one["seconds"] >= two["seconds"] >= many["seconds"] > 0
    assert two["asynchronous_at_best"] <= two["seconds"]
    wide = done("simulate", study, "--workers", "1000", "--trials", "1000", "--json").json
    assert wide["rounds"] == 1
    assert done("simulate", study, "--times", "3", "--json").json["trials"] == 3 * found["trials"]
    assert "2 workers" in done("simulate", study).out


def test_what_cannot_be_replayed(mixtree, study):
    for count, words in (("0", "are at least 1"), ("x", "is not a whole number")):
        answer = mixtree("simulate", study, "--workers", count)
        assert answer.code != 0
        assert words in " ".join(answer.err.split())
