// A Kutta model in onnxruntime-web: the encoder once, then the decoder step by step.
import { BOS, EOS, PAD, Tokenizer } from "./tokenizer.js";

const FEWEST_IN_LOOP = 32, LONGEST_PERIOD = 8, EVERY = 8; // as in src/kutta/translate/loops.py
const LONGEST = 200; // tokens that are translated as one sentence, unless the model says otherwise

export class Translator {
  // Loads the exported model at a URL that ends in "/", with onnxruntime-web as `ort`.
  static async load(url, ort) {
    const [facts, config] = await Promise.all(["export.json", "config.json"].map((name) => json(url + name)));
    if (facts.shortlist) throw new Error("The model has a shortlist; export it without --shortlist.");
    if (!facts.memories) throw new Error("This is a language model; export one that translates.");
    const tokenizers = await readTokenizers(url);
    // The matrices of 8 bits lie in a file that both graphs read; graphs in fp32 have theirs inside.
    const weights = await fetch(`${url}model.safetensors`);
    const data = weights.ok ? new Uint8Array(await weights.arrayBuffer()) : null;
    const options = { executionProviders: ["wasm"], externalData: data ? [{ path: "model.safetensors", data }] : [] };
    const open = async (name) => ort.InferenceSession.create(await bytes(url + name), options);
    const sessions = [await open("encoder.onnx"), await open("decoder.onnx")];
    return new Translator(ort, facts, config, tokenizers, sessions);
  }

  constructor(ort, facts, config, [source, target], [encoder, decoder]) {
    Object.assign(this, { ort, facts, source, target, encoder, decoder });
    this.rules = config.decode ?? {};
    this.languages = [config.data.source, config.data.target];
    this.longest = config.data.max_source || LONGEST;
    // The type of the keys and values of earlier tokens and the axis along which they lie.
    const keys = decoder.inputMetadata.find(({ name }) => name === "keys.0");
    this.type = keys ? keys.type : "float32";
    this.axis = keys ? keys.shape.indexOf("slots") : 0;
  }

  // The best translation of a sentence by greedy search. A long one is cut into parts.
  async translate(sentence) {
    const ids = this.source.encode(sentence);
    const parts = [];
    for (let first = 0; first < ids.length; first += this.longest) {
      const found = await this.#search([...ids.slice(first, first + this.longest), EOS]);
      parts.push(this.target.decode(found));
    }
    return parts.join(" ");
  }

  async #search(source) {
    const { Tensor } = this.ort;
    const memory = await this.encoder.run({ source: new Tensor("int64", integers(source), [1, source.length]) });
    const constant = {
      ...memory,
      memory_bias: new Tensor("float32", new Float32Array(source.length), [1, 1, 1, source.length]),
    };
    const limit = this.rules.max_length || 2 * (source.length - 1) + 20;
    const found = [];
    let caches = this.#emptyCaches();
    for (let token = BOS; ; found.push(token)) {
      const step = await this.#step(constant, caches, token, found.length);
      token = next(step, found, limit, this.rules);
      if (token === EOS) return found;
      caches = caches.map(({ name, tensor }) => ({ name, tensor: this.#joined(tensor, step[`new_${name}`]) }));
    }
  }

  // Keys and values of one slot before the first token, which nobody sees: graphs need one at least.
  #emptyCaches() {
    const { caches, heads, width } = this.facts;
    const shape = this.axis === 0 ? [1, 1, heads, width] : [1, heads, 1, width];
    const zeros = new (this.type === "float16" ? Uint16Array : Float32Array)(heads * width);
    return Array.from({ length: caches }, (_, n) => [`keys.${n}`, `values.${n}`]).flat().map((name) => (
      { name, tensor: new this.ort.Tensor(this.type, zeros, shape) }));
  }

  async #step(constant, caches, token, length) {
    const { Tensor } = this.ort, { clip } = this.facts, slots = length + 2;
    const bias = new Float32Array(slots);
    bias[0] = -Infinity;
    const offsets = new Float32Array((clip + 1) * slots); // one-hot: how far each slot is behind
    for (let slot = 1; slot < slots; slot++) {
      const behind = Math.min(slots - 1 - slot, clip);
      offsets[(clip - behind) * slots + slot] = 1;
    }
    const count = 5 + (this.rules.no_repeat_ngram ? length : 0); // the best, and those ruled out
    const given = {
      ...constant,
      ...Object.fromEntries(caches.map(({ name, tensor }) => [name, tensor])),
      tokens: new Tensor("int64", integers([token]), [1, 1]),
      positions: new Tensor("int64", integers([length]), [1]),
      bias: new Tensor("float32", bias, [1, 1, 1, slots]),
      offsets: new Tensor("float32", offsets, [1, clip + 1, slots]),
      count: new Tensor("int64", integers([Math.min(count, this.facts.outputs)]), [1]),
    };
    return this.decoder.run(Object.fromEntries(this.decoder.inputNames.map((name) => [name, given[name]])));
  }

  // One tensor after the other along the axis of slots.
  #joined(one, other) {
    const axis = this.axis;
    const size = (tensor) => tensor.dims.slice(axis).reduce((product, dim) => product * dim, 1);
    const [first, second] = [size(one), size(other)];
    const data = new one.data.constructor(one.data.length + other.data.length);
    for (let block = 0; block * first < one.data.length; block++) {
      data.set(one.data.subarray(block * first, (block + 1) * first), block * (first + second));
      data.set(other.data.subarray(block * second, (block + 1) * second), block * (first + second) + first);
    }
    const dims = one.dims.map((dim, n) => (n === axis ? dim + other.dims[n] : dim));
    return new this.ort.Tensor(one.type, data, dims);
  }
}

// The best token that may follow, by the rules of src/kutta/translate/hypothesis.py.
function next({ ids, values }, found, limit, { min_length: shortest = 0, no_repeat_ngram: n = 0 }) {
  if (found.length >= limit || loops(found, limit)) return EOS;
  const banned = n ? repeating([BOS, ...found], n) : new Set();
  for (let rank = 0; rank < ids.data.length; rank++) {
    const id = Number(ids.data[rank]);
    const early = id === EOS && found.length < shortest;
    if (id !== PAD && id !== BOS && !early && !banned.has(id) && Number.isFinite(values.data[rank])) return id;
  }
  return EOS;
}

// The tokens that would repeat an n-gram.
function repeating(tokens, n) {
  const banned = new Set();
  const last = tokens.slice(tokens.length - n + 1).join(" ");
  for (let at = 0; at + n <= tokens.length; at++) {
    if (tokens.slice(at, at + n - 1).join(" ") === last) banned.add(tokens[at + n - 1]);
  }
  return banned;
}

// Whether tokens end in a phrase that is repeated for more than half of the limit.
function loops(tokens, limit) {
  const needed = Math.max(Math.floor(limit / 2), FEWEST_IN_LOOP);
  if (tokens.length % EVERY || tokens.length < needed) return false;
  for (let period = 1; period <= LONGEST_PERIOD; period++) {
    let equal = 0;
    while (equal + period < tokens.length && tokens.at(-1 - equal) === tokens.at(-1 - equal - period)) equal++;
    if (equal + period >= needed) return true;
  }
  return false;
}

const integers = (numbers) => BigInt64Array.from(numbers, BigInt);

async function readTokenizers(url) {
  const shared = await fetch(`${url}tokenizer.model`);
  if (shared.ok) {
    const both = new Tokenizer(new Uint8Array(await shared.arrayBuffer()));
    return [both, both];
  }
  const names = ["tokenizer.source.model", "tokenizer.target.model"];
  return Promise.all(names.map(async (name) => new Tokenizer(await bytes(url + name))));
}

async function bytes(url) {
  const answer = await fetch(url);
  if (!answer.ok) throw new Error(`${url} is not there (${answer.status}); export a model into model/.`);
  return new Uint8Array(await answer.arrayBuffer());
}

const json = async (url) => JSON.parse(new TextDecoder().decode(await bytes(url)));
