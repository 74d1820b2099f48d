// Requests to the server. Errors are thrown as Error with its sentence.

export const key = {
  get: () => sessionStorage.getItem("key") ?? "",
  set: (value) => sessionStorage.setItem("key", value),
};

async function failure(response) {
  const body = await response.json().catch(() => ({}));
  const error = new Error(body.error ?? `The server answered ${response.status}.`);
  error.retryAfter = Number(response.headers.get("retry-after")) || 0;
  return error;
}

export async function get(path) {
  const response = await fetch(path);
  if (!response.ok) throw await failure(response);
  return response.json();
}

function send(path, fields, signal) {
  const body = JSON.stringify(key.get() ? { ...fields, api_key: key.get() } : fields);
  const headers = { "content-type": "application/json" };
  return fetch(path, { method: "POST", headers, body, signal });
}

export async function post(path, fields, signal) {
  const response = await send(path, fields, signal);
  if (!response.ok) throw await failure(response);
  return response.json();
}

// The events of a stream, as [kind, data].
export async function* events(path, fields, signal) {
  const response = await send(path, fields, signal);
  if (!response.ok) throw await failure(response);
  const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
  let rest = "";
  for (;;) {
    const { value, done } = await reader.read();
    if (done) return;
    const blocks = (rest + value).split("\n\n");
    rest = blocks.pop();
    for (const block of blocks) {
      const [kind, data] = block.split("\n");
      yield [kind.slice("event: ".length), JSON.parse(data.slice("data: ".length))];
    }
  }
}

// Calls `action` with a signal once `delay` ms have passed without another call. Each call aborts
// the one before, so an answer that is out of date never arrives.
export function debounced(delay, action) {
  let timer = 0;
  let running = new AbortController();
  return (now = false) => {
    clearTimeout(timer);
    running.abort();
    running = new AbortController();
    const { signal } = running;
    const run = () => action(signal).catch((error) => {
      if (!signal.aborted) throw error;
    });
    if (now) run();
    else timer = setTimeout(run, delay);
  };
}
