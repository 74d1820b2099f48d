// The page: a text is cut into sentences, which the worker translates one after the other.
const byId = (id) => document.getElementById(id);
const worker = new Worker("./worker.js", { type: "module" });
const names = new Intl.DisplayNames(["en"], { type: "language", fallback: "code" });
let splitter = new Intl.Segmenter("en", { granularity: "sentence" });
let text = 0; // the number of the present text
let pieces = []; // its sentences and what is between them; translations take their places
let waiting = 0;
let timer = 0;

worker.onerror = (event) => say(event.message || "onnxruntime-web is not there; run npm install.");
worker.onmessage = ({ data }) => {
  if (data.error) return say(data.error);
  if (data.languages) {
    const [source, target] = data.languages;
    splitter = new Intl.Segmenter(source, { granularity: "sentence" });
    byId("source-name").textContent = names.of(source);
    byId("target-name").textContent = names.of(target);
    say("Ready");
    return begin();
  }
  if (data.text !== text) return;
  pieces[data.number] = data.translation;
  waiting -= 1;
  byId("target").textContent = pieces.filter((piece) => typeof piece === "string").join("");
  if (!waiting) say("Ready");
};

function say(sentence) {
  byId("status").textContent = sentence;
}

// White space at the ends of a sentence is kept, not translated.
function begin() {
  text += 1;
  pieces = [...splitter.segment(byId("source").value)].flatMap(({ segment }) => {
    const sentence = segment.trim();
    if (!sentence) return [segment];
    const start = segment.indexOf(sentence);
    return [segment.slice(0, start), { sentence }, segment.slice(start + sentence.length)];
  });
  const sentences = pieces.map((piece, number) => ({ ...piece, number })).filter((one) => one.sentence);
  waiting = sentences.length;
  if (!waiting) byId("target").textContent = "";
  else say("Translating");
  for (const { sentence, number } of sentences) worker.postMessage({ text, number, sentence });
}

byId("source").addEventListener("input", () => {
  clearTimeout(timer);
  timer = setTimeout(begin, 250);
});
