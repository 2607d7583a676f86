"""The public list, guarded."""

import mixtree

VALUES = ["Cell", "Evaluation", "Job", "Mixture", "Node", "Problem", "Result", "Rows", "Setting", "Sources"]
DOORS = ["MixtureClassifier", "MixtureRegressor", "fit", "load", "load_model", "run"]
SEARCHING = ["Search", "Trainer", "Tree", "TreeSearch", "Trial", "make_search", "training_sources"]
ERRORS = ["DataError", "InputError", "MixtreeError", "SearchError", "TrainingError"]


def test_the_public_list():
    public = {*VALUES, *DOORS, *SEARCHING, *ERRORS, "__version__"}
    assert set(mixtree.__all__) == set(dir(mixtree)) == public
    for name in public:
        assert getattr(mixtree, name) is not None
