"""[model]: sizes and the numerical method."""

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any, Literal, Self, cast

from pydantic import Field, field_validator, model_validator

from kutta.config.mistakes import suggest
from kutta.config.section import Section
from kutta.errors import InputError
from kutta.ode.gamma import GAMMAS, STARTS
from kutta.ode.methods import CUSTOM, METHODS, tableau_of
from kutta.ode.tableau import TABLEAUX, ButcherTableau

if TYPE_CHECKING:
    GammaName = StartName = str
else:  # the choices are the entries' names
    GammaName, StartName = Literal[*GAMMAS], Literal[*STARTS]


class TableauConfig(Section):
    """A custom Runge-Kutta method, for solver = "custom"."""

    a: list[list[Any]] = Field(description='rows below the diagonal, e.g. [["1/2"], [0, "3/4"]]')
    b: list[Any] = Field(description='weights that add up to 1, e.g. ["2/9", "1/3", "4/9"]')

    @model_validator(mode="after")
    def _is_consistent(self) -> Self:
        try:
            self.method()
        except InputError as error:
            sentence = str(error).removesuffix(".")
            raise ValueError(sentence[0].lower() + sentence[1:]) from None
        return self

    def method(self) -> ButcherTableau:
        """The method itself."""
        return ButcherTableau.own(self.a, self.b)


class ModelConfig(Section):
    """Sizes and the numerical method."""

    d_model: int = Field(default=512, ge=2, description="width of the hidden states")
    ffn: int = Field(default=2048, ge=1, description="inner width of the feed-forward sublayer")
    heads: int = Field(default=8, ge=1, description="number of attention heads")
    encoder_layers: int = Field(
        default=6, ge=0, description="number of encoder layers; 0 for a language model"
    )
    decoder_layers: int = Field(
        default=6, ge=1, description="number of decoder (or language model) layers"
    )
    solver: str = Field(
        default="rk2", description="method of the encoder's (or language model's) blocks"
    )
    gamma: GammaName = Field(default="tableau", description="weights of the stages")
    gamma_start: StartName = Field(default="ones", description="initial values of learned weights")
    share_gamma: bool = Field(default=False, description="share learned weights between blocks")
    tableau: TableauConfig | None = Field(
        default=None, description='[model.tableau] with a and b, for solver = "custom"'
    )
    field: Literal["san+ffn", "san/ffn", "san", "ffn", "macaron"] = Field(
        default="san+ffn", description="which sublayers a block integrates"
    )
    decoder_solver: str = Field(default="euler", description="method of the decoder's blocks")
    decoder_gamma: GammaName = Field(
        default="tableau", description="weights of the decoder's stages"
    )
    replicate: Literal["paper", "release"] = Field(
        default="paper", description="F is the increment, or what the authors' release computes"
    )
    norm: Literal["pre", "post"] = Field(
        default="pre", description="LayerNorm inside F, or after each residual addition"
    )
    init: Literal["xavier", "depth-scaled", "admin"] = Field(
        default="xavier", description="initialisation of the layers"
    )
    share_layers: bool = Field(
        default=False, description="one set of parameters for all layers (Universal Transformer)"
    )
    stage_parameters: Literal["shared", "separate"] = Field(
        default="shared",
        description="one set of parameters for all stages of a block, or one for each stage",
    )
    layer_drop: float = Field(
        default=0.0, ge=0.0, lt=1.0, description="skip whole layers at random in training"
    )
    tie_embeddings: bool = Field(
        default=True,
        description="use the target embedding as the output layer; a language model's default is "
        "false",
    )
    relative_positions: int = Field(
        default=8, ge=0, description="clipping distance of relative positions; 0 for none"
    )
    dropout: float = Field(
        default=0.1, ge=0.0, lt=1.0, description="dropout after each sublayer and embedding"
    )
    attention_dropout: float = Field(
        default=0.1, ge=0.0, lt=1.0, description="dropout on attention weights"
    )
    relu_dropout: float = Field(
        default=0.1, ge=0.0, lt=1.0, description="dropout inside the feed-forward sublayer"
    )

    @model_validator(mode="before")
    @classmethod
    def _untied_language_model(cls, values: Any) -> Any:
        """A language model has a separate output layer by default."""
        if not isinstance(values, dict):
            return values
        settings = cast(dict[str, Any], values)
        language_model = settings.get("encoder_layers") == 0
        return {"tie_embeddings": False} | settings if language_model else settings

    @field_validator("solver", "decoder_solver")
    @classmethod
    def _known_method(cls, name: str) -> str:
        if name not in METHODS:
            raise ValueError(f"there is no method {name!r}{suggest(name, list(METHODS))}")
        return name

    def own_tableau(self) -> ButcherTableau | None:
        """The tableau that these settings bring along, for the method "custom"."""
        return self.tableau and self.tableau.method()

    def mistakes(self) -> Iterator[tuple[bool, str]]:
        own = self.own_tableau()
        sides = ("", self.solver, self.gamma), ("decoder_", self.decoder_solver, self.decoder_gamma)
        names, gammas = {name for _, name, _ in sides}, {gamma for *_, gamma in sides}
        history = ", ".join(sorted(name for name in names if METHODS[name].looks_back))
        release, post = self.replicate == "release", self.norm == "post"
        yield (
            bool(self.d_model % self.heads),
            f"d_model = {self.d_model} is not a multiple of heads = {self.heads}; change one",
        )
        yield (
            CUSTOM in names and own is None,
            "the method 'custom' needs a table [model.tableau] with a and b; add it",
        )
        yield (
            CUSTOM not in names and own is not None,
            "[model.tableau] is for solver = 'custom'; set the solver, or remove the table",
        )
        for side, method, gamma in sides:
            tableau, needed = tableau_of(method, own), GAMMAS[gamma].stages
            yield (
                gamma != "tableau" and tableau is None,
                f"{side}gamma = {gamma!r} needs a Runge-Kutta method, but {side}solver = "
                f"{method!r} is not one; remove {side}gamma",
            )
            yield (
                needed is not None and tableau is not None and tableau.stages != needed,
                f"{side}gamma = {gamma!r} weighs {needed} stages, but {method} has "
                f"{tableau and tableau.stages}; choose a method with {needed}, such as "
                f"{_listed(n for n, t in TABLEAUX.items() if t.stages == needed)}",
            )
        starting = [name for name, kind in GAMMAS.items() if kind.starts]
        learned = [name for name, kind in GAMMAS.items() if kind.learned]
        yield (
            self.gamma_start != "ones" and gammas.isdisjoint(starting),
            f"gamma_start = {self.gamma_start!r} needs gamma = {_listed(map(repr, starting))}",
        )
        yield (
            self.share_gamma and gammas.isdisjoint(learned),
            f"share_gamma needs a gamma that is learned: {_listed(map(repr, learned))}",
        )
        for wrong, needed in (
            (self.field != "san+ffn", f"field = 'san+ffn', not {self.field!r}"),
            (self.layer_drop > 0, f"layer_drop = 0, not {self.layer_drop}"),
        ):
            yield bool(history) and wrong, f"{history} looks back over whole layers: set {needed}"
            yield release and wrong, f"replicate = 'release' looks back over layers: set {needed}"
        others = ", ".join(sorted(name for name in names if tableau_of(name, own) is None))
        yield (
            release and bool(others),
            f"replicate = 'release' needs Runge-Kutta methods, but {others} is not one; choose rk2",
        )
        yield release and post, "replicate = 'release' needs norm = 'pre'"
        yield (
            release and self.stage_parameters == "separate",
            "replicate = 'release' uses the same whole layer for all stages: set "
            "stage_parameters = 'shared'",
        )
        yield (
            post and (names != {"euler"} or gammas != {"tableau"}),
            "norm = 'post' is not a step of an ODE: set solver and decoder_solver to 'euler', and "
            "remove the gammas",
        )
        yield (
            self.init == "admin" and not post,
            "init = 'admin' sets the weights of post-norm residuals: set norm = 'post'",
        )


def _listed(names: Iterable[str]) -> str:
    """ "a, b or c"."""
    *others, last = [*names] or ["none"]
    return f"{', '.join(others)} or {last}" if others else last
