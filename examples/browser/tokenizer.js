// The BPE of a Kutta model: text to ids and back, read from a sentencepiece file.

export const PAD = 0, UNK = 1, BOS = 2, EOS = 3;
const SPECIALS = 4;
const SPACE = "\u2581"; // how sentencepiece writes a space inside its pieces
const BYTE = 6; // the type of a piece that is one byte
// What Python's str.split() takes for white space; \s of JavaScript differs.
const WHITE = /[\t-\r\x1c-\x20\x85\xa0\u1680\u2000-\u200a\u2028\u2029\u202f\u205f\u3000]+/u;

export class Tokenizer {
  constructor(bytes) {
    this.pieces = readPieces(bytes);
    this.ids = new Map(); // of pieces that merges produce: the smaller the id, the earlier the merge
    this.bytes = new Map(); // of single bytes
    this.pieces.forEach(({ text, type }, id) => {
      if (type === BYTE) this.bytes.set(parseInt(text.slice(3, 5), 16), id);
      else if (id >= SPECIALS) this.ids.set(text, id);
    });
  }

  encode(text) {
    const words = text.toWellFormed().split(WHITE).filter((word) => word);
    return words.flatMap((word) => this.#word(word));
  }

  #word(word) {
    // A space mark in the text itself would be decoded as a space, so it is encoded as bytes.
    if (word.includes(SPACE)) return [...this.#part(SPACE), ...this.#bytesOf(word)];
    const parts = [SPACE, ...word];
    for (;;) {
      let first = -1, lowest = Infinity;
      for (let i = 0; i + 1 < parts.length; i++) {
        const id = this.ids.get(parts[i] + parts[i + 1]) ?? Infinity;
        if (id < lowest) [first, lowest] = [i, id];
      }
      if (first < 0) return parts.flatMap((part) => this.#part(part));
      parts.splice(first, 2, parts[first] + parts[first + 1]);
    }
  }

  // The id of a piece, or the ids of its bytes if it is not one.
  #part(part) {
    const id = this.ids.get(part);
    return id === undefined ? this.#bytesOf(part) : [id];
  }

  #bytesOf(text) {
    return [...new TextEncoder().encode(text)].map((byte) => this.bytes.get(byte) ?? UNK);
  }

  // The text of ids on one line, without special tokens.
  decode(ids) {
    const encoder = new TextEncoder();
    const bytes = ids.filter((id) => id >= SPECIALS).flatMap((id) => {
      const { text, type } = this.pieces[id];
      return type === BYTE ? [parseInt(text.slice(3, 5), 16)] : [...encoder.encode(text)];
    });
    const text = readUtf8(new Uint8Array(bytes)).replaceAll(SPACE, " ");
    return text.split(/[\n-\r\x1c-\x1e\x85\u2028\u2029]/u).join(" ").trim();
  }
}

// Like sentencepiece, a mark for every byte that belongs to no character. TextDecoder has fewer.
function readUtf8(bytes) {
  const utf8 = new TextDecoder("utf-8", { fatal: true, ignoreBOM: true });
  const read = (first, end) => {
    try {
      return utf8.decode(bytes.subarray(first, end));
    } catch {
      return null;
    }
  };
  const whole = read(0, bytes.length);
  if (whole !== null) return whole;
  let text = "";
  for (let at = 0; at < bytes.length; ) {
    const size = [1, 2, 3, 4].find((size) => at + size <= bytes.length && read(at, at + size) !== null);
    text += size ? read(at, at + size) : "\ufffd";
    at += size ?? 1;
  }
  return text;
}

// The pieces of a ModelProto, which is a protocol buffer: field 1 is a piece, and in it field 1 the
// text and field 3 the type.
function readPieces(bytes) {
  const utf8 = new TextDecoder("utf-8", { ignoreBOM: true });
  const pieces = [];
  for (const [number, value] of fields(bytes)) {
    if (number !== 1) continue;
    const piece = { text: "", type: 1 };
    for (const [inner, content] of fields(value)) {
      if (inner === 1) piece.text = utf8.decode(content);
      if (inner === 3) piece.type = content;
    }
    pieces.push(piece);
  }
  if (pieces[PAD]?.text !== "<pad>" || pieces[EOS]?.text !== "</s>") {
    throw new Error("The tokenizer is damaged; export the model again.");
  }
  return pieces;
}

// The fields of a message: number and value, which is bytes or a number.
function* fields(bytes) {
  let at = 0;
  const varint = () => {
    let value = 0, scale = 1;
    for (;;) {
      const byte = bytes[at++];
      value += (byte & 127) * scale;
      if (!(byte & 128)) return value;
      scale *= 128;
    }
  };
  while (at < bytes.length) {
    const key = varint();
    const [number, wire] = [key >> 3, key & 7];
    if (wire === 0) yield [number, varint()];
    else if (wire === 2) {
      const length = varint();
      yield [number, bytes.subarray(at, at + length)];
      at += length;
    } else at += wire === 1 ? 8 : 4;
  }
}
