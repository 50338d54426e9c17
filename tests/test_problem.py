"""A configuration meets its data: tasks, outputs, targets and the weights of classes."""

import numpy as np
import pytest

from dadagrad import InputError, TrainConfig
from dadagrad.data.dataset import LabelColumn, Schema
from dadagrad.problem import make_problem

BINARY = LabelColumn("y", (-1.0, 1.0), (30, 10))
CLASSES = LabelColumn("topic", (2.0, 5.0, 7.0), (10, 20, 30), ("cat", "dog", "eel"))
COLUMNS = (LabelColumn("a", (0.0, 1.0), (3, 1)), LabelColumn("b", (1.0, 2.0), (2, 2)))
REAL = LabelColumn("price")


def make(*columns, **settings):
    return make_problem(TrainConfig(**settings), Schema(9, columns), 4)


@pytest.mark.parametrize(
    ("columns", "loss", "task", "n_targets"),
    [
        ([BINARY], "hinge", "binary", 1),
        ([CLASSES], "logistic", "multiclass", 3),
        (COLUMNS, "hinge", "multilabel", 2),
        ([REAL], "squared", "regression", 1),
        ([BINARY], "huber", "regression", 1),
        ([REAL, REAL], "absolute", "regression", 2),
    ],
)
def test_labels_and_loss_decide_the_task(columns, loss, task, n_targets):
    made = make(*columns, loss=loss, step_size=0.5)
    assert (made.task, made.n_targets, made.n_outputs) == (task, n_targets, n_targets)
    assert made.config.batch_size == 4
    assert not made.online
    several = make(*columns, loss=loss, step_size=(0.1, 0.2))
    assert (several.n_settings, several.n_outputs) == (2, 2 * n_targets)
    groups = n_targets // several.group_width
    np.testing.assert_array_equal(several.hyperparameters.step_size, np.repeat([0.1, 0.2], groups))
    assert several.n_groups == 2 * groups


def test_targets_are_signs_of_classes_and_of_the_larger_value_of_each_column():
    labels = np.array([[2.0], [7.0], [5.0]])
    np.testing.assert_array_equal(
        make(CLASSES).targets(labels), [[1, -1, -1], [-1, -1, 1], [-1, 1, -1]]
    )
    np.testing.assert_array_equal(make(BINARY).targets(np.array([[1.0], [-1.0]])), [[1], [-1]])
    labels = np.array([[0.0, 2.0], [1.0, 1.0]])
    np.testing.assert_array_equal(make(*COLUMNS).targets(labels), [[-1, 1], [1, -1]])


def test_labels_that_do_not_suit_are_named():
    for columns, settings, message in (
        ([], {}, "no label column"),
        ([LabelColumn("y", (1.0,), (5,))], {}, "'y' has only one class, 1; .* needs two"),
        ([LabelColumn("y", (0.0,), (5,), ("cat",))], {}, "only one class, cat;"),
        ([LabelColumn("y", (), ())], {}, "'y' has no labels"),
        ([REAL], {"loss": "logistic"}, "'price' has more than 1000 .* the logistic loss class"),
        ([BINARY, CLASSES], {}, "'topic' has 3 distinct values; .* each must have two"),
        ([REAL], {"loss": "squared", "class_weight": "balanced"}, "class_weight needs one label"),
        (COLUMNS, {"class_weight": "balanced"}, "class_weight needs one label column"),
        ([BINARY], {"class_weight": {-1: 0, 1: 0}}, "class_weight is 0 for all labels"),
        (COLUMNS, {"loss": "softmax"}, "the softmax loss is for one label column.* has 2"),
        (COLUMNS, {"loss": "ranking"}, "the ranking loss is for one label column"),
        ([CLASSES], {"loss": "squared"}, "has the classes cat, dog, eel, and the squared"),
        (
            [CLASSES],
            {"class_weight": {9.0: 1.0}},
            "label '9', which .* its labels are cat, dog, eel",
        ),
    ):
        with pytest.raises(InputError, match=message):
            make(*columns, **settings)
