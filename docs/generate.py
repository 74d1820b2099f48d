"""Write the parts of the documentation that are generated from the code.

python docs/generate.py          write them
python docs/generate.py --check  exit with 1 where they are not up to date
"""

import json
import runpy
import sys
from enum import Enum
from inspect import cleandoc
from pathlib import Path
from typing import Any

import typer

from kutta.cli import app
from kutta.config import Config, Section
from kutta.ode.catalogue import gamma_table, method_table

ROOT = Path(__file__).parent.parent
GALLERY = ROOT / "docs" / "gallery.py"
TRIED = ROOT / "docs" / "tried.py"
SMALL = ROOT / "experiments" / "results" / "small-corpus"


def generated() -> dict[Path, str]:
    """Each file with generated parts, as it should be."""
    parts = {
        "methods.md": {
            "methods": method_table(markdown=True),
            "gammas": gamma_table(markdown=True),
        },
        "commands.md": {"overview": overview(), "commands": commands()},
        "small.md": {"runs": small_runs()},
        "gallery.md": {"gallery": runpy.run_path(str(GALLERY))["gallery"]()},
        "reliability.md": runpy.run_path(str(TRIED))["tables"](),
    }
    pages = {ROOT / "docs" / "configuration.md": configuration()}
    for file, bodies in parts.items():
        path = ROOT / "docs" / file
        text = path.read_text(encoding="utf-8")
        for name, body in bodies.items():
            text = between(text, name, body)
        pages[path] = text
    return pages


def between(text: str, name: str, body: str) -> str:
    """`text` with what stands between the marks of `name` replaced by `body`."""
    start, end = f"<!-- {name} -->\n", f"\n<!-- /{name} -->"
    head, opened, rest = text.partition(start)
    _, closed, tail = rest.partition(end)
    if not (opened and closed):
        raise ValueError(f"the marks {start.strip()} and {end.strip()} are not in place")
    return head + start + body + end + tail


def configuration() -> str:
    """The page of all settings."""
    lines = [
        "# Settings",
        "",
        "A config is a TOML file. `--set section.key=value` changes a setting for one command. An",
        "unknown name is an error, and the message suggests the nearest one. `kutta info CONFIG",
        "--resolved` prints every setting with its origin.",
        "",
        "`run` is the run directory. The default is `runs/NAME` for a file `NAME.toml`.",
        "",
        "`extends` names another config, by path or as a [preset](presets.md). All settings except",
        "`run` are taken from it. The file replaces those that it names:",
        "",
        "```toml",
        'extends = "wmt14-en-de-base"',
        "",
        "[model]",
        "encoder_layers = 12",
        "```",
    ]
    for name, info in Config.model_fields.items():
        section = info.annotation
        if isinstance(section, type) and issubclass(section, Section):
            lines += ["", f"## [{name}]", "", (section.__doc__ or "").strip(), ""]
            lines += ["| setting | default | meaning |", "|---|---|---|", *rows(section)]
    return "\n".join(lines) + "\n"


def rows(section: type[Section]) -> list[str]:
    """One row per setting of a section."""
    return [
        f"| `{key}` | {default(info)} | {info.description}{choices(info.annotation)} |"
        for key, info in section.model_fields.items()
    ]


def default(info: Any) -> str:
    """The default as TOML writes it."""
    if info.is_required():
        return "required"
    if info.default is None and info.default_factory is None:
        return "none"
    return f"`{json.dumps(info.get_default(call_default_factory=True))}`"


def choices(annotation: Any) -> str:
    """The words to choose from, where there are only a few."""
    words = getattr(annotation, "__args__", ())
    if words and all(isinstance(word, str) for word in words):
        return ": " + ", ".join(f"`{word}`" for word in words)
    return ""


def all_commands() -> dict[str, Any]:
    """Every command by its full name, in the order of `kutta --help`; typer's own objects."""
    found: dict[str, Any] = {}
    for name, command in vars(typer.main.get_command(app))["commands"].items():
        inside = getattr(command, "commands", {"": command})
        found |= {f"kutta {name} {sub}".rstrip(): one for sub, one in inside.items()}
    return found


def overview() -> str:
    """The table of all commands with the first sentence of their help."""
    rows = [
        f"| [`{name}`](#{name.replace(' ', '-')}) | {command.help.split(chr(10))[0]} |"
        for name, command in all_commands().items()
    ]
    return "\n".join(["| command | what it does |", "|---|---|", *rows])


def commands() -> str:
    """A section for every command: usage, help, arguments and options."""
    return "\n\n".join(section(name, command) for name, command in all_commands().items())


def section(name: str, command: Any) -> str:
    """One command as Markdown."""
    arguments = [p for p in command.params if p.param_type_name == "argument"]
    options = [p for p in command.params if p.param_type_name == "option"]
    usage = [name, *map(written_argument, arguments), *(["[OPTIONS]"] if options else [])]
    lines = [f"## {name}", "", f"    {' '.join(usage)}", "", cleandoc(command.help)]
    if command.params:
        lines += ["", "| argument or option | default | meaning |", "|---|---|---|"]
        lines += [command_row(p.metavar, p) for p in arguments]
        lines += [command_row(written_option(p), p) for p in options]
    return "\n".join(lines)


def command_row(name: str, parameter: Any) -> str:
    """The row of an argument or option; a pipe in a cell is escaped."""
    cells = (f"`{name}`", shown_default(parameter), parameter.help)
    return f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in cells)} |"


def written_argument(argument: Any) -> str:
    """An argument of the usage line: [TEST ...] may be left out or repeated."""
    text = argument.metavar + (" ..." if argument.nargs == -1 else "")
    return text if argument.required else f"[{text}]"


def written_option(option: Any) -> str:
    """An option with the name of its value, or the words to choose from."""
    words = type(option.default) if isinstance(option.default, Enum) else ()
    value = option.metavar or "|".join(word.value for word in words)
    names = "` `".join([*option.opts, *option.secondary_opts])
    return names if option.is_flag else f"{names} {value}"


def shown_default(parameter: Any) -> str:
    """The default as the help shows it."""
    if parameter.required:
        return "required"
    if isinstance(parameter.show_default, str):
        return parameter.show_default
    if parameter.default is None or parameter.default is False or parameter.default == "":
        return ""
    return f"`{getattr(parameter.default, 'value', parameter.default)}`"


def small_runs() -> str:
    """The table of the kept runs on small corpora, the smallest first."""
    folders = [path.parent for path in SMALL.glob("*/scores.json")]
    rows = [small_row(folder) for folder in sorted(folders, key=lambda path: int(path.name))]
    head = (
        *("pairs", "vocabulary", "d, ffn, heads", "layers", "dropout", "tokens per update"),
        *("updates", "minutes on two cores", "sacreBLEU", "chrF"),
    )
    lines = [head, ["---:"] * len(head), *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def small_row(folder: Path) -> list[str]:
    """One run: its sizes, its updates, the time they take, and its scores on the test set."""
    config = json.loads((folder / "config.json").read_text(encoding="utf-8"))
    data, model, train = config["data"], config["model"], config["train"]
    lines = (folder / "metrics.jsonl").read_text(encoding="utf-8").splitlines()
    records = [record for record in map(json.loads, lines) if record["kind"] == "train"]
    tokens = sum(record["tokens"] for record in records)
    tested = json.loads((folder / "scores.json").read_text(encoding="utf-8"))[0]["scores"]
    scores = {score["name"]: score["value"] for score in tested}
    return [
        f"{int(folder.name):,}",
        f"{data['vocab_size']:,}",
        f"{model['d_model']}, {model['ffn']}, {model['heads']}",
        f"{model['encoder_layers']}-{model['decoder_layers']}",
        f"{model['dropout']}",
        f"{train['batch_tokens'] * train['accumulate']:,}",
        f"{max(record['step'] for record in records):,}",
        small_minutes(folder, tokens),
        f"{scores['sacreBLEU']:.1f}",
        f"{scores['chrF2']:.1f}",
    ]


def small_minutes(folder: Path, tokens: int) -> str:
    """The minutes for so many target tokens at the best rate measured for two cores."""
    if not (file := folder / "speed.json").is_file():
        return "not measured"
    rates = json.loads(file.read_text(encoding="utf-8"))["tokens_per_second"]
    return f"{tokens / max(rates) / 60:.0f}"


def main() -> None:
    stale = [p for p, text in generated().items() if not p.is_file() or p.read_text() != text]
    if "--check" in sys.argv:
        for path in stale:
            print(f"{path.relative_to(ROOT)} is not up to date; run python docs/generate.py")
        sys.exit(bool(stale))
    for path, text in generated().items():
        path.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
