"""The sections of a config: every setting with its type, its default and what it means."""

from collections.abc import Iterator
from typing import Annotated, Any, Literal, cast

from pydantic import BaseModel, ConfigDict, Field, field_validator, model_validator

from kutta.errors import InputError
from kutta.mistakes import suggest

Decay = Annotated[float, Field(ge=0.0, lt=1.0)]
Gamma = Literal["tableau", "ones", "learned", "gated", "ema"]


class Section(BaseModel):
    """A group of settings: unknown names are errors, values cannot change after loading."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True, allow_inf_nan=False)


class DataConfig(Section):
    """Where the text is and how it is split into tokens."""

    dir: str = Field(description="folder of the text files")
    source: str = Field(
        default="",
        description="source language: the ending of the source files; none for a language model",
    )
    target: str = Field(description="target language: the ending of the target files")
    train: str = Field(
        default="train", description="name of the training files, or a .tsv of pairs"
    )
    valid: str = Field(
        default="valid", description="name of the validation files, or a .tsv of pairs"
    )
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


class TableauConfig(Section):
    """A Runge-Kutta method of one's own, for solver = "custom"."""

    a: list[list[Any]] = Field(description='rows below the diagonal, e.g. [["1/2"], [0, "3/4"]]')
    b: list[Any] = Field(description='weights that add up to 1, e.g. ["2/9", "1/3", "4/9"]')

    @model_validator(mode="after")
    def _is_consistent(self) -> "TableauConfig":
        from kutta.ode import ButcherTableau  # here, so that reading settings does not load torch

        try:
            ButcherTableau.own(self.a, self.b)
        except InputError as error:
            raise ValueError(str(error).removesuffix(".")) from None
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

    @model_validator(mode="after")
    def _fits(self) -> "ModelConfig":
        for wrong, sentence in self._mistakes():
            if wrong:
                raise ValueError(sentence)
        return self

    def _mistakes(self) -> Iterator[tuple[bool, str]]:
        """Settings that do not go together, each with the sentence to say."""
        from kutta.ode import HISTORY_METHODS, ButcherTableau, stages_of

        own = ButcherTableau.own(self.tableau.a, self.tableau.b) if self.tableau else None
        methods = (self.solver, self.gamma), (self.decoder_solver, self.decoder_gamma)
        names, gammas = {name for name, _ in methods}, {gamma for _, gamma in methods}
        history = sorted(names & HISTORY_METHODS)
        yield (
            bool(self.d_model % self.heads),
            f"d_model = {self.d_model} is not a multiple of heads = {self.heads}",
        )
        yield (
            ("custom" in names) != (own is not None),
            "solver = 'custom' and a table [model.tableau] with a and b go together",
        )
        for method, gamma in methods:
            stages = stages_of(method, own)
            yield (
                gamma != "tableau" and stages is None,
                f"gamma = {gamma!r} needs a Runge-Kutta method; {method} has no gamma",
            )
            yield (
                gamma == "gated" and stages != 2,
                f"gamma = 'gated' weighs two stages against each other, but {method} has {stages}",
            )
        yield (
            bool(history) and self.field != "san+ffn",
            f"{''.join(history[:1])} looks back over whole layers, so field must be 'san+ffn', "
            f"not {self.field!r}",
        )
        yield (
            bool(history) and self.layer_drop > 0,
            f"{''.join(history[:1])} looks back over every layer, so layer_drop must be 0",
        )
        yield (
            self.gamma_start != "ones" and "learned" not in gammas,
            f"gamma_start = {self.gamma_start!r} needs gamma = 'learned'",
        )
        yield (
            self.share_gamma and not gammas & {"learned", "gated", "ema"},
            "share_gamma needs a gamma that is learned: 'learned', 'gated' or 'ema'",
        )
        yield (
            self.replicate == "release" and (bool(history) or "polynet" in names),
            "replicate = 'release' needs Runge-Kutta methods in encoder and decoder",
        )
        yield (
            self.replicate == "release" and self.field != "san+ffn",
            f"replicate = 'release' takes whole layers, so field must be 'san+ffn', "
            f"not {self.field!r}",
        )
        yield (
            self.replicate == "release" and (self.norm != "pre" or self.layer_drop > 0),
            "replicate = 'release' needs norm = 'pre' and layer_drop = 0",
        )
        yield (
            self.norm == "post" and (names != {"euler"} or gammas != {"tableau"}),
            "norm = 'post' is not a step of an ODE; it needs euler, gamma 'tableau', in encoder "
            "and decoder",
        )
        yield (
            self.init == "admin" and self.norm != "post",
            "init = 'admin' sets the weight of post-norm residuals; it needs norm = 'post'",
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
        return tuple(cast(list[Any], value)) if isinstance(value, list) else value

    @model_validator(mode="after")
    def _fits(self) -> "TrainConfig":
        if self.best == "bleu" and not self.valid_bleu:
            raise ValueError("best = 'bleu' needs valid_bleu = true")
        return self


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

    @model_validator(mode="after")
    def _fits(self) -> "DecodeConfig":
        if self.max_length and self.min_length > self.max_length:
            raise ValueError(
                f"min_length = {self.min_length} is more than max_length = {self.max_length}"
            )
        return self
