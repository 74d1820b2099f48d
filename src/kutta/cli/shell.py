"""The options that install completion for the shell; complete.py says what is suggested.

typer writes the scripts. Its script for zsh only defines a function when zsh reads it, which is at
the first Tab, so that this Tab would do nothing.
"""

from typing import Annotated, Any

import typer
from typer import completion

from kutta.errors import InputError
from kutta.files import write_text

_typer: Any = completion  # its functions are not declared as public
_typer.completion_init()

_SHELLS = ("bash", "zsh", "fish")
_FIRST_TAB = '[[ $zsh_eval_context[-1] == loadautofunc ]] && _kutta_completion "$@"\n'


def _shell() -> str:
    """The shell that kutta was called from."""
    name: str | None = _typer._get_shell_name()
    if name not in _SHELLS:
        raise InputError(
            f"There is no completion for {name or 'this shell'}; call kutta from one of "
            f"{', '.join(_SHELLS)}."
        )
    return name


def _install(asked: bool) -> None:
    if not asked:
        return
    shell, path = _typer.install(_shell(), "kutta")
    if shell == "zsh":
        write_text(path, f"{path.read_text(encoding='utf-8')}\n\n{_FIRST_TAB}")
    typer.echo(f"{shell} completion installed in {path}; it works in new terminals.")
    raise typer.Exit


def _show(asked: bool) -> None:
    if not asked:
        return
    script = _typer.get_completion_script(
        prog_name="kutta", complete_var="_KUTTA_COMPLETE", shell=_shell()
    )
    typer.echo(script)
    raise typer.Exit


InstallCompletion = Annotated[
    bool,
    typer.Option(
        "--install-completion",
        callback=_install,
        is_eager=True,
        help="Install completion for the current shell (bash, zsh or fish) and exit.",
    ),
]
ShowCompletion = Annotated[
    bool,
    typer.Option(
        "--show-completion",
        callback=_show,
        is_eager=True,
        help="Show the completion script for the current shell and exit.",
    ),
]
