"""[model]: sizes and the numerical method."""

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any, Literal

from pydantic import Field, field_validator, model_validator

from kutta.config.mistakes import suggest
from kutta.config.section import Rate, Section, setting
from kutta.errors import InputError
from kutta.limits import DIGITS, FRACTION, INNER_WIDTH, LAYERS, POSITIONS, STAGES, WIDTH
from kutta.ode.gamma import GAMMAS, STARTS
from kutta.ode.methods import CUSTOM, METHODS, tableau_of
from kutta.ode.tableau import TABLEAUX, ButcherTableau

if TYPE_CHECKING:
    GammaName = StartName = str
else:  # the choices are the entries' names
    GammaName, StartName = Literal[*GAMMAS], Literal[*STARTS]


class TableauConfig(Section):
    """A custom Runge-Kutta method, for solver = "custom"."""

    a: list[list[Any]] = Field(
        description='rows below the diagonal, e.g. [["1/2"], [0, "3/4"]]', max_length=STAGES
    )
    b: list[Any] = Field(
        description='weights that add up to 1, e.g. ["2/9", "1/3", "4/9"]', max_length=STAGES
    )

    def method(self) -> ButcherTableau:
        """The method itself."""
        return ButcherTableau.own(self.a, self.b)

    def mistakes(self) -> Iterator[str]:
        for row in (*self.a, self.b):
            if len(row) > STAGES or any(_is_long(number) for number in row):
                yield f"a tableau has at most {STAGES} stages and numbers of {FRACTION} characters"
                return
        try:
            self.method()
        except InputError as error:
            sentence = str(error).removesuffix(".")
            yield sentence[0].lower() + sentence[1:]


class ModelConfig(Section):
    """Sizes and the numerical method."""

    d_model: int = setting(512, "width of the hidden states", ge=2, le=WIDTH)
    ffn: int = setting(2048, "inner width of the feed-forward sublayer", ge=1, le=INNER_WIDTH)
    heads: int = setting(8, "number of attention heads", ge=1, le=WIDTH)
    encoder_layers: int = setting(
        6, "number of encoder layers; 0 for a language model", ge=0, le=LAYERS
    )
    decoder_layers: int = setting(
        6, "number of decoder (or language model) layers", ge=1, le=LAYERS
    )
    solver: str = setting("rk2", "method of the encoder's (or language model's) blocks")
    gamma: GammaName = setting("tableau", "weights of the stages")
    gamma_start: StartName = setting("ones", "initial values of learned weights")
    share_gamma: bool = setting(False, "share learned weights between blocks")
    tableau: TableauConfig | None = setting(
        None, '[model.tableau] with a and b, for solver = "custom"'
    )
    field: Literal["san+ffn", "san/ffn", "san", "ffn", "macaron"] = setting(
        "san+ffn", "which sublayers a block integrates"
    )
    decoder_solver: str = setting("euler", "method of the decoder's blocks")
    decoder_gamma: GammaName = setting("tableau", "weights of the decoder's stages")
    replicate: Literal["paper", "release"] = setting(
        "paper", "F is the increment, or what the authors' release computes"
    )
    norm: Literal["pre", "post"] = setting(
        "pre", "LayerNorm inside F, or after each residual addition"
    )
    init: Literal["xavier", "depth-scaled", "admin"] = setting(
        "xavier", "initialisation of the layers"
    )
    share_layers: bool = setting(
        False, "one set of parameters for all layers (Universal Transformer)"
    )
    stage_parameters: Literal["shared", "separate"] = setting(
        "shared", "one set of parameters for all stages of a block, or one for each stage"
    )
    layer_drop: Rate = setting(0.0, "skip whole layers at random in training")
    tie_embeddings: bool = setting(
        True, "use the target embedding as the output layer; a language model's default is false"
    )
    relative_positions: int = setting(
        8, "clipping distance of relative positions; 0 for none", ge=0, le=POSITIONS
    )
    dropout: Rate = setting(0.1, "dropout after each sublayer and embedding")
    attention_dropout: Rate = setting(0.1, "dropout on attention weights")
    relu_dropout: Rate = setting(0.1, "dropout inside the feed-forward sublayer")

    @model_validator(mode="before")
    @classmethod
    def _untied_language_model(cls, values: Any) -> Any:
        """A language model has a separate output layer by default."""
        settings: Any = values
        if isinstance(values, dict) and settings.get("encoder_layers") == 0:
            return {"tie_embeddings": False} | settings
        return settings

    @field_validator("solver", "decoder_solver")
    @classmethod
    def _known_method(cls, name: str) -> str:
        if name not in METHODS:
            raise ValueError(f"there is no method {name!r}{suggest(name, list(METHODS))}")
        return name

    def own_tableau(self) -> ButcherTableau | None:
        """The tableau that these settings bring along, for the method "custom"."""
        return self.tableau and self.tableau.method()

    def mistakes(self) -> Iterator[str]:
        own = self.own_tableau()
        sides = ("", self.solver, self.gamma), ("decoder_", self.decoder_solver, self.decoder_gamma)
        names, gammas = {name for _, name, _ in sides}, {gamma for *_, gamma in sides}
        history = ", ".join(sorted(name for name in names if METHODS[name].looks_back))
        release, post = self.replicate == "release", self.norm == "post"
        if self.d_model % self.heads:
            yield f"d_model = {self.d_model} is not a multiple of heads = {self.heads}; change one"
        if CUSTOM in names and own is None:
            yield "the method 'custom' needs a table [model.tableau] with a and b; add it"
        if CUSTOM not in names and own is not None:
            yield "[model.tableau] is for solver = 'custom'; set the solver, or remove the table"
        for side, method, gamma in sides:
            tableau, stages = tableau_of(method, own), GAMMAS[gamma].stages
            if gamma != "tableau" and tableau is None:
                yield (
                    f"{side}gamma = {gamma!r} needs a Runge-Kutta method, but {side}solver = "
                    f"{method!r} is not one; remove {side}gamma"
                )
            if stages is not None and tableau is not None and tableau.stages != stages:
                fitting = _listed(name for name, t in TABLEAUX.items() if t.stages == stages)
                yield (
                    f"{side}gamma = {gamma!r} weighs {stages} stages, but {method} has "
                    f"{tableau.stages}; choose a method with {stages}, such as {fitting}"
                )
        starting = [name for name, kind in GAMMAS.items() if kind.starts]
        if self.gamma_start != "ones" and gammas.isdisjoint(starting):
            yield f"gamma_start = {self.gamma_start!r} needs gamma = {_listed(map(repr, starting))}"
        learned = [name for name, kind in GAMMAS.items() if kind.learned]
        if self.share_gamma and gammas.isdisjoint(learned):
            yield f"share_gamma needs a gamma that is learned: {_listed(map(repr, learned))}"
        for wrong, needed in (
            (self.field != "san+ffn", f"field = 'san+ffn', not {self.field!r}"),
            (self.layer_drop > 0, f"layer_drop = 0, not {self.layer_drop}"),
        ):
            if wrong and history:
                yield f"{history} looks back over whole layers: set {needed}"
            if wrong and release:
                yield f"replicate = 'release' looks back over layers: set {needed}"
        others = ", ".join(sorted(name for name in names if tableau_of(name, own) is None))
        if release and others:
            needed = f"Runge-Kutta methods, but {others} is not one; choose rk2"
            yield f"replicate = 'release' needs {needed}"
        if release and post:
            yield "replicate = 'release' needs norm = 'pre'"
        if release and self.stage_parameters == "separate":
            needed = "stage_parameters = 'shared'"
            yield f"replicate = 'release' uses the same whole layer for all stages: set {needed}"
        if post and (names != {"euler"} or gammas != {"tableau"}):
            yield (
                "norm = 'post' is not a step of an ODE: set solver and decoder_solver to 'euler', "
                "and remove the gammas"
            )
        if self.init == "admin" and not post:
            yield "init = 'admin' sets the weights of post-norm residuals: set norm = 'post'"


def _is_long(number: Any) -> bool:
    """Whether a number of a tableau has too many digits to compute with."""
    return abs(number) >= 10**DIGITS if isinstance(number, int) else len(str(number)) > FRACTION


def _listed(names: Iterable[str]) -> str:
    """ "a, b or c"."""
    *others, last = [*names] or ["none"]
    return f"{', '.join(others)} or {last}" if others else last
