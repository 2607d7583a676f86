"""The page about the command line, made from the commands: ``python -m mixtree.cli.reference``."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import typer

INTRODUCTION = """\
# The command line

<!-- Made by `python -m mixtree.cli.reference > docs/command-line.md`; a test checks that it is current. -->

Four commands from tables to predictions:

```console
pip install mixtree
mixtree fit customers.csv --source-col state --label bought --val market.csv --test test.csv --out model
mixtree show model
mixtree predict model new.csv -o predictions.csv
```

`customers.csv` holds the training rows of all sources; the column `state` says which source a row comes from.
`market.csv` holds some labelled rows of the new market: they choose the mixture. `test.csv`, if there is one,
is read once, at the end. One file per source works too: `--source fl=fl.csv --source ct=ct.csv`. Without a
validation file, `--target FILE --val-frac F` splits one. Tables are CSV, TSV, Parquet or Arrow, plain or
gzipped. What becomes of a table with something wrong in it is listed in [broken-input.md](broken-input.md).

- **Exit codes**: 0 all went well, 2 bad input (nothing was changed), 1 a failure, 130 Ctrl-C.
- **Streams**: results on stdout, with `--json` as one object; plan, warnings and progress on stderr.
- **A file of options**: `mixtree fit options.toml` equals the same flags; keys are the flags' names, `tables`
  lists the tables, paths are relative to where you call it, and flags given beside the file win:

  ```toml
  tables = ["customers.csv"]
  source-col = "state"
  label = "bought"
  val = "market.csv"
  out = "model"
  min = { fl = 0.1 }
  ```

- **Ctrl-C** stops after the current round; `mixtree resume model` goes on and ends with the same model as a
  run that was never interrupted. `mixtree resume model --budget 5000` gives a finished study more steps.
- **Names** come from files of anybody's. Signs that would steer a terminal, turn the direction of writing or
  are not seen at all are printed as `\\x1b`, `\\u202e` …, and in the model card nothing of a name is markup.
  Where the terminal's encoding lacks a sign, it is spelt out in the same way.
- **Spreadsheets** run text that begins with `=`, `+`, `-` or `@`, and labels and kept columns go into
  predictions as they are, so that other programs find them again. For rows of sources that you do not trust,
  `mixtree predict --escape-formulas` puts `'` before such text (CSV only).
- **Tab completion**: `mixtree --install-completion`.

## What `--json` prints

- `fit`, `resume`: `{study, policy, decided, mixture: {source: weight}, metric, val_score, test_score, budget,
  spent, verdict}`; `decided` says in words what the policy decided, `spent` has the steps by phase;
  `test_score` and `verdict` are null where there is none.
- `fit --dry-run`: `{rows, validation, holdout, test, features, classes, columns, policy, metric, budget,
  steps, batch_size, warnings}`.
- `compare`: `{metric, budget, runs: [{algorithm, repeat, val_score, test_score, mixture, spent, lr_scale,
  finished}], summary: [{algorithm, repeats, diverged, score, sd, mixture, spent, seconds, cpu}], verdict:
  {of, repeats, sentences, against: [{name, difference, low, high, p}]}, scored_on, notes}`; differences are
  means over the repeats, as the summary's scores are; `scored_on` says which rows `test_score` is of: test
  rows, held-out rows, or, where it is null, the validation rows; `lr_scale` is below 1 where larger steps
  diverged.
- `list`: `{studies: […]}`, each as `show` has it; `show`: `{study, status, rule, mixture, value, budget,
  spent, nodes, depth, seed, created, updated, events, verdict, certificate, decided, models}`, with `--tree`
  also `tree: [{path, phase, steps, value, mixture}]`; `models` is the place of the models.
- `theory`: `{given: answer}`, or with tables `{optimistic: answer, sound: answer}`; an answer is `{constants,
  budget, dimension: {d, scale}, derived: {kappa, nu1, rho, nu2, rho2, step_shift, first_step_size}, nodes:
  [{height, d0_squared, target, steps, needed, k, reason, c_check: {log, largest_entry}, constant_regime,
  exponential_regime}], given_steps, height_reached, no_tree, regret_bound, regret_failure, steps_failure,
  feasible, sentence}`. `steps` is null where Λ does not pay for them, and `needed` then says how many would
  do; `height_reached` and `regret_bound` are null where there is no tree, and `no_tree` says why. A regime is
  `{formula, valid, broken}`; numbers beyond all floats are null. What they mean: [theory.md](theory.md).
- A verdict of `fit` or `show`: `{sentence, score: {value, low, high, rows}, against: [{name, difference, low,
  high, p}], hull: {p, inside}, mixture: {source: {weight, low, high}}, queries, notes, reference_spent,
  warnings, metric, higher_is_better, of, optimistic, comparison, expectation, next_step}`; the last three are
  the lines that are printed first, `sentence` the first two of them.

## The model folder

| file | what it holds |
| --- | --- |
| `weights.safetensors` | the model's arrays |
| `preprocessing/` | how columns become features, as plain JSON |
| `model.json` | data fingerprint, mixture, budget, scores, versions, verdict |
| `verdict.json` | the verdict alone |
| `MODEL_CARD.md` | the same for people |
| `study.db`, `study.db.checkpoints/` | the study, for `show` and `resume`; predictions do not need it |

With `--storage` a study is elsewhere: a file keeps its models beside itself; a study on a server
(`postgresql://…`) keeps them in `checkpoints/` of the model folder. Their place is written down with
the study: `mixtree show URL` prints it, `mixtree resume URL` finds them from any folder of that machine.
Elsewhere missing models are computed again.

The folder predicts on any machine with mixtree, without the training data; nothing in it is unpickled or run.
A second study in the same folder (`--study NAME`) is kept beside the first; the model is that of the last.
`mixtree export model --format onnx -o model.onnx` writes a `mlp` or `linear` model as an ONNX graph (`pip
install 'mixtree[onnx]'`). The graph takes the preprocessed features, float32, in the order that its metadata
`features` lists; `mixtree.fitting.model_folder.load_model("model").preprocessor.transform(table)` makes them.

## The mixture for other trainers

| `mixtree export model --format` | what it prints |
| --- | --- |
| `json` | `{source: weight}` |
| `huggingface` | a Python function `mixed(sources, rows)`: a `datasets` stream of that many rows |
| `megatron` | weights and paths for `--data-path` |
| `axolotl` | `datasets:` in YAML; a weight is the fraction of a source's rows to keep, the largest is 1 |
| `mosaic` | `streams:` with proportions, in YAML |
| `sampler` | the weight of one row of each source, for torch's `WeightedRandomSampler` |

`huggingface` needs `datasets` 4 or newer. `axolotl` and `sampler` need the number of rows of every source,
which a study knows unless its trainer has no rows of its own; in Python
`mixtree.export.mixture.export_mixture(weights, form, sizes={…})` takes them. Sources of weight 0 are left out
of all but `json` and `sampler`.
"""


def page(app: typer.Typer) -> str:
    """The page in Markdown."""
    root = typer.main.get_command(app)
    lines = [INTRODUCTION, "## Commands", "", *_options(root), ""]
    for name, command in sorted(root.commands.items()):  # type: ignore[attr-defined]
        places = " ".join(_metavar(each) for each in _arguments(command))
        lines += [f"### `mixtree {name}{' ' + places if places else ''} [options]`", ""]
        lines += [(command.help or "").strip(), "", *_options(command), ""]
    return "\n".join(lines).rstrip() + "\n"


def options_of(command: Any) -> list[str]:
    """The long spelling of every option of a command."""
    return [max(each.opts, key=len) for each in command.params if each.param_type_name == "option"]


def _arguments(command: Any) -> list[Any]:
    return [each for each in command.params if each.param_type_name == "argument"]


def _options(command: Any) -> Iterator[str]:
    yield "| option | what it does | default |"
    yield "| --- | --- | --- |"
    for each in _arguments(command):
        yield f"| `{_cell(_metavar(each))}` | {_cell(each.help)} | {_default(each)} |"
    for each in command.params:
        if each.param_type_name != "option":
            continue
        value = "" if each.is_flag else f" {_cell(_metavar(each))}"
        yield f"| `{', '.join(each.opts)}{value}` | {_cell(each.help)} | {_default(each)} |"


def _default(parameter: Any) -> str:
    if isinstance(parameter.show_default, str):
        return _cell(parameter.show_default)
    if parameter.required:
        return "required"
    if getattr(parameter, "is_flag", False):
        return "off"
    default = parameter.default
    return "" if default in (None, (), []) or callable(default) else _cell(str(default))


def _metavar(parameter: Any) -> str:
    name = str(parameter.metavar or parameter.name.upper())
    return f"[{name}]" if parameter.param_type_name == "argument" and not parameter.required else name


def _cell(text: str | None) -> str:
    return " ".join((text or "").split()).replace("|", "\\|")


def main() -> None:
    """Print the page."""
    from mixtree.cli import app

    typer.echo(page(app), nl=False)


if __name__ == "__main__":
    main()
