"""A module's gradient as straight-line tensor code: traced once, simplified, run without autograd.

On small models most of a step's time goes to Python, autograd and views. A trace holds the same tensor
operations and nothing else; what does not change from step to step is taken out of it.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import torch
from torch import Tensor, fx
from torch.func import functionalize
from torch.fx.experimental.proxy_tensor import make_fx

from mixtree.errors import MixtreeError

Loss: TypeAlias = Callable[..., Tensor]

aten = torch.ops.aten


class TraceError(MixtreeError):
    """A module whose training step cannot be written as one fixed list of tensor operations."""


@dataclass(frozen=True, eq=False, slots=True)
class Gradient:
    """The traced gradient of a loss: inputs are parameters, buffers and the batch, in this order."""

    graph: fx.Graph
    inputs: tuple[fx.Node, ...]
    outputs: tuple[fx.Node | None, ...]
    """One per parameter; None where the loss does not depend on it."""
    constants: dict[fx.Node, Tensor]
    random: bool
    """Whether a step draws random numbers (dropout)."""

    def only_transposed(self, place: int) -> bool:
        """Whether a parameter is used by its transpose alone, as the weights of a first layer are."""
        users = self.inputs[place].users
        return bool(users) and all(is_transpose(user) for user in users)


def trace_gradient(
    loss: Loss, parameters: Sequence[Tensor], buffers: Sequence[Tensor], batch: Sequence[Tensor]
) -> Gradient:
    """Trace the gradient of a loss with respect to the parameters.

    Parameters
    ----------
    loss : callable
        ``loss(parameters, buffers, *batch)`` gives one number.
    parameters, buffers, batch : sequences of tensors
        Values to trace with; shapes and types are what counts.
    """
    count, last = len(parameters), len(parameters) + len(buffers)

    def gradient(*tensors: Tensor) -> tuple[Tensor | None, ...]:
        total = loss(tensors[:count], tensors[count:last], *tensors[last:])
        return torch.autograd.grad(total, tensors[:count], allow_unused=True)

    leaves = [each.detach().clone().requires_grad_() for each in parameters]
    rest = [each.detach().clone() for each in (*buffers, *batch)]
    module = make_fx(gradient)(*leaves, *rest)
    if any(_changes_inputs(node) for node in module.graph.nodes):
        # Without changes in place every reordering below is safe; what is left of them are the copies into
        # the buffers at the end.
        with torch.no_grad():
            module = make_fx(functionalize(module, remove="mutations"))(*(x.detach() for x in leaves), *rest)
    graph = module.graph
    inputs = tuple(node for node in graph.nodes if node.op == "placeholder")
    for node in graph.nodes:
        if _changes_inputs(node) and not (node.target is aten.copy_.default and node.args[0] in inputs):
            raise TraceError(f"the step changes tensors in place ({node.target})")
    _simplify(graph)
    _shorten_sums(graph)
    operations = [node.target for node in graph.nodes if isinstance(node.target, torch._ops.OpOverload)]
    random = any(torch.Tag.nondeterministic_seeded in each.tags for each in operations)
    output = next(node for node in graph.nodes if node.op == "output")
    outputs = tuple(each if isinstance(each, fx.Node) else None for each in output.args[0])
    return Gradient(graph, inputs, outputs, _constants(module), random)


def _simplify(graph: fx.Graph) -> None:
    """Drop what changes nothing and compute nothing twice."""
    seen: dict[Any, fx.Node] = {}
    for node in list(graph.nodes):
        if node.op != "call_function":
            continue
        same = _unchanged(node)
        if same is None and _is_pure(node):
            key = _key(node)
            same = seen.setdefault(key, node) if key is not None else node
        if same is not None and same is not node:
            node.replace_all_uses_with(same)
            graph.erase_node(node)
    drop_unused(graph)


def _unchanged(node: fx.Node) -> fx.Node | None:
    """The node that has the very values of this one, if there is one."""
    source = node.args[0] if node.args else None
    if not isinstance(source, fx.Node):
        return None
    if node.target in (aten.mul.Scalar, aten.mul.Tensor) and isinstance(node.args[1], int | float):
        return source if node.args[1] == 1 and layout(node) == layout(source) else None
    if node.target in _SWAPS and source.target is node.target and node.args[1:] == source.args[1:]:
        return first(source)
    return source if node.target in _MAY_DO_NOTHING and layout(node) == layout(source) else None


def _shorten_sums(graph: fx.Graph) -> None:
    """Gradients of biases come as sums that keep their dimensions, for a view to drop them: one call does."""
    for node in list(graph.nodes):
        total = node.args[0] if node.target is aten.view.default else None
        if not isinstance(total, fx.Node) or total.target is not aten.sum.dim_IntList or total.kwargs:
            continue
        parts: Any = total.args
        source, dims, *keep = parts
        after, before = layout(node), layout(source)
        if keep != [True] or after is None or before is None:
            continue
        gone = {place % len(before[0]) for place in dims}
        if list(after[0]) == [size for place, size in enumerate(before[0]) if place not in gone]:
            with graph.inserting_before(node):
                short = graph.call_function(aten.sum.dim_IntList, (source, dims))
            short.meta = dict(node.meta)
            node.replace_all_uses_with(short)
    drop_unused(graph)


def _constants(module: fx.GraphModule) -> dict[fx.Node, Tensor]:
    """The nodes whose values do not depend on parameters, buffers or batch, with their values."""
    known: dict[fx.Node, Tensor] = {}
    for node in module.graph.nodes:
        if node.op == "get_attr":
            known[node] = operator.attrgetter(str(node.target))(module).detach()
        elif node.op == "call_function":
            number, form = _filled_with(node), layout(node)
            if number is not None and form is not None:
                shape, stride, dtype = form
                device = node.meta["val"].device
                known[node] = torch.empty_strided(shape, stride, dtype=dtype, device=device).fill_(number)
            elif _is_pure(node) and all(each in known for each in node.all_input_nodes):
                value = node.target(*fx.map_arg(node.args, known.__getitem__), **node.kwargs)
                if isinstance(value, Tensor):
                    known[node] = value
    return known


def _filled_with(node: fx.Node) -> float | None:
    """The one number that fills this tensor whatever the values of its inputs, if there is one."""
    if node.target is operator.getitem and node.args[1] == 1:
        loss = first(node)
        # The sum of weights is asked for but not used where no mean is taken.
        return 0.0 if loss.target is aten.nll_loss_forward.default and loss.args[3] == 0 else None
    if isinstance(node.target, torch._ops.OpOverload):
        return _FILLS.get(node.target._schema.name)
    return None


def drop_unused(graph: fx.Graph) -> None:
    """Erase what nothing needs and what changes nothing."""
    for node in reversed(list(graph.nodes)):
        if not node.users and node.op in ("call_function", "get_attr") and not _changes_inputs(node):
            graph.erase_node(node)


def layout(node: Any) -> tuple[Any, Any, Any] | None:
    """Shape, strides and type of a node's tensor, if it has one."""
    value = node.meta.get("val") if isinstance(node, fx.Node) else None
    return (value.shape, value.stride(), value.dtype) if isinstance(value, Tensor) else None


def first(node: fx.Node) -> fx.Node:
    """The node that is this one's first argument."""
    argument = node.args[0]
    if not isinstance(argument, fx.Node):
        raise TraceError(f"{node.target} has no tensor for its first argument")
    return argument


def is_transpose(node: fx.Node) -> bool:
    """Whether this swaps the two dimensions of a matrix, or of every matrix of a stack."""
    form = layout(node)
    if form is None or node.target not in _SWAPS:
        return False
    return (
        len(form[0]) == 2 if node.target is aten.t.default else len(form[0]) == 3 and node.args[1:] == (1, 2)
    )


def is_view(node: fx.Node) -> bool:
    """Whether this is a tensor in the memory of another one."""
    if not isinstance(node.target, torch._ops.OpOverload) or len(node.target._schema.returns) != 1:
        return False
    alias = node.target._schema.returns[0].alias_info
    return alias is not None and not alias.is_write and len(node.all_input_nodes) == 1


def _key(node: fx.Node) -> Any:
    def frozen(value: Any) -> Any:
        if isinstance(value, list | tuple):
            return tuple(frozen(each) for each in value)
        # 1, 1.0 and True are equal as keys but not as arguments.
        return (type(value), value)

    key = (node.target, frozen(node.args), frozen(tuple(sorted(node.kwargs.items()))))
    try:
        hash(key)
    except TypeError:
        return None
    return key


def _changes_inputs(node: fx.Node) -> bool:
    return isinstance(node.target, torch._ops.OpOverload) and bool(node.target._schema.is_mutable)


def _is_pure(node: fx.Node) -> bool:
    if node.target is operator.getitem:
        return True
    return (
        isinstance(node.target, torch._ops.OpOverload)
        and not _changes_inputs(node)
        and torch.Tag.nondeterministic_seeded not in node.target.tags
        and "batch_norm" not in node.target._schema.name  # it moves the running averages unsaid
        and "empty" not in node.target._schema.name
    )


_SWAPS = (aten.t.default, aten.transpose.int)
_MAY_DO_NOTHING = (
    aten.view.default,
    aten._unsafe_view.default,
    aten.expand.default,
    aten.detach.default,
    aten.alias.default,
)
_FILLS = {"aten::ones_like": 1.0, "aten::zeros_like": 0.0, "aten::new_ones": 1.0, "aten::new_zeros": 0.0}
