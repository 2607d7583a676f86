"""The table of attacks on the command line; what is drawn is drawn from one seed."""

from __future__ import annotations

import csv
import gzip
import json
import os
import random
import shutil
import sqlite3
import struct
import zlib
from collections.abc import Callable, Iterator
from hashlib import sha256
from pathlib import Path
from typing import Any

from harness import SECRET, Attack, command

ROWS = ("train.csv", "--source-col", "state", "--label", "bought", "--val", "val.csv")
QUICK = ("--model", "linear", "--budget", "24", "--steps", "4", "--reference", "none", "--holdout", "0")
FIT = ("fit", *ROWS, *QUICK, "--out", "new")
PREDICT = ("predict", "model", "new.csv", "-o", "p.csv")
HOSTILE = {
    "escape codes": "\x1b[31mred\x1b]0;title\x07",
    "text from right to left": "safe\u202egnp.exe",
    "HTML": "<script>alert(1)</script>",
    "a formula": '=cmd|" /C calc"!A0',
    "quotes and Python": '"]); import os; os.abort(); #',
    "a line break": "one\ntwo",
    "a byte that is no UTF-8": "x\udcff",
    "a name of 100 characters": "名" * 100,
    "a folder above": "../../etc/passwd",
    "two dots": "..",
    "markup": "[bold]x[/]",
    "a keyword": "class",
    "a pattern": "^.*$",
    "a blank": " ",
    "nothing": "",
}
"""What people give as names."""
VALUES = [
    "", " ", "-1", "0", "nan", "inf", "1e400", str(2**70), "x", "\udcff", "名" * 120, "a=b=c", "[bold]x[/",
    "\x1b[31mx", "../../etc", "--", "1/0", "0x10", "１", "true", "1e-9", "train.csv", "model", "text.db",
]  # fmt: skip


# ------------------------------------------------------------------------------------------ the folder


def rows(count: int, seed: int, shift: float) -> list[dict[str, Any]]:
    draw = random.Random(seed)
    table = []
    for number in range(count):
        x = draw.gauss(shift, 1)
        colour = draw.choice(["red", "green"])
        bought = "yes" if x + draw.gauss(0, 0.5) > 0 else "no"
        table.append({"id": f"r{seed}-{number}", "x": round(x, 4), "colour": colour, "bought": bought})
    return table


def table(path: str | Path, content: list[dict[str, Any]]) -> None:
    with Path(path).open("w", newline="", encoding="utf-8", errors="surrogateescape") as file:
        writer = csv.DictWriter(file, list(content[0]))
        writer.writeheader()
        writer.writerows(content)


def training(names: tuple[str, str] = ("a", "b")) -> list[dict[str, Any]]:
    return [
        {"state": name, **row} for number, name in enumerate(names) for row in rows(40, number, number - 0.5)
    ]


def make_base() -> None:
    """Tables; a model with its study, one of trees; what belongs to others."""
    table("train.csv", training())
    table("val.csv", rows(30, 9, 0.2))
    table("new.csv", rows(10, 8, 0.2))
    assert command((*FIT[:-1], "model")) == 0
    trees = ("--model", "lightgbm", "--budget", "4", "--steps", "2", "--policy", "uniform")
    assert command(("fit", *ROWS, *trees, "--reference", "none", "--holdout", "0", "--out", "trees")) == 0
    other = sqlite3.connect("other.db")
    other.execute("CREATE TABLE accounts (name TEXT, balance INTEGER)")
    other.execute("INSERT INTO accounts VALUES ('me', 5)")
    other.commit()
    other.close()
    Path("empty.db").touch()
    Path("text.db").write_text("a diary\n" * 100)
    for file in ("preprocessing/mine.txt", "model.json", "MODEL_CARD.md", "weights.safetensors"):
        place = Path("mine") / file
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_text("of the user")


# --------------------------------------------------------------------------------------------- options


def options(draw: random.Random) -> Iterator[Attack]:
    """Every option of every command with values that it does not expect."""
    import typer

    from mixtree.cli import app

    known: Any = typer.main.get_command(app)
    sound = {
        "fit": (FIT, 4),
        "compare": (("compare", *ROWS, *QUICK[:6], "--algorithms", "uniform", "--dry-run"), 1),
        "plan": (("plan", *ROWS), 1),
        "theory": (("theory",), 1),
        "predict": (PREDICT, 12),
        "export": (("export", "model"), 12),
        "resume": (("resume", "model"), 8),
        "arena": (("arena", "--methods", "none-such"), 1),
        "demo": (("demo", "--target", "none-such"), 1),
        "reproduce": (("reproduce", "none-such"), 1),
    }
    for name, (base, count) in sound.items():
        for option in known.commands[name].params:
            if option.param_type_name != "option" or getattr(option, "is_flag", False):
                continue
            for value in draw.sample(VALUES, count):
                # The last one of an option that is given twice counts.
                yield Attack(
                    "options", f"{name} {option.opts[-1]} {ascii(value)}", ((*base, option.opts[-1], value),)
                )
    strange = [
        (), ("",), ("none-such",), ("--none-such",), ("fit",), ("fit", "--"), ("fit", "-x"), ("--", "fit"),
        ("fit", "train.csv", "train.csv"), ("show",), ("copy", "model", "fit"), ("delete", "model", "none"),
        ("delete", "model", "fit"), ("show", "model", "\udcff"), ("copy", "model", "fit", ""),
        ("copy", "model", "fit", "x" * 101), ("copy", "model", "fit", "\udcff"),
        ("copy", "model", "fit", "fit"),
        ("show", ""), ("show", "\udcff"), ("list", "x" * 5000), ("show", "model", "x" * 5000),
        ("predict", "model", "new.csv"), ("predict", "model", "none.csv", "-o", "p.csv"),
        ("resume", "model", "--budget", "1"), ("resume", "model", "--workers", "-1"),
    ]  # fmt: skip
    for arguments in strange:
        shown = " ".join(each[:20] for each in arguments)
        yield Attack("options", f"mixtree {ascii(shown)}", (arguments,), must="refuse")


def configurations(draw: random.Random) -> Iterator[Attack]:
    """TOML files, which hold options too."""
    texts = {
        "nested 50,000 deep": "x = " + "[" * 50_000,
        "tables 5,000 deep": "[" + ".".join("a" * 5000) + "]\n",
        "no TOML": "= = =",
        "not UTF-8": b"label = '\xff'",
        "an unknown key": "none = 1\n",
        "a key twice": "budget = 1\nbudget = 2\n",
        "a table for a number": "budget = {a = 1}\n",
        "a list for a number": "budget = [1]\n",
        "a date for a number": "budget = 2024-01-01\n",
        "a number for a name": "label = 5\n",
        "a truth for a number": "steps = true\n",
        "2**70": f"budget = {2**70}\n",
        "nan": "lr = nan\n",
        "an endless number": "budget = 1" + "0" * 10_000 + "\n",
        "nothing": "",
    }
    for name, text in texts.items():
        data = text.encode() if isinstance(text, str) else text
        yield Attack(
            "options",
            f"a TOML file: {name}",
            (("fit", "study.toml", "--out", "new"),),
            harm=lambda place, data=data: (place / "study.toml").write_bytes(data),
            must="refuse",
        )


# ----------------------------------------------------------------------------------------------- names


def names(draw: random.Random) -> Iterator[Attack]:
    """Hostile texts wherever a name may stand; what works is shown, listed, exported and used."""
    after = (
        ("show", "new", "--verbose", "--tree"),
        ("list", "new"),
        *(("export", "new", "--format", form) for form in ("json", "huggingface", "mosaic")),
        ("predict", "new", "new.csv", "-o", "p.csv"),
    )
    for what, text in HOSTILE.items():

        def sources(place: Path, text: str = text) -> None:
            table(place / "train.csv", training((text, "b")))

        def columns(place: Path, text: str = text) -> None:
            for name in ("train.csv", "val.csv", "new.csv"):
                found = list(csv.DictReader((place / name).open(encoding="utf-8")))
                table(
                    place / name, [{text if k == "colour" else k: v for k, v in row.items()} for row in found]
                )

        def labels(place: Path, text: str = text) -> None:
            for name in ("train.csv", "val.csv"):
                found = list(csv.DictReader((place / name).open(encoding="utf-8")))
                table(
                    place / name,
                    [{**row, "bought": text if row["bought"] == "yes" else "no"} for row in found],
                )

        def values(place: Path, text: str = text) -> None:
            for name in ("train.csv", "new.csv"):
                found = list(csv.DictReader((place / name).open(encoding="utf-8")))
                table(
                    place / name,
                    [{**row, "colour": text if row["colour"] == "red" else "g"} for row in found],
                )

        for where, harm in (("source", sources), ("column", columns), ("label", labels), ("value", values)):
            yield Attack("names", f"{what} as a {where}", (FIT, *after), harm=harm)
        yield Attack("names", f"{what} as a study", ((*FIT, "--study", text), *after))
        yield Attack("names", f"{what} as a folder", ((*FIT[:-1], "new/" + text.replace("/", "_")),))
        yield Attack("names", f"{what} as a column to drop", ((*FIT, "--drop", text),), must="refuse")
        yield Attack("names", f"{what} as a column to keep", ((*PREDICT, "--keep", text),), must="refuse")
        yield Attack("names", f"{what} as a format", (("export", "model", "--format", text),), must="refuse")
        if "\n" not in text and text.strip() and "/" not in text:

            def file(place: Path, text: str = text) -> None:
                os.rename(place / "val.csv", place / f"{text[:60]}.csv")  # noqa: PTH104

            given = [f"{text[:60]}.csv" if each == "val.csv" else each for each in FIT]
            yield Attack("names", f"{what} as a file", (tuple(given), ("show", "new")), harm=file)


# ----------------------------------------------------------------------------------------------- files


def files(draw: random.Random) -> Iterator[Attack]:
    """Tables that are none, or not any more."""

    def content(data: bytes | Callable[[bytes], bytes], name: str = "val.csv") -> Callable[[Path], None]:
        def harm(place: Path) -> None:
            old = (place / "val.csv").read_bytes()
            (place / name).write_bytes(data(old) if callable(data) else data)

        return harm

    def bomb(_: bytes) -> bytes:
        """Three megabytes that become three thousand; made without holding them."""
        packer = zlib.compressobj(9, wbits=31)
        block = b"0,0,0,no\n" * 116_509
        return b"".join(
            [
                packer.compress(b"id,x,colour,bought\n"),
                *(packer.compress(block) for _ in range(2900)),
                packer.flush(),
            ]
        )

    def cut(old: bytes) -> bytes:
        packed = gzip.compress(old, mtime=0)
        return packed[: len(packed) // 2]

    def garbled(old: bytes) -> bytes:
        packed = bytearray(gzip.compress(old, mtime=0))
        for place in range(20, len(packed), 37):
            packed[place] ^= 0xFF
        return bytes(packed)

    cases: dict[str, tuple[str, bytes | Callable[[bytes], bytes]]] = {
        "an empty file": ("val.csv", b""),
        "a NUL": ("val.csv", b"\0"),
        "NULs in the middle": ("val.csv", lambda old: old[:200] + b"\0" * 50 + old[200:]),
        "bytes that are no UTF-8": ("val.csv", lambda old: old.replace(b"red", b"r\xffd")),
        "a header alone": ("val.csv", b"id,x,colour,bought\n"),
        "a header of 2 MB": ("val.csv", lambda old: b"c" * 2_000_000 + b"," + old),
        "a header of 100,000 columns": (
            "val.csv",
            b",".join(b"c%d" % n for n in range(100_000)) + b"\n",
        ),
        "a cell of 5 MB": ("val.csv", lambda old: old + b'a,1,"' + b"x" * 5_000_000 + b'",no\n'),
        "an open quote": ("val.csv", lambda old: old + b'"x,1,red,no\n'),
        "numbers beyond all bounds": ("val.csv", lambda old: old + b"z,1e999,red,no\nz,-1e308,red,no\n"),
        "carriage returns alone": ("val.csv", lambda old: old.replace(b"\n", b"\r")),
        "UTF-16": ("val.csv", lambda old: old.decode().encode("utf-16")),
        "UTF-32": ("val.csv", lambda old: old.decode().encode("utf-32")),
        "a gzip file that was cut": ("val.csv.gz", cut),
        "a garbled gzip file": ("val.csv.gz", garbled),
        "a gzip file of nothing": ("val.csv.gz", b""),
        "a gzip header alone": ("val.csv.gz", b"\x1f\x8b\x08\0\0\0\0\0\0\xff"),
        "a gz bomb": ("val.csv.gz", bomb),
        "text named .gz": ("val.csv.gz", lambda old: old),
        "a Parquet mark alone": ("val.parquet", b"PAR1PAR1"),
        "a Parquet file of noise": ("val.parquet", b"PAR1" + bytes(range(256)) * 10 + b"\xff\0\0\0PAR1"),
        "text named .parquet": ("val.parquet", lambda old: old),
        "an unknown ending": ("val.xyz", lambda old: old),
        "no ending": ("val", lambda old: old),
        "JSON named .csv": ("val.csv", b'{"a": [1, 2]}'),
        "a pickle": (
            "val.csv",
            b"\x80\x04\x8c\x02os\x94\x8c\x06system\x94\x93\x94\x8c\x02id\x94\x85\x94R\x94.",
        ),
    }
    for name, (file, data) in cases.items():
        given = tuple(file if each == "val.csv" else each for each in FIT)
        yield Attack("files", f"{name} to validate on", (given,), harm=content(data, file))
        given = tuple(file if each == "train.csv" else each for each in FIT)
        yield Attack("files", f"{name} to train on", (given,), harm=content(data, file))
        predicted = tuple(file if each == "new.csv" else each for each in PREDICT)
        yield Attack("files", f"{name} to predict", (predicted,), harm=content(data, file))
    special = {
        "a folder": lambda place: (place / "odd.csv").mkdir(),
        "a link to nothing": lambda place: (place / "odd.csv").symlink_to("nowhere"),
        "a link to itself": lambda place: (place / "odd.csv").symlink_to("odd.csv"),
        "a link to /dev/null": lambda place: (place / "odd.csv").symlink_to("/dev/null"),
        "a link to /dev/full": lambda place: (place / "odd.csv").symlink_to("/dev/full"),
        "nothing": None,
    }
    for name, harm in special.items():
        for option in ("--val", "--test", "--target", "--init"):
            yield Attack(
                "files", f"{name} for {option}", ((*FIT, option, "odd.csv"),), harm=harm, must="refuse"
            )
        yield Attack(
            "files",
            f"{name} as a model",
            (("predict", "odd.csv", "new.csv", "-o", "p.csv"),),
            harm=harm,
            must="refuse",
        )
        yield Attack("files", f"{name} as a study", (("show", "odd.csv"),), harm=harm, must="refuse")


# ------------------------------------------------------------------------------------------------ URLs


def urls(draw: random.Random) -> Iterator[Attack]:
    """URLs that are none, lead nowhere, or hold a secret."""
    found = [
        f"postgres://me:{SECRET}@127.0.0.1:1/base", f"postgresql://me:{SECRET}@127.0.0.1:1/base",
        f"postgresql://127.0.0.1:1/base?password={SECRET}", f"postgresql://127.0.0.1:1/b?sslpassword={SECRET}",
        f"mysql://me:{SECRET}@h/b", f"oracle://me:{SECRET}@h/b", f"nonsense://me:{SECRET}@h/b",
        f"postgresql+psycopg://me:{SECRET}@127.0.0.1:port/base", f"postgresql://me:{SECRET}@127.0.0.1:99999/b",
        f"postgresql://me:p@ss{SECRET}@127.0.0.1:1/base", f"postgresql://me:{SECRET}@[::1", "postgresql://",
        f"postgresql://me:{SECRET}/x@127.0.0.1:1/base", f"POSTGRES://me:{SECRET}@127.0.0.1:1/b",
        f"sqlite:///none/x.db?password={SECRET}", "sqlite://", "sqlite:///", "sqlite:///:memory:", ":memory:",
        "file:study.db", "http://127.0.0.1:1/x", "://", "a://", "postgresql://127.0.0.1:-1/b", "sqlite:////",
        f"postgresql://u:{SECRET}@127.0.0.1:1/b?connect_timeout=x", "postgresql://\udcff@127.0.0.1:1/b",
        f"s3://key:{SECRET}@bucket/x", f"me:{SECRET}@h/b", f"me:{SECRET}@127.0.0.1:1/base?sslmode=x", f"postgresql://me:{SECRET}@127.0.0.1:1/b#fragment",
        f"postgresql://me:%{SECRET}@127.0.0.1:1/b",
    ]  # fmt: skip
    for url in found:
        shown = ascii(url.replace(SECRET, "…"))
        for words in (("list", url), ("show", url), ("resume", url), (*FIT, "--storage", url)):
            # A colon may stand in a file's name.
            must = "answer" if url == "file:study.db" else "refuse"
            yield Attack("URLs", f"{words[0]} {shown}", (words,), must=must)


# -------------------------------------------------------------------------------------- damaged folders


def edits(content: Any, draw: random.Random, depth: int = 3) -> list[tuple[str, Callable[[Any], None]]]:
    """Ways to spoil a JSON document: each value of it gone, or of another kind."""
    found: list[tuple[str, Callable[[Any], None]]] = []

    def visit(value: Any, path: tuple[Any, ...]) -> None:
        if path:
            others = [None, "text", -1, 1.5, 2**70, [], {}, True, [None], {"a": {}}, "", [[1]], float("nan")]
            for other in ["gone", *draw.sample(others, 4)]:

                def change(document: Any, path: tuple[Any, ...] = path, other: Any = other) -> None:
                    for key in path[:-1]:
                        document = document[key]
                    if other == "gone":
                        del document[path[-1]]
                    else:
                        document[path[-1]] = other

                found.append((f"{'.'.join(map(str, path))}: {str(other)[:20]}", change))
        if len(path) < depth:
            for key in (
                list(value)
                if isinstance(value, dict)
                else range(len(value))
                if isinstance(value, list)
                else ()
            ):
                visit(value[key], (*path, key))

    visit(content, ())
    return found


def digest_anew(model: Path) -> None:
    """The digests of a model's files as they are now: an attacker can compute them too."""
    about = json.loads((model / "model.json").read_text())
    for name in about["digests"]:
        about["digests"][name] = f"sha256:{sha256((model / name).read_bytes()).hexdigest()}"
    (model / "model.json").write_text(json.dumps(about))


def spoil(file: str, change: Callable[[Any], None]) -> Callable[[Path], None]:
    def harm(place: Path) -> None:
        document = json.loads((place / file).read_text())
        change(document)
        (place / file).write_text(json.dumps(document))
        if file != "model/model.json":
            digest_anew(place / "model")

    return harm


def folders(draw: random.Random, base: Path) -> Iterator[Attack]:
    """Folders of models whose files were edited, cut, swapped or retyped."""
    used = ("predict", "model", "new.csv", "-o", "p.csv"), ("show", "model"), ("export", "model")
    for file, most in (("model/model.json", 130), ("model/preprocessing/preprocessing.json", 90)):
        found = edits(json.loads((base / file).read_text()), draw)
        for name, change in draw.sample(found, min(most, len(found))):
            yield Attack("damaged models", f"{Path(file).name} {name}", used, harm=spoil(file, change))
        texts = {
            "empty": b"", "no JSON": b"{", "a list": b"[]", "null": b"null", "a number": b"1e999",
            "NaN": b"NaN",
            "nested 100,000 deep": b"[" * 100_000, "not UTF-8": b'{"a": "\xff"}', "a text": b'"x"',
            "half a character": b'{"format": 1, "model": "\\udcff"}', "a BOM": b"\xef\xbb\xbf{}",
            "an endless number": b'{"format": ' + b"9" * 10_000 + b"}",
        }  # fmt: skip
        for name, data in texts.items():

            def replaced(place: Path, file: str = file, data: bytes = data) -> None:
                (place / file).write_bytes(data)
                if file != "model/model.json":
                    digest_anew(place / "model")

            yield Attack(
                "damaged models", f"{Path(file).name}: {name}", used[:1], harm=replaced, must="refuse"
            )

    def weights(
        change: Callable[[dict[str, Any], bytes], tuple[Any, bytes]], model: str
    ) -> Callable[[Path], None]:
        def harm(place: Path) -> None:
            file = place / model / "weights.safetensors"
            data = file.read_bytes()
            (length,) = struct.unpack("<Q", data[:8])
            header, body = change(json.loads(data[8 : 8 + length]), data[8 + length :])
            text = header if isinstance(header, bytes) else json.dumps(header).encode()
            file.chmod(0o644)
            file.write_bytes(struct.pack("<Q", len(text)) + text + body)
            digest_anew(place / model)

        return harm

    def each(**changes: Any) -> Callable[[dict[str, Any], bytes], tuple[Any, bytes]]:
        def change(header: dict[str, Any], body: bytes) -> tuple[Any, bytes]:
            return {k: v if k == "__metadata__" else {**v, **changes} for k, v in header.items()}, body

        return change

    ways: dict[str, Callable[[dict[str, Any], bytes], tuple[Any, bytes]]] = {
        "no arrays": lambda header, body: ({}, b""),
        "another type": each(dtype="I32"),
        "an unknown type": each(dtype="X9"),
        "a shape that does not fit": each(shape=[2**40]),
        "a shape of negative size": each(shape=[-1]),
        "places beyond the end": each(data_offsets=[0, 2**40]),
        "other names": lambda header, body: ({f"{k}x": v for k, v in header.items()}, body),
        "NaN": lambda header, body: (header, b"\xff" * len(body)),
        "zeros": lambda header, body: (header, b"\0" * len(body)),
        "a header that is no JSON": lambda header, body: (b"{" * 50, body),
        "a header that is a list": lambda header, body: (b"[]", body),
        "cut in half": lambda header, body: (header, body[: len(body) // 2]),
    }
    for model in ("model", "trees"):
        predict = ("predict", model, "new.csv", "-o", "p.csv")
        for name, way in ways.items():
            must = "answer" if name == "zeros" else "refuse"
            yield Attack(
                "damaged models",
                f"weights of {model}: {name}",
                (predict,),
                harm=weights(way, model),
                must=must,
            )
        for start in range(0, 3000, 150):

            def noise(header: dict[str, Any], body: bytes, start: int = start) -> tuple[Any, bytes]:
                spot = start % max(1, len(body))
                return header, body[:spot] + bytes(255 - each for each in body[spot : spot + 40]) + body[
                    spot + 40 :
                ]

            if model == "trees":
                yield Attack(
                    "damaged models",
                    f"weights of trees: noise at {start}",
                    (predict,),
                    harm=weights(noise, model),
                )

    def trees_cut(header: dict[str, Any], body: bytes, share: float) -> tuple[Any, bytes]:
        # The model of trees is one array of bytes: it is cut, and its header says so.
        kept, at = b"", 0
        new = {}
        for name, array in sorted((k, v) for k, v in header.items() if k != "__metadata__"):
            first, last = array["data_offsets"]
            part = body[first:last]
            if array["dtype"] == "U8":
                part = part[: int(len(part) * share)]
                array = {**array, "shape": [len(part)]}
            new[name] = {**array, "data_offsets": [at, at + len(part)]}
            kept, at = kept + part, at + len(part)
        return new, kept

    for share in (0.0, 0.05, 0.1, 0.25, 0.4, 0.5, 0.6, 0.75, 0.9, 0.99):
        change = weights(lambda h, b, share=share: trees_cut(h, b, share), "trees")
        predict = ("predict", "trees", "new.csv", "-o", "p.csv")
        must = "refuse" if share else "answer"  # a model of no trees is one
        yield Attack("damaged models", f"trees cut at {share:.0%}", (predict,), harm=change, must=must)

    def swapped(place: Path) -> None:
        shutil.copy(place / "trees/weights.safetensors", place / "model/weights.safetensors")

    def removed(name: str) -> Callable[[Path], None]:
        def harm(place: Path) -> None:
            target = place / "model" / name
            shutil.rmtree(target) if target.is_dir() else target.unlink()

        return harm

    yield Attack("damaged models", "weights of another model", used[:1], harm=swapped, must="refuse")
    for name in ("weights.safetensors", "model.json", "preprocessing"):
        yield Attack("damaged models", f"no {name}", used[:1], harm=removed(name), must="refuse")


def closed(base: sqlite3.Connection, place: Path) -> None:
    """Leave a study's file as a program that has ended does, without a journal."""
    base.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    base.close()
    for left in ("-wal", "-shm"):
        (place / f"model/study.db{left}").unlink(missing_ok=True)


def databases(draw: random.Random) -> Iterator[Attack]:
    """Studies whose file was cut, overwritten or edited, and files of other programs."""
    used = [
        ("show", "model", "--tree"),
        ("list", "model"),
        ("export", "model"),
        ("resume", "model", "--budget", "48"),
    ]

    def bytes_of(change: Callable[[bytes], bytes]) -> Callable[[Path], None]:
        return lambda place: (place / "model/study.db").write_bytes(
            change((place / "model/study.db").read_bytes())
        )

    for share in (0.0, 0.001, 0.01, 0.1, 0.3, 0.5, 0.7, 0.9, 0.97, 0.999):
        for words in used[::3]:
            yield Attack(
                "damaged studies", f"{words[0]}: cut at {share:.1%}", (words,), must="refuse",
                harm=bytes_of(lambda old, share=share: old[: int(len(old) * share)]),
            )  # fmt: skip
    for number in range(24):
        at = draw.random()

        def noisy(old: bytes, at: float = at) -> bytes:
            start = int(at * len(old))
            return old[:start] + bytes(255 - each for each in old[start : start + 64]) + old[start + 64 :]

        words = used[number % 4]
        yield Attack("damaged studies", f"{words[0]}: noise at {at:.2%}", (words,), harm=bytes_of(noisy))
    columns = {
        "studies": (
            "name", "status", "budget", "seed", "config", "data", "recipe", "rule", "best", "sizes", "notes",
            "models", "names", "search", "trainer", "engine", "key", "created",
        ),
        "nodes": (
            "path", "round", "position", "mixture", "steps", "phase", "status", "value", "standard_error",
            "seconds", "lr_scale",
        ),
        "predictions": ("dtype", "shape", "data"),
        "events": ("kind", "message", "at"),
    }  # fmt: skip
    values = [
        None,
        "",
        "x",
        -1,
        2**62,
        "{",
        "[]",
        "[1",
        b"\xff\xfe",
        "\x1b[31m",
        1e308,
        "null",
        '{"a": 1}',
        "[" * 5000,
    ]
    for name, fields in columns.items():
        for column in fields:
            for value in draw.sample(values, 4):

                def edit(place: Path, name: str = name, column: str = column, value: Any = value) -> None:
                    base = sqlite3.connect(place / "model/study.db")
                    has = [row[1] for row in base.execute(f"PRAGMA table_info({name})")]
                    if column in has:
                        try:
                            base.execute(f"UPDATE {name} SET {column} = ?", (value,))
                        except sqlite3.IntegrityError:  # the schema refuses it already
                            base.rollback()
                    base.commit()
                    closed(base, place)

                words = used[draw.choice((0, 0, 2, 3))]
                shown = ascii(value)[:20]
                # One that is found to be edited once it goes on writes down that it failed.
                yield Attack(
                    "damaged studies", f"{words[0]}: {name}.{column} = {shown}", (words,), harm=edit,
                    stays=words[0] == "resume",
                )  # fmt: skip
    for file in ("other.db", "text.db", "empty.db"):
        for words in (
            ("list", file), ("show", file), ("resume", file), ("export", file),
            ("delete", file, "x", "--yes"),
            ("copy", file, "x", "y"), (*FIT, "--storage", file, "--label", "none"),
        ):  # fmt: skip
            must = "answer" if file == "empty.db" and words[0] == "list" else "refuse"
            yield Attack("another program's files", f"{words[0]} {file}", (words,), must=must, reads=True)
    for file in ("other.db", "text.db"):
        yield Attack(
            "another program's files", f"fit into {file}", ((*FIT, "--storage", file),), must="refuse"
        )
    yield Attack("another program's files", "fit --out mine", ((*FIT[:-1], "mine"),), must="refuse")
    yield Attack(
        "another program's files",
        "resume --out mine",
        (("resume", "model", "--budget", "48", "--out", "mine"),),
        must="refuse",
    )
    yield Attack(
        "another program's files",
        "predict with mine",
        (("predict", "mine", "new.csv", "-o", "p.csv"),),
        must="refuse",
    )
    for name in ("model.json", "MODEL_CARD.md", "weights.safetensors", "verdict.json", "preprocessing"):

        def own(place: Path, name: str = name) -> None:
            (place / "new").mkdir()
            (place / "new" / name).write_text("of the user")

        yield Attack("another program's files", f"fit over {name}", (FIT,), harm=own, must="refuse")

        def linked(place: Path, name: str = name) -> None:
            (place / "new").mkdir()
            (place / "new" / name).symlink_to("../train.csv")

        yield Attack("another program's files", f"fit over a link {name}", (FIT,), harm=linked, must="refuse")

    def models_of_others(place: Path) -> None:
        (place / "new/study.db.checkpoints/fit").mkdir(parents=True)
        shutil.copy(place / "trees/weights.safetensors", place / "new/study.db.checkpoints/fit/0.safetensors")

    yield Attack(
        "another program's files", "fit over models of others", (FIT,), harm=models_of_others, must="refuse"
    )

    def led_astray(place: Path) -> None:
        models_of_others(place)
        base = sqlite3.connect(place / "model/study.db")
        base.execute("UPDATE studies SET models = ?", (str(place / "new/study.db.checkpoints"),))
        base.commit()
        closed(base, place)

    for words in (("resume", "model", "--budget", "48"), ("delete", "model", "fit", "--yes")):
        yield Attack(
            "another program's files", f"{words[0]} with models elsewhere", (words,), harm=led_astray,
            must="refuse",
        )  # fmt: skip


# --------------------------------------------------------------------------------------------- outputs


def outputs(draw: random.Random) -> Iterator[Attack]:
    """Files to write to that hold something else, or cannot be written."""
    places = [
        "model/study.db", "model/model.json", "model/weights.safetensors", "model/MODEL_CARD.md", "model",
        "model/preprocessing", "model/preprocessing/preprocessing.json", "none/x.csv", "", ".", "..", "/",
        "/dev/full", "new.csv", "model/study.db-wal", "model/study.db-shm", "trees/weights.safetensors",
        "model/study.db.checkpoints/fit/x.csv", "\udcff/x.csv", "x" * 300 + ".csv", "link.csv",
        "model/./study.db",
        "other.db/x.csv", "/proc/x.csv", "model/../model/model.json",
    ]  # fmt: skip

    def link(place: Path) -> None:
        (place / "link.csv").symlink_to("model/study.db")

    for target in places:
        sure = target not in ("new.csv", "model/study.db.checkpoints/fit/x.csv")
        for words in (PREDICT[:-1], ("export", "model", "-o"), ("export", "model", "--format", "onnx", "-o")):
            must = "refuse" if sure or words[0] == "predict" else "answer"
            name = f"{words[0]} {words[-2]} -o {ascii(target[:40])}"
            yield Attack("outputs", name, ((*words, target),), harm=link, must=must)
    for out in (
        "train.csv",
        "/dev/null",
        "/proc/none",
        "",
        "model",
        "x" * 300,
        "\udcff",
        "other.db/x",
        "/sys",
    ):
        yield Attack("outputs", f"fit --out {ascii(out[:30])}", ((*FIT[:-1], out),))


def terminals(draw: random.Random) -> Iterator[Attack]:
    """Terminals that are narrow, odd, full, or know few letters."""
    said = [
        ("--help",), ("fit", "--help"), ("show", "model", "--tree", "--verbose"), ("list", "model"), FIT,
        ("plan", *ROWS), ("fit", "none-such-名.csv", "--label", "é", "--out", "ñ"), ("theory",),
        ("show", "model", "--json"),
    ]  # fmt: skip
    for encoding in ("ascii", "cp1252", "latin-1", "utf-16", "cp437", "koi8-r"):
        for words in said:
            yield Attack(
                "terminals", f"{' '.join(words[:2])} in {encoding}", (words,), encoding=encoding,
                reads=words[0] not in ("fit",), must="answer",
            )  # fmt: skip
    settings = [
        {"COLUMNS": "1"}, {"COLUMNS": "0"}, {"COLUMNS": "-5"}, {"COLUMNS": "x"}, {"COLUMNS": "100000"},
        {"TERM": "dumb"}, {"TERM": ""}, {"NO_COLOR": "1"}, {"LINES": "0"}, {"LC_ALL": "none"}, {"TZ": "none"},
        {"HOME": "/none"}, {"TMPDIR": "/none"},
    ]  # fmt: skip
    for setting in settings:
        for words in (("--help",), ("show", "model", "--tree"), FIT):
            shown = " ".join(f"{key}={value}" for key, value in setting.items())
            yield Attack(
                "terminals",
                f"{words[0]} with {shown}",
                (words,),
                environment=setting,
                reads=words[0] != "fit",
            )


def all_commands(base: Path, seed: int = 27) -> list[Attack]:
    """The whole table; the folder's own files are what some of it is made of."""
    found: list[Attack] = []
    for number, part in enumerate(
        (options, configurations, names, files, urls, databases, outputs, terminals)
    ):
        found += part(random.Random(seed + number))
    return [*found, *folders(random.Random(seed - 1), base)]
