"""ONNX: a built-in model (linear or MLP) as a graph that any ONNX runtime computes.

The graph takes the preprocessed features (float32, rows × features, as ``Preprocessor.transform`` makes them
from a table) and gives what the model predicts. Preprocessing stays with the model folder; the names of the
features stand in the graph's metadata, in their order.
"""

from __future__ import annotations

import json
from pathlib import Path as FilePath
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mixtree.errors import InputError, MissingExtraError
from mixtree.fitting.model_folder import load_model
from mixtree.trainers.mlp import MlpTrainer

OPSET = 17
"""Old enough for most runtimes in use."""
_IR = 8  # the file layout that goes with the opset
_ACTIVATIONS = {"relu": "Relu", "sigmoid": "Sigmoid", "tanh": "Tanh"}


def to_onnx(folder: str | FilePath) -> bytes:
    """The model in a folder as an ONNX file: ``features`` in, ``probabilities`` or ``prediction`` out."""
    loaded = load_model(folder)
    if not isinstance(loaded.trainer, MlpTrainer):
        raise InputError(
            f"{folder} holds a {loaded.about['model']['name']} model: ONNX export is for mlp and linear; use "
            "the tools of its own library"
        )
    metadata = {
        "features": json.dumps(loaded.preprocessor.feature_names, ensure_ascii=False),
        "classes": json.dumps(loaded.classes, ensure_ascii=False),
        "label": str(loaded.about["label"]),
    }
    return network_to_onnx(loaded.trainer, loaded.state.parameters, metadata=metadata)


def network_to_onnx(trainer: MlpTrainer, parameters: NDArray[Any], *, metadata: dict[str, str]) -> bytes:
    """A trained network as an ONNX file.

    Parameters
    ----------
    trainer : MlpTrainer
        Knows the network's shape.
    parameters : array
        The trained model's, one flat vector.
    metadata : mapping of str
        Texts that are kept in the file.

    Returns
    -------
    bytes
        The file; its input is ``features``, its output ``probabilities`` or ``prediction``.
    """
    try:
        import onnx
        import onnx.checker
        import onnx.helper
        import onnx.numpy_helper
    except ImportError as error:
        raise MissingExtraError("ONNX export", "onnx") from error
    helper, network = onnx.helper, trainer.network
    kind = helper.np_dtype_to_tensor_dtype(network.dtype)
    nodes, constants, value = [], [], "features"
    layers = network.layers(parameters)
    for number, (weight, bias) in enumerate(layers):
        for name, array in ((f"weight.{number}", weight), (f"bias.{number}", bias)):
            constants.append(onnx.numpy_helper.from_array(np.ascontiguousarray(array), name))
        out = f"layer.{number}"
        nodes.append(helper.make_node("Gemm", [value, f"weight.{number}", f"bias.{number}"], [out]))
        value = out
        if number < len(layers) - 1:
            value = f"active.{number}"
            nodes.append(helper.make_node(_ACTIVATIONS[network.activation], [out], [value]))
    classes = trainer.sources.classes
    result = "probabilities" if classes else "prediction"
    if classes:
        nodes.append(helper.make_node("Softmax", [value], [result], axis=1))
    else:  # one number per row, as predict gives it
        constants.append(onnx.numpy_helper.from_array(np.array([-1], dtype=np.int64), "flat"))
        nodes.append(helper.make_node("Reshape", [value, "flat"], [result]))
    graph = helper.make_graph(
        nodes,
        "mixtree",
        [helper.make_tensor_value_info("features", kind, ["rows", network.sizes[0]])],
        [helper.make_tensor_value_info(result, kind, ["rows", classes] if classes else ["rows"])],
        constants,
    )
    model = helper.make_model(
        graph, opset_imports=[helper.make_opsetid("", OPSET)], ir_version=_IR, producer_name="mixtree"
    )
    helper.set_model_props(model, metadata)
    onnx.checker.check_model(model)
    done: bytes = model.SerializeToString()
    return done
