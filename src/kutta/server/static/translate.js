// The two panes.
import { debounced, events, post } from "./api.js";

const byId = (id) => document.getElementById(id);
const AUTO = "auto";
const ALTERNATIVES = 4;

export function startTranslate(settings, languages) {
  const source = byId("source");
  const mirror = byId("mirror");
  const target = byId("target");
  const from = byId("from");
  const to = byId("to");
  const status = byId("status");
  const popover = byId("popover");
  const names = Object.fromEntries(languages.map(({ code, name }) => [code, name]));
  let shown = { gaps: [""], targetGaps: [""], sentences: [], translations: [], language: "" };

  // Languages

  const option = (code, text) => Object.assign(document.createElement("option"), { value: code, textContent: text });
  const targets = (code) =>
    code === AUTO ? languages.map((one) => one.code) : languages.find((one) => one.code === code)?.targets ?? [];
  const fillTargets = (wanted) => {
    const reachable = new Set(languages.flatMap((one) => one.targets));
    const codes = targets(from.value).filter((code) => reachable.has(code));
    to.replaceChildren(...codes.map((code) => option(code, names[code])));
    to.value = codes.includes(wanted) ? wanted : codes[0];
  };
  const sources = languages.filter((one) => one.targets.length);
  from.replaceChildren(option(AUTO, "Detect language"), ...sources.map(({ code, name }) => option(code, name)));
  from.value = settings.language.source.code;
  fillTargets(settings.language.target.code);

  const spoken = () => (from.value === AUTO ? shown.language : from.value);
  const updateSwap = () => {
    const language = spoken();
    byId("swap").disabled = !language || !targets(to.value).includes(language);
  };

  // Drawing

  const sentenceSpan = (number, text) => {
    const span = document.createElement("span");
    span.dataset.sentence = number;
    span.textContent = text;
    return span;
  };
  const woven = (gaps, texts, make) =>
    gaps.flatMap((gap, n) => (n < texts.length ? [gap, make(n, texts[n])] : [gap]));

  const drawMirror = () => {
    const { gaps, sentences } = shown;
    const known = gaps.join("") !== "" || sentences.length;
    const whole = known ? woven(gaps, sentences, (n, text) => text).join("") : "";
    const parts = whole === source.value ? woven(gaps, sentences, sentenceSpan) : [source.value];
    mirror.replaceChildren(...parts, "\u200b"); // the last line counts even if it is empty
  };
  const drawTarget = () => {
    const make = (n, text) => {
      const span = sentenceSpan(n, text ?? shown.sentences[n]);
      if (text === null) span.className = "waiting";
      else {
        span.setAttribute("role", "button");
        span.setAttribute("aria-haspopup", "listbox");
        span.tabIndex = 0;
        span.lang = to.value;
      }
      return span;
    };
    target.replaceChildren(...woven(shown.targetGaps, shown.translations, make));
    byId("copy").hidden = !shown.sentences.length;
  };
  const count = () => {
    const length = [...source.value].length;
    byId("count").textContent = `${length.toLocaleString()} / ${settings.charLimit.toLocaleString()}`;
    byId("clear").hidden = !length;
    return length <= settings.charLimit;
  };

  // Translating

  const empty = () => {
    shown = { gaps: [""], targetGaps: [""], sentences: [], translations: [], language: "" };
    target.classList.remove("stale");
    status.textContent = "";
    drawTarget();
    drawMirror();
    updateSwap();
  };
  const fail = (error) => {
    const line = document.createElement("p");
    line.className = "error";
    line.textContent = error.message;
    target.replaceChildren(line);
    byId("copy").hidden = true;
    status.textContent = "";
  };
  const translate = debounced(220, async (signal) => {
    if (!source.value.trim()) return empty();
    const started = performance.now();
    target.setAttribute("aria-busy", "true");
    target.classList.add("stale");
    try {
      const fields = { q: source.value, source: from.value, target: to.value };
      for await (const [kind, data] of events("/translate/stream", fields, signal)) {
        if (signal.aborted) return;
        if (kind === "start") {
          shown = {
            gaps: data.gaps,
            targetGaps: [...data.gaps], // other scripts may need a space between sentences
            sentences: data.sentences,
            translations: data.sentences.map(() => null),
            language: data.detectedLanguage.language,
          };
          drawMirror();
        } else if (kind === "sentence") {
          shown.translations[data.index] = data.translatedText;
          shown.targetGaps[data.index] = data.gap;
          target.classList.remove("stale");
          drawTarget();
        } else if (kind === "error") throw new Error(data.error);
      }
      drawTarget();
      updateSwap();
      const seconds = (performance.now() - started) / 1000;
      const detected = from.value === AUTO ? `${names[shown.language] ?? shown.language} · ` : "";
      status.textContent = `${detected}${seconds < 1 ? `${Math.round(seconds * 1000)} ms` : `${seconds.toFixed(1)} s`}`;
    } catch (error) {
      if (!signal.aborted) fail(error);
    } finally {
      if (!signal.aborted) {
        target.setAttribute("aria-busy", "false");
        target.classList.remove("stale");
      }
    }
  });
  const changed = (now = false) => {
    close();
    drawMirror();
    if (count()) translate(now);
    else fail(new Error(`The text is too long; ${settings.charLimit.toLocaleString()} characters are possible.`));
  };

  source.addEventListener("input", () => changed());
  from.addEventListener("change", () => { fillTargets(to.value); updateSwap(); changed(true); });
  to.addEventListener("change", () => { updateSwap(); changed(true); });
  addEventListener("key", () => changed(true));
  byId("clear").addEventListener("click", () => { source.value = ""; changed(true); source.focus(); });
  byId("swap").addEventListener("click", () => {
    const language = spoken();
    const text = woven(shown.targetGaps, shown.translations, (n, one) => one ?? "").join("");
    const next = to.value;
    from.value = next;
    fillTargets(language);
    if (text) source.value = text;
    changed(true);
    updateSwap();
  });
  byId("copy").addEventListener("click", async () => {
    const text = woven(shown.targetGaps, shown.translations, (n, one) => one ?? "").join("");
    await navigator.clipboard.writeText(text);
    byId("copy").textContent = "Copied";
    setTimeout(() => { byId("copy").textContent = "Copy"; }, 1500);
  });

  // Pairs light up

  const light = (number) => {
    for (const span of document.querySelectorAll("#translate-view [data-sentence]")) {
      span.classList.toggle("lit", span.dataset.sentence === number);
    }
  };
  const under = (event) => {
    const inside = ({ left, right, top, bottom }) =>
      event.clientX >= left && event.clientX <= right && event.clientY >= top && event.clientY <= bottom;
    return [...mirror.children].find((span) => [...span.getClientRects()].some(inside));
  };
  source.addEventListener("mousemove", (event) => light(under(event)?.dataset.sentence));
  source.addEventListener("mouseleave", () => light());
  source.addEventListener("keyup", () => light(atCaret()?.dataset.sentence));
  source.addEventListener("blur", () => light());
  target.addEventListener("mouseover", (event) => light(event.target.closest("[data-sentence]")?.dataset.sentence));
  target.addEventListener("mouseleave", () => light());
  target.addEventListener("focusin", (event) => light(event.target.dataset.sentence));
  const atCaret = () => {
    let end = 0;
    for (const node of mirror.childNodes) {
      end += node.textContent.length;
      if (source.selectionStart <= end) return node.nodeType === Node.ELEMENT_NODE ? node : null;
    }
    return null;
  };

  // Alternatives

  let opener = null;
  const close = (refocus = false) => {
    popover.hidden = true;
    if (refocus) opener?.focus();
    opener = null;
  };
  const choose = (number, text) => {
    shown.translations[number] = text;
    close();
    drawTarget();
    target.querySelector(`[data-sentence="${number}"]`)?.focus();
  };
  const entry = (text, number) => {
    const one = document.createElement("div");
    one.setAttribute("role", "option");
    one.setAttribute("aria-selected", String(text === shown.translations[number]));
    one.tabIndex = -1;
    one.textContent = text;
    one.addEventListener("click", () => choose(number, text));
    return one;
  };
  const open = async (span) => {
    close();
    opener = span;
    const number = Number(span.dataset.sentence);
    const line = Object.assign(document.createElement("p"), { className: "quiet", textContent: "Searching…" });
    popover.replaceChildren(line);
    popover.hidden = false;
    const box = span.getClientRects()[0];
    const width = Math.min(544, innerWidth - 32);
    popover.style.left = `${Math.max(16, Math.min(box.left, innerWidth - width - 16)) + scrollX}px`;
    popover.style.top = `${[...span.getClientRects()].at(-1).bottom + scrollY + 8}px`;
    try {
      const fields = { q: shown.sentences[number], source: spoken(), target: to.value, alternatives: ALTERNATIVES };
      const answer = await post("/translate", fields);
      if (opener !== span) return;
      const texts = new Set([shown.translations[number], answer.translatedText, ...answer.alternatives]);
      popover.replaceChildren(...[...texts].map((text) => entry(text, number)));
      popover.firstChild.focus();
    } catch (error) {
      line.textContent = error.message;
    }
  };
  target.addEventListener("click", (event) => {
    const span = event.target.closest('[role="button"]');
    if (span) open(span);
  });
  target.addEventListener("keydown", (event) => {
    if ((event.key === "Enter" || event.key === " ") && event.target.matches('[role="button"]')) {
      event.preventDefault();
      open(event.target);
    }
  });
  popover.addEventListener("keydown", (event) => {
    const step = { ArrowDown: 1, ArrowUp: -1 }[event.key];
    const all = [...popover.children];
    if (step) all[(all.indexOf(document.activeElement) + step + all.length) % all.length].focus();
    else if (event.key === "Enter" || event.key === " ") document.activeElement.click();
    else if (event.key === "Escape" || event.key === "Tab") close(true);
    else return;
    event.preventDefault();
  });
  addEventListener("pointerdown", (event) => {
    if (!popover.hidden && !popover.contains(event.target)) close();
  });

  updateSwap();
  changed(true); // there may be text already: typed before this ran, or restored by the browser
  return {
    // The sentence to look into: that of the caret, or the first.
    sentence: () => ({ text: shown.sentences[Number(atCaret()?.dataset.sentence ?? 0)] ?? "", source: spoken(), target: to.value }),
  };
}
