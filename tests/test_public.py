"""The public list, guarded."""

import mixtree

VALUES = ["Cell", "Evaluation", "Job", "Mixture", "Node", "Problem", "Result", "Rows", "Setting", "Sources"]
SEARCHING = ["Search", "Trainer", "Tree", "TreeSearch", "Trial", "make_search", "run"]
ERRORS = ["DataError", "InputError", "MixtreeError", "SearchError", "TrainingError"]


def test_the_public_list():
    public = {*VALUES, *SEARCHING, *ERRORS, "__version__"}
    assert set(mixtree.__all__) == set(dir(mixtree)) == public
    for name in public:
        assert getattr(mixtree, name) is not None
