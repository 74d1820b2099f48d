"""Write the parts of the documentation that are generated from the code.

python docs/generate.py          write them
python docs/generate.py --check  exit with 1 where they are not up to date
"""

import json
import sys
from pathlib import Path
from typing import Any

from kutta.config import Config, Section
from kutta.ode.catalogue import gamma_table, method_table

ROOT = Path(__file__).parent.parent


def generated() -> dict[Path, str]:
    """Each file with generated parts, as it should be."""
    tables = {"methods": method_table(markdown=True), "gammas": gamma_table(markdown=True)}
    methods = ROOT / "docs" / "methods.md"
    text = methods.read_text(encoding="utf-8")
    for name, table in tables.items():
        text = between(text, name, table)
    return {ROOT / "docs" / "configuration.md": configuration(), methods: text}


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
