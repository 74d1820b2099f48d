// Translates beside the page, which stays responsive. Messages in: {text, number, sentence}, the
// numbers of the text and of the sentence in it; out: {languages} when the model is loaded,
// {text, number, translation} for each sentence, or {error}.
import * as ort from "./node_modules/onnxruntime-web/dist/ort.wasm.min.mjs";
import { Translator } from "./translator.js";

ort.env.wasm.wasmPaths = new URL("./node_modules/onnxruntime-web/dist/", import.meta.url).href;
ort.env.wasm.numThreads = 1; // more need headers that a plain file server does not send

const loading = Translator.load(new URL("./model/", import.meta.url).href, ort);
loading.then(
  ({ languages }) => postMessage({ languages }),
  (error) => postMessage({ error: error.message }),
);

let last = Promise.resolve();
let wanted = 0; // the newest text; sentences of earlier ones are dropped

onmessage = ({ data: { text, number, sentence } }) => {
  wanted = text;
  last = last.then(async () => {
    if (text !== wanted) return;
    try {
      const translator = await loading;
      postMessage({ text, number, translation: await translator.translate(sentence) });
    } catch (error) {
      postMessage({ error: error.message });
    }
  });
};
