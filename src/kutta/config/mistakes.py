"""Overrides from the command line, and error messages for invalid settings."""

import difflib
import json
from collections.abc import Generator, Iterable, Sequence
from contextlib import contextmanager
from typing import Any, cast

from pydantic import ValidationError

from kutta.errors import InputError
from kutta.parsing import DocumentError, parse_toml

# What to do about a value, by pydantic's error type; {placeholders} are filled from its context.
_WAYS_OUT = {
    "bool_type": "write true or false",
    "int_type": "write an integer, without a point or an exponent",
    "float_type": "write a number",
    "finite_number": "write a finite number",
    "string_type": "write text, in quotes",
    "string_too_short": "it must not be empty",
    "string_too_long": "it has more than {max_length} characters",
    "too_long": "it may have at most {max_length} of them",
    "too_short": "it needs at least {min_length} of them",
    "list_type": 'write a list, with strings in quotes: ["a", "b"]',
    "model_type": "it is a section; write its settings below [{key}]",
    "literal_error": "choose {expected}",
    "greater_than": "it must be more than {gt:g}",
    "greater_than_equal": "it must be at least {ge:g}",
    "less_than": "it must be less than {lt:g}",
    "less_than_equal": "it must be at most {le:g}",
    "is_instance_of": "it must be a {class}, such as {class}()",
}

# Our settings, and their names in fairseq, Marian, OpenNMT, JoeyNMT and Hugging Face. Hyphens are
# written as underscores.
_ELSEWHERE = {
    "run": "save_dir output_dir model_dir save_model destdir checkpoint_dir",
    "data.dir": "data_dir data_path",
    "data.source": "src source_lang src_lang source_language",
    "data.target": "tgt trg target_lang tgt_lang trg_lang target_language",
    "data.train": "trainpref train_sets train_file train_data train_subset path_src path_tgt",
    "data.valid": "validpref valid_sets validation_file valid_data valid_subset dev",
    "data.test": "testpref test_sets test_file test_data gen_subset",
    "data.tokenizer": "bpe subword tokenizer_type tokenizer_name",
    "data.vocab_size": "dim_vocabs src_vocab_size tgt_vocab_size voc_limit nwordssrc nwordstgt",
    "data.vocabulary": "vocab vocabs src_vocab tgt_vocab srcdict tgtdict voc_file",
    "data.shared_vocab": "joined_dictionary share_vocab joint_vocab",
    "data.bpe_dropout": "sentencepiece_alphas",
    "data.max_length": "max_sent_length max_source_positions max_target_positions src_seq_length "
    "tgt_seq_length max_target_length max_seq_len max_seq_length max_position_embeddings",
    "data.max_source": "max_source_length src_seq_length_trunc truncate_source",
    "data.lowercased": "lowercase do_lower_case",
    "model.d_model": "hidden_size embedding_dim dim_emb dim_model rnn_size word_vec_size n_embd "
    "encoder_embed_dim decoder_embed_dim emb_size embed_dim hidden_dim",
    "model.ffn": "ff_size d_ff transformer_ff transformer_dim_ffn dim_feedforward encoder_ffn_dim "
    "decoder_ffn_dim encoder_ffn_embed_dim decoder_ffn_embed_dim intermediate_size feed_forward",
    "model.heads": "num_heads n_heads nhead transformer_heads encoder_attention_heads "
    "decoder_attention_heads num_attention_heads n_head",
    "model.encoder_layers": "layers depth num_layers enc_layers enc_depth num_encoder_layers "
    "n_layers num_hidden_layers n_layer",
    "model.decoder_layers": "dec_layers dec_depth num_decoder_layers",
    "model.solver": "method enc_calculate_num encoder_history_type",
    "model.norm": "encoder_normalize_before decoder_normalize_before layer_norm_position prenorm "
    "transformer_preprocess transformer_postprocess",
    "model.layer_drop": "encoder_layerdrop decoder_layerdrop layerdrop",
    "model.init": "initializer param_init param_init_glorot",
    "model.tie_embeddings": "share_all_embeddings share_decoder_input_output_embed tied_softmax "
    "tied_embeddings tied_embeddings_all share_decoder_embeddings share_embeddings "
    "tie_word_embeddings",
    "model.relative_positions": "max_relative_length max_relative_positions",
    "model.dropout": "transformer_dropout hidden_dropout_prob dropout_rate hidden_dropout",
    "model.attention_dropout": "transformer_dropout_attention attention_probs_dropout_prob",
    "model.relu_dropout": "activation_dropout transformer_dropout_ffn",
    "train.max_steps": "epochs max_epoch max_epochs max_update max_updates updates train_steps "
    "after after_epochs after_batches num_train_epochs num_epochs total_steps",
    "train.batch_tokens": "batch_size max_tokens mini_batch mini_batch_words mini_batch_fit "
    "max_sentences per_device_train_batch_size tokens_per_batch train_batch_size",
    "train.accumulate": "update_freq accum_count optimizer_delay batch_multiplier "
    "gradient_accumulation_steps grad_accum",
    "train.lr": "learning_rate learn_rate",
    "train.warmup": "warmup_updates warmup_steps lr_warmup learning_rate_warmup warmup_ratio",
    "train.warmup_from": "warmup_init_lr lr_warmup_start_rate",
    "train.adam_betas": "betas adam_beta1 adam_beta2",
    "train.adam_eps": "adam_epsilon eps epsilon",
    "train.clip_norm": "max_grad_norm clip_grad_norm gradient_clipping clip_grad_val",
    "train.label_smoothing": "label_smoothing_factor smoothing",
    "train.precision": "fp16 bf16 amp mixed_precision memory_efficient_fp16 dtype model_dtype",
    "train.recompute": "gradient_checkpointing checkpoint_activations",
    "train.compile": "torch_compile",
    "train.device": "devices use_cuda gpu use_gpu no_cuda use_cpu cpu",
    "train.workers": "gpus num_gpus world_size gpu_ranks distributed_world_size n_gpu",
    "train.threads": "cpu_threads num_threads intra_threads",
    "train.shard": "fsdp ddp_backend deepspeed",
    "train.log_every": "log_interval logging_freq logging_steps report_every disp_freq",
    "train.save_every": "save_interval save_interval_updates save_freq save_steps "
    "save_checkpoint_steps",
    "train.valid_every": "validate_interval validate_interval_updates valid_freq valid_steps "
    "validation_freq eval_steps eval_every",
    "train.valid_bleu": "eval_bleu predict_with_generate",
    "train.patience": "early_stopping early_stopping_patience early_stop",
    "train.best": "best_checkpoint_metric metric_for_best_model early_stopping_metric "
    "valid_metrics early_stopping_criteria eval_metric",
    "train.final_model": "load_best_model_at_end",
    "train.keep_last": "keep_last_epochs keep_interval_updates keep_best_ckpts keep_checkpoint "
    "save_total_limit keep_best_checkpoints",
    "train.tensorboard": "tensorboard_logdir tensorboard_log_dir report_to",
    "train.seed": "random_seed",
    "train.grow_from": "finetune_from_model pretrained_model",
    "decode.beam": "beam_size num_beams",
    "decode.length_penalty": "lenpen normalize beam_alpha alpha",
    "decode.max_length": "max_len_a max_len_b max_output_length max_new_tokens",
    "decode.min_length": "min_len min_output_length min_new_tokens",
    "decode.no_repeat_ngram": "no_repeat_ngram_size block_ngram_repeat",
    "decode.average": "average_checkpoints num_epoch_checkpoints num_update_checkpoints",
}
OTHER_NAMES = {name: ours for ours, names in _ELSEWHERE.items() for name in names.split()}
_OTHER_SECTIONS = {
    **dict.fromkeys(("dataset", "corpus"), "data"),
    **dict.fromkeys(("optimizer", "optimization", "optim", "trainer"), "train"),
    **dict.fromkeys(("testing", "generation", "generate", "search", "translate"), "decode"),
}


_DEEPEST = 8  # sections in sections; a key has one


def parse_value(text: str) -> Any:
    """Parse a value of the command line as TOML; anything else is a string."""
    try:
        return parse_toml(f"value = {text}")["value"]
    except DocumentError:
        return text


def apply_override(values: dict[str, Any], override: str) -> None:
    """Set "section.key=value" in nested values."""
    key, equals, text = override.partition("=")
    *sections, name = key.strip().split(".")
    if not equals or not name or len(sections) > _DEEPEST:
        shown = repr(override if len(override) <= 60 else f"{override[:57]}...")
        raise InputError(f"--set {shown} is not of the form key=value, e.g. model.solver=rk4.")
    for section in sections:
        if values.get(section) is None:  # JSON writes a missing section as null
            values[section] = {}
        inner: Any = values[section]
        if not isinstance(inner, dict):
            raise InputError(f"--set {override!r}: {section} is not a section of the config.")
        values = cast(dict[str, Any], inner)
    values[name] = parse_value(text.strip())


@contextmanager
def in_one_sentence(known: Sequence[str] = (), where: str = "") -> Generator[None]:
    """Raise an InputError instead of a ValidationError; `where` is put before its message."""
    try:
        yield
    except ValidationError as error:
        message = first_mistake(error, known)
        raise InputError(f"{where}: {message}" if where else message) from None


def first_mistake(error: ValidationError, known: Sequence[str]) -> str:
    """One sentence for the first mistake: the key, what is wrong, and what to do."""
    mistakes = error.errors()
    # A misspelled name comes first: other errors may be a consequence of it.
    mistake = min(mistakes, key=lambda found: found["type"] != "extra_forbidden")
    key = "".join(f"[{p}]" if isinstance(p, int) else f".{p}" for p in mistake["loc"])[1:]
    if mistake["type"] == "extra_forbidden":
        return sentence(f"there is no setting {key}{_known_setting(key, known)}")
    if mistake["type"] == "missing":
        section = any(name.startswith(f"{key}.") for name in known)
        return f"the {f'section [{key}]' if section else f'setting {key}'} is missing; add it."
    message = mistake["msg"].removeprefix("Value error, ")
    if mistake["type"] == "value_error":
        return sentence(f"{key}: {message}" if key else message)
    value, way_out = mistake["input"], _WAYS_OUT.get(mistake["type"], message.lower())
    if mistake["type"] == "list_type" and key.endswith("]"):
        way_out = f"{key.rpartition('[')[0]} is a list of rows, e.g. [[1]]"
    elif mistake["type"] == "list_type" and isinstance(value, str):
        # ["1/2"] has become [1/2], which is no TOML.
        way_out += "; on the command line, put single quotes around the whole setting"
    elif mistake["type"] in _WAYS_OUT:
        way_out = way_out.format(key=key, **mistake.get("ctx", {}))
    shown = _shown(value)
    return f"{key} = {shown} is not valid: {way_out}."


def _shown(value: Any) -> str:
    """The start of a value in JSON; of a huge or circular one, its type."""
    try:
        shown = json.dumps(value, default=str, ensure_ascii=False)
    except (ValueError, RecursionError):
        return f"<{type(value).__name__}>"
    return shown if len(shown) <= 60 else f"{shown[:57]}..."


def sentence(text: str) -> str:
    """The text with a full stop, unless it ends in a question mark."""
    return text if text.endswith("?") else f"{text}."


def _known_setting(key: str, known: Sequence[str]) -> str:
    """The setting that an unknown name may stand for, or those of its section."""
    section, _, name = key.rpartition(".")
    everywhere = {full.rpartition(".")[2]: full for full in known}
    here = {full.rpartition(".")[2]: full for full in known if full.rpartition(".")[0] == section}
    meant = meant_settings(name, known)
    if not meant and _OTHER_SECTIONS.get(key) in known:
        meant = [_OTHER_SECTIONS[key]]
    if not meant:
        # Compare names without their section: with it, all settings of a section look alike.
        words = near(name, here, 0.6) or near(name, everywhere, 0.75)
        meant = [(everywhere | here)[word] for word in words[:1]]
    if meant:
        return f"; did you mean {' or '.join(meant)}?"
    return f"; {f'[{section}] has' if section else 'there are'} {', '.join(here)}" if here else ""


def meant_settings(name: str, known: Sequence[str]) -> list[str]:
    """The settings of this name in any section, or the one that other toolkits call so."""
    plain = name.lower().replace("-", "_")
    ours = [full for full in known if plain in (full, full.rpartition(".")[2])]
    return ours or [full for full in known if full == OTHER_NAMES.get(plain)]


def check_names(options: Iterable[str], known: Iterable[str]) -> None:
    """Reject an option that a function does not have."""
    names = [*known]
    for name in options:
        if name not in names:
            raise InputError(sentence(f"There is no option {name}{suggest(name, names)}"))


def suggest(name: str, known: Sequence[str]) -> str:
    """'; did you mean ...?' if there is a close match, else the list of what is known."""
    words = sorted(near(name, known, 0.6))
    if words:
        return f"; did you mean {' or '.join(words)}?"
    return f"; there are {', '.join(known)}" if len(known) < 30 else ""


def near(name: str, known: Iterable[str], likeness: float) -> list[str]:
    """The closest known words, ignoring case; only the word itself if it is known."""
    words = {word.lower(): word for word in known}
    if name.lower() in words:
        return [words[name.lower()]]
    return [words[w] for w in difflib.get_close_matches(name.lower(), words, cutoff=likeness)]
