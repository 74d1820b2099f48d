"""The sections of a config: every setting with its type, its default and what it means."""

from collections.abc import Iterator
from typing import Annotated, Any, Literal, Self, cast

from pydantic import BaseModel, ConfigDict, Field, field_validator, model_validator

from kutta.errors import InputError
from kutta.mistakes import suggest

Decay = Annotated[float, Field(ge=0.0, lt=1.0)]
Gamma = Literal["tableau", "ones", "learned", "gated", "ema"]


class Section(BaseModel):
    """A group of settings: unknown names are errors, values cannot change after loading."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True, allow_inf_nan=False)

    def mistakes(self) -> Iterator[tuple[bool, str]]:
        """Settings that do not go together, each with the sentence to say where they do not."""
        yield from ()

    @model_validator(mode="after")
    def _fits(self) -> Self:
        for wrong, sentence in self.mistakes():
            if wrong:
                raise ValueError(sentence)
        return self


class DataConfig(Section):
    """Where the text is and how it is split into tokens."""

    dir: str = Field(min_length=1, description="folder of the text files")
    source: str = Field(
        default="",
        description="source language: the ending of its files; none for a language model",
    )
    target: str = Field(min_length=1, description="target language: the ending of the target files")
    train: str = Field(default="train", description="name of the training files, or a .tsv")
    valid: str = Field(default="valid", description="name of the validation files, or a .tsv")
    test: list[str] = Field(default_factory=list[str], description="names of the test sets")
    tokenizer: Literal["bpe", "split"] = Field(
        default="bpe", description="learn BPE, or text is split"
    )
    vocab_size: int = Field(default=8000, ge=16, description="tokens of a learned BPE vocabulary")
    vocabulary: list[str] = Field(
        default_factory=list[str],
        description="split text: fairseq dict.txt in dir; two (source, target) unless shared",
    )
    shared_vocab: bool = Field(default=True, description="one vocabulary for both languages")
    bpe_dropout: float = Field(
        default=0.0, ge=0.0, lt=1.0, description="skip merges at random in training"
    )
    max_length: int = Field(default=256, ge=1, description="longest training sentence, in tokens")
    max_source: int = Field(
        default=0, ge=0, description="cut longer sources to so many tokens; 0 cuts none"
    )
    max_ratio: float = Field(
        default=9.0, ge=1.0, description="largest ratio of the two lengths in tokens"
    )

    def mistakes(self) -> Iterator[tuple[bool, str]]:
        yield (
            self.max_source > self.max_length,
            f"a source cut to max_source = {self.max_source} tokens is still longer than "
            f"max_length = {self.max_length}, so it is dropped; raise max_length",
        )
        yield (
            self.source == self.target and ".tsv" not in self.train,
            f"source and target are both {self.source!r}, one file for both sides; give the "
            "endings of two",
        )


class TableauConfig(Section):
    """A Runge-Kutta method of one's own, for solver = "custom"."""

    a: list[list[Any]] = Field(description='rows below the diagonal, e.g. [["1/2"], [0, "3/4"]]')
    b: list[Any] = Field(description='weights that add up to 1, e.g. ["2/9", "1/3", "4/9"]')

    @model_validator(mode="after")
    def _is_consistent(self) -> Self:
        from kutta.ode import ButcherTableau  # here, so that reading settings does not load torch

        try:
            ButcherTableau.own(self.a, self.b)
        except InputError as error:
            sentence = str(error).removesuffix(".")
            raise ValueError(sentence[0].lower() + sentence[1:]) from None
        return self


class ModelConfig(Section):
    """Sizes and the numerical method."""

    d_model: int = Field(default=512, ge=2, description="width of the states")
    ffn: int = Field(default=2048, ge=1, description="width inside the feed-forward sublayer")
    heads: int = Field(default=8, ge=1, description="attention heads")
    encoder_layers: int = Field(
        default=6, ge=0, description="encoder depth; 0 for a language model"
    )
    decoder_layers: int = Field(default=6, ge=1, description="decoder (or language model) depth")
    solver: str = Field(
        default="rk2", description="method of the encoder's (or language model's) blocks"
    )
    gamma: Gamma = Field(default="tableau", description="weights of the stages")
    gamma_start: Literal["ones", "tableau"] = Field(
        default="ones", description="where learned weights start"
    )
    share_gamma: bool = Field(default=False, description="all blocks learn the same weights")
    tableau: TableauConfig | None = Field(
        default=None, description='[model.tableau] with a and b, for solver = "custom"'
    )
    field: Literal["san+ffn", "san/ffn", "san", "ffn", "macaron"] = Field(
        default="san+ffn", description="which sublayers a block integrates"
    )
    decoder_solver: str = Field(default="euler", description="method of the decoder's blocks")
    decoder_gamma: Gamma = Field(default="tableau", description="weights of the decoder's stages")
    replicate: Literal["paper", "release"] = Field(
        default="paper", description="what F is: the increment, or as in the authors' release"
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
    layer_drop: float = Field(
        default=0.0, ge=0.0, lt=1.0, description="skip whole layers at random in training"
    )
    relative_positions: int = Field(default=8, ge=0, description="clip distance; 0 for none")
    dropout: float = Field(
        default=0.1, ge=0.0, lt=1.0, description="after each sublayer and embedding"
    )
    attention_dropout: float = Field(
        default=0.1, ge=0.0, lt=1.0, description="on attention weights"
    )
    relu_dropout: float = Field(default=0.1, ge=0.0, lt=1.0, description="inside the feed-forward")

    @field_validator("solver", "decoder_solver")
    @classmethod
    def _known_method(cls, name: str) -> str:
        from kutta.ode import METHODS

        if name not in METHODS:
            raise ValueError(f"no method is called {name!r}{suggest(name, METHODS)}")
        return name

    def mistakes(self) -> Iterator[tuple[bool, str]]:
        from kutta.ode import HISTORY_METHODS, ButcherTableau, stages_of

        own = ButcherTableau.own(self.tableau.a, self.tableau.b) if self.tableau else None
        sides = ("", self.solver, self.gamma), ("decoder_", self.decoder_solver, self.decoder_gamma)
        names, gammas = {name for _, name, _ in sides}, {gamma for *_, gamma in sides}
        history = ", ".join(sorted(names & HISTORY_METHODS))
        release, post = self.replicate == "release", self.norm == "post"
        yield (
            bool(self.d_model % self.heads),
            f"d_model = {self.d_model} is not a multiple of heads = {self.heads}; change one",
        )
        yield (
            "custom" in names and own is None,
            "the method 'custom' needs a table [model.tableau] with a and b; add it",
        )
        yield (
            "custom" not in names and own is not None,
            "[model.tableau] is for solver = 'custom'; set that, or leave the table out",
        )
        for side, method, gamma in sides:
            stages = stages_of(method, own)
            yield (
                gamma != "tableau" and stages is None,
                f"{side}gamma = {gamma!r} needs a Runge-Kutta method, and {side}solver = "
                f"{method!r} is none; leave {side}gamma out",
            )
            yield (
                gamma == "gated" and stages != 2,
                f"{side}gamma = 'gated' weighs two stages against each other, but {method} has "
                f"{stages}; take a method of two, such as rk2",
            )
        yield (
            self.gamma_start != "ones" and "learned" not in gammas,
            f"gamma_start = {self.gamma_start!r} needs gamma = 'learned'",
        )
        yield (
            self.share_gamma and not gammas & {"learned", "gated", "ema"},
            "share_gamma needs a gamma that is learned: 'learned', 'gated' or 'ema'",
        )
        for wrong, needed in (
            (self.field != "san+ffn", f"field = 'san+ffn', not {self.field!r}"),
            (self.layer_drop > 0, f"layer_drop = 0, not {self.layer_drop}"),
        ):
            yield bool(history) and wrong, f"{history} looks back over whole layers: set {needed}"
            yield release and wrong, f"replicate = 'release' looks back over layers: set {needed}"
        others = ", ".join(sorted(name for name in names if stages_of(name, own) is None))
        yield (
            release and bool(others),
            f"replicate = 'release' needs Runge-Kutta methods, and {others} is none; take rk2",
        )
        yield release and post, "replicate = 'release' needs norm = 'pre'"
        yield (
            post and (names != {"euler"} or gammas != {"tableau"}),
            "norm = 'post' is not a step of an ODE: set solver and decoder_solver to 'euler', and "
            "leave the gammas out",
        )
        yield (
            self.init == "admin" and not post,
            "init = 'admin' sets the weights of post-norm residuals: set norm = 'post'",
        )


class TrainConfig(Section):
    """How the parameters are found."""

    max_steps: int = Field(default=50_000, ge=1, description="updates in all")
    batch_tokens: int = Field(
        default=4096, ge=8, description="rows x longest side of a batch, at most"
    )
    accumulate: int = Field(default=1, ge=1, description="batches added up for one update")
    lr: float = Field(default=0.002, gt=0.0, description="peak learning rate")
    warmup: int = Field(default=4000, ge=1, description="steps of linear warm-up")
    warmup_from: float = Field(
        default=1e-7, ge=0.0, description="learning rate before the first step"
    )
    adam_betas: tuple[Decay, Decay] = Field(default=(0.9, 0.997), description="Adam's decay rates")
    adam_eps: float = Field(default=1e-8, gt=0.0, description="Adam's epsilon")
    clip_norm: float = Field(
        default=0.0, ge=0.0, description="largest gradient norm; 0 for no limit"
    )
    label_smoothing: float = Field(
        default=0.1, ge=0.0, lt=1.0, description="mass spread over all tokens"
    )
    precision: Literal["fp32", "bf16", "fp16"] = Field(default="fp32", description="arithmetic")
    device: str = Field(default="auto", description="auto, cpu, cuda, cuda:1, ...")
    threads: int = Field(default=0, ge=0, description="CPU threads; 0 leaves it to the machine")
    log_every: int = Field(default=50, ge=1, description="steps between lines of the log")
    save_every: int = Field(default=500, ge=1, description="steps between checkpoints")
    valid_every: int = Field(
        default=0, ge=0, description="steps between validations; 0: as save_every"
    )
    valid_bleu: bool = Field(default=True, description="translate the validation set and score it")
    patience: int = Field(
        default=0, ge=0, description="stop after so many validations without a new best"
    )
    best: Literal["loss", "bleu"] = Field(
        default="loss", description="what the best checkpoint is best at"
    )
    keep_last: int = Field(default=10, ge=1, description="checkpoints kept")
    max_bad_steps: int = Field(
        default=20, ge=1, description="steps with a non-finite loss before giving up"
    )
    tensorboard: bool = Field(default=True, description="write TensorBoard events to the run")
    seed: int = Field(default=1, ge=0, lt=1 << 63, description="everything random follows from it")
    grow_from: str = Field(
        default="",
        description="begin with the weights of this run, its layers copied to this depth",
    )

    @field_validator("adam_betas", mode="before")
    @classmethod
    def _pair(cls, value: Any) -> Any:
        pair = tuple(cast(list[Any], value)) if isinstance(value, list | tuple) else ()
        if len(pair) != 2:
            raise ValueError(f"{value!r} is not a pair of numbers; write e.g. [0.9, 0.98]")
        return pair

    def mistakes(self) -> Iterator[tuple[bool, str]]:
        yield self.best == "bleu" and not self.valid_bleu, "best = 'bleu' needs valid_bleu = true"


class DecodeConfig(Section):
    """How translations are searched for."""

    beam: int = Field(default=4, ge=1, description="hypotheses kept")
    length_penalty: float = Field(
        default=0.6, description="score = log-probability / length^penalty"
    )
    average: int = Field(
        default=5, ge=1, description="last checkpoints averaged into the final model"
    )
    min_length: int = Field(default=0, ge=0, description="shortest translation, in tokens")
    max_length: int = Field(default=0, ge=0, description="longest translation; 0: 2 x source + 20")
    no_repeat_ngram: int = Field(
        default=0, ge=0, description="no n-gram of this length twice in a translation; 0: allowed"
    )
    batch_tokens: int = Field(default=4096, ge=8, description="source tokens translated at once")

    def mistakes(self) -> Iterator[tuple[bool, str]]:
        yield (
            0 < self.max_length < self.min_length,
            f"min_length = {self.min_length} is more than max_length = {self.max_length}; lower it",
        )
