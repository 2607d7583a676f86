"""One training step as a Python function over fixed tensors, from a traced gradient."""

from __future__ import annotations

import types
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import torch
from torch import Tensor, fx

from mixtree.trainers.torch.graph import Gradient, aten, drop_unused, first, is_transpose, is_view, layout

Nodes: TypeAlias = dict[fx.Node, fx.Node]
Number: TypeAlias = fx.Node | float
Rule: TypeAlias = Callable[[Sequence[fx.Node]], tuple[Number, Number]]
Finish: TypeAlias = Callable[[fx.Graph, Sequence[fx.Node], Sequence[fx.Node]], None]


@dataclass(frozen=True, eq=False, slots=True)
class Part:
    """The gradient of one parameter, and the two matrices that it is the product of, if it is one.

    A sum over rows is the product of a row of ones and the rows: a matrix with one row.
    """

    value: fx.Node
    product: tuple[fx.Node, fx.Node] | None
    row: bool = False
    stacked: bool = False


def compile_step(
    gradient: Gradient,
    parameters: Sequence[Tensor],
    buffers: Sequence[Tensor],
    *,
    targets: Sequence[Tensor | None],
    transposed: Collection[int],
    settings: int,
    rule: Rule,
    extras: Sequence[Tensor] = (),
    finish: Finish | None = None,
) -> Callable[..., Any]:
    """A function (*batch, *settings) that takes one step on these very tensors.

    Every gradient goes into its target: target ← keep·target + share·gradient, in one operation with the
    matrix product that gives the gradient where there is one.

    Parameters
    ----------
    gradient : Gradient
        The traced gradient.
    parameters, buffers : sequences of tensors
        What it is computed from.
    targets : sequence of tensors or None
        Where the gradient of each parameter goes.
    transposed : collection of int
        Places of parameters that are used by their transpose alone: they, and their targets as given, lie
        transposed in memory.
    settings : int
        How many numbers the function takes after the batch.
    rule : callable
        Gives (keep, share) from the settings.
    extras : sequence of tensors
        What ``finish`` works on.
    finish : callable, optional
        Adds what comes after, from the nodes of ``extras`` and settings.
    """
    # Everything that is the same tensor in every step: parameters, buffers, views of them, constants.
    fixed = dict(zip(gradient.inputs, [*parameters, *buffers], strict=False)) | gradient.constants
    for node in gradient.graph.nodes:
        if node not in fixed and is_view(node) and node.args[0] in fixed:
            fixed[node] = node.target(*fx.map_arg(node.args, fixed.__getitem__), **node.kwargs)
    graph = fx.Graph()
    nodes = {node: graph.placeholder(node.name) for node in fixed}
    own = [graph.placeholder(f"own_{place}") for place in range(len(targets) + len(extras) + 1)]
    for node in gradient.inputs[len(parameters) + len(buffers) :]:
        nodes[node] = graph.placeholder(node.name)
    values = [graph.placeholder(f"setting_{place}") for place in range(settings)]
    for node in gradient.graph.nodes:
        if node not in nodes and node.op == "call_function":
            nodes[node] = _emit(graph, node, nodes)
    moving = gradient.inputs[: len(parameters)]
    # For sums over the rows of a batch: ones ([models,] 1, batch size); labels have no 1 in the middle.
    labels = gradient.inputs[len(parameters) + len(buffers) + 1].meta["val"]
    dtype = gradient.inputs[0].meta["val"].dtype
    ones = torch.ones(*labels.shape, dtype=dtype, device=labels.device).unsqueeze(-2)
    known: list[Tensor | None] = [*fixed.values(), ones]
    keep, share = rule(values)
    parts = [
        None
        if node is None
        else _sum_of_rows(node, nodes, moving, own[0], ones)
        or _part(graph, node, nodes, moving, turned=place in transposed)
        for place, node in enumerate(gradient.outputs)
    ]
    for node, target, part in zip(own[1:], targets, parts, strict=False):
        if part is not None and target is not None:
            known.append(target.unsqueeze(-2) if part.row else target)
            _accumulate(graph, node, part, keep, share)
        else:
            known.append(None)
    if finish is not None:
        finish(graph, own[len(own) - len(extras) :], values)
    graph.output(())
    drop_unused(graph)
    graph.lint()
    step = fx.GraphModule(torch.nn.Module(), graph).forward
    bound = (*known, *extras)
    return lambda *given: step(*bound, *given)


def _sum_of_rows(
    node: fx.Node, nodes: Nodes, moving: Sequence[fx.Node], row: fx.Node, ones: Tensor
) -> Part | None:
    """The gradient as a product, if it is a sum over the rows of a batch, as those of biases are."""
    if node.target is not aten.sum.dim_IntList or node.kwargs or len(node.args) != 2:
        return None
    found: tuple[Any, ...] = layout(first(node)) or ((), (), None)
    rows, (shape, _, dtype) = first(node), found
    summed: Any = node.args[1]
    over = [place % len(shape) for place in summed] if shape else []
    fits = len(shape) == ones.ndim and shape[:-2] == ones.shape[:-2] and dtype == ones.dtype
    if not fits or over != [ones.ndim - 2] or shape[-2] != ones.shape[-1] or _root(rows) in moving:
        return None
    return Part(nodes[node], (row, nodes[rows]), row=True, stacked=ones.ndim == 3)


def _part(graph: fx.Graph, node: fx.Node, nodes: Nodes, moving: Sequence[fx.Node], *, turned: bool) -> Part:
    value = nodes[node]
    if _root(node).op == "placeholder":
        # Another parameter may be the gradient of this one; it must not move first.
        value = graph.call_method("clone", (value,))
    if turned:
        value = graph.call_function(torch.transpose, (value, -1, -2))
    while is_transpose(node):
        turned, node = not turned, first(node)
    if node.target not in (aten.mm.default, aten.bmm.default):
        return Part(value, None)
    left, right = node.args
    if not isinstance(left, fx.Node) or not isinstance(right, fx.Node):
        return Part(value, None)
    if _root(left) in moving or _root(right) in moving:
        return Part(value, None)  # a factor that moves in this very step: the product must be taken before
    factors = nodes[left], nodes[right]
    if turned:
        factors = _transposed(graph, right, nodes), _transposed(graph, left, nodes)
    return Part(value, factors, stacked=node.target is aten.bmm.default)


def _transposed(graph: fx.Graph, node: fx.Node, nodes: Nodes) -> fx.Node:
    if is_transpose(node):
        return nodes[first(node)]
    return graph.call_function(torch.transpose, (nodes[node], -1, -2))


def _root(node: fx.Node) -> fx.Node:
    """The node whose memory this one is a view of."""
    while is_view(node):
        node = first(node)
    return node


def _accumulate(graph: fx.Graph, target: fx.Node, part: Part, keep: Number, share: Number) -> None:
    """target ← keep·target + share·gradient."""
    if part.product is not None:
        # On a matrix or on a stack of them; keep = 0 drops what was there, be it NaN.
        options: dict[str, Any] = {"beta": keep, "alpha": share}
        graph.call_method("baddbmm_" if part.stacked else "addmm_", (target, *part.product), options)
        return
    if keep == 0:
        graph.call_method("copy_", (target, part.value))
        return
    if keep != 1:
        graph.call_method("mul_", (target, keep))
    graph.call_method("add_", (target, part.value), {"alpha": share})


def _emit(graph: fx.Graph, node: fx.Node, nodes: Nodes) -> fx.Node:
    """The node's operation by the way that costs least to call from Python."""
    arguments = fx.map_arg(node.args, nodes.__getitem__)
    options = fx.map_arg(node.kwargs, nodes.__getitem__)
    if not isinstance(node.target, torch._ops.OpOverload):
        function: Any = node.target
        return graph.call_function(function, arguments, options)
    name = node.target._schema.name.removeprefix("aten::")
    bias = layout(node.args[0]) if node.target is aten.addmm.default and not options else None
    if bias is not None and len(bias[0]) == 1:
        # The same, without the copy of the bias for every row that is made first.
        product = graph.call_function(torch.mm, arguments[1:])
        return graph.call_method("add_", (product, arguments[0]))
    if (reused := _reusable(node)) is not None:
        if node.target in _BACKWARD:
            return graph.call_function(_BACKWARD[node.target], arguments, {"grad_input": nodes[reused]})
        ordered = sorted(arguments, key=lambda each: each is not nodes[reused])
        return graph.call_method(f"{name}_", tuple(ordered))
    if name in ("view", "expand"):
        return graph.call_method(name, arguments, options)
    direct = getattr(torch, name, None)
    if isinstance(direct, types.BuiltinFunctionType) and not options:
        return graph.call_function(direct, arguments)
    return graph.call_function(node.target, arguments, options)


def _reusable(node: fx.Node) -> fx.Node | None:
    """The argument in whose memory the result may be put: made by an operation, and needed by nobody else."""
    if node.target not in (*_IN_PLACE, *_BACKWARD) or node.kwargs:
        return None
    for each in node.all_input_nodes[:1] if node.target in _BACKWARD else node.all_input_nodes:
        if each.target in _MAKERS and len(each.users) == 1 and layout(each) == layout(node):
            return each
    return None


_IN_PLACE = (aten.relu.default, aten.sigmoid.default, aten.tanh.default, aten.add.Tensor)
_BACKWARD = {
    aten.threshold_backward.default: aten.threshold_backward.grad_input,
    aten.sigmoid_backward.default: aten.sigmoid_backward.grad_input,
    aten.tanh_backward.default: aten.tanh_backward.grad_input,
}
_MAKERS = (aten.mm.default, aten.addmm.default, aten.bmm.default, aten.add.Tensor)
