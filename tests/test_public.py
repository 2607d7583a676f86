"""The public list, guarded."""

import mixtree

VALUES = ["Cell", "Evaluation", "Job", "Mixture", "Node", "Problem", "Result", "Rows", "Setting", "Sources"]
DOORS = ["MixtureClassifier", "MixtureRegressor", "fit", "load", "load_model", "run"]
SEARCHING = ["Search", "SearchBase", "Trainer", "TrainerBase", "Tree", "TreeSearch", "Trial"]
ALGORITHMS = ["make_search", "then_commit", "training_sources"]
ERRORS = ["DataError", "InputError", "MixtreeError", "SearchError", "TrainingError"]


def test_the_public_list():
    public = {*VALUES, *DOORS, *SEARCHING, *ALGORITHMS, *ERRORS, "__version__"}
    assert set(mixtree.__all__) == set(dir(mixtree)) == public
    for name in public:
        assert getattr(mixtree, name) is not None
