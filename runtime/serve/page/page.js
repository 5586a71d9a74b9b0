// The page at /: a chat over /v1/chat/completions and a live view of /metrics. No library, no
// storage but this tab's.
"use strict";

const byId = (id) => document.getElementById(id);
const PERIOD_MS = 1000;
const SPAN = 120; // samples of the drawings

const state = {model: null, messages: [], stopper: null, samples: [], timer: 0};

// ---- requests ----------------------------------------------------------------------------------

function headers() {
  const key = byId("key").value;
  return key ? {"Authorization": `Bearer ${key}`} : {};
}

function say(text) {
  byId("notice").textContent = text || "";
  byId("notice").hidden = !text;
}

async function errorOf(answer) {
  try {
    return (await answer.json()).error.message;
  } catch {
    return `the server answered ${answer.status}`;
  }
}

async function connect() {
  try {
    const answer = await fetch("v1/models", {headers: headers()});
    if (answer.status === 401) {
      byId("about").textContent = "this server wants an API key";
      show("settings", true);
      byId("key").focus();
      return;
    }
    if (!answer.ok) {
      throw new Error(await errorOf(answer));
    }
    const models = (await answer.json()).data;
    state.model = models[0].id;
    byId("about").textContent = `${state.model} · context ${models[0].max_model_len} tokens`;
    const info = await fetch("load", {headers: headers()});
    if (info.ok) {
      const device = (await info.json()).device;
      if (device) {
        byId("about").textContent += ` · ${device}`;
      }
    }
  } catch (error) {
    byId("about").textContent = `no answer: ${error.message}`;
  }
}

function numberOf(id) {
  const text = byId(id).value.trim();
  return text === "" ? undefined : Number(text);
}

function bodyOf() {
  const messages = state.messages.map(({role, content}) => ({role, content}));
  const system = byId("system").value.trim();
  if (system) {
    messages.unshift({role: "system", content: system});
  }
  return {
    model: state.model, messages, stream: true, stream_options: {include_usage: true},
    temperature: numberOf("temperature"), top_p: numberOf("top_p"), top_k: numberOf("top_k"),
    max_tokens: numberOf("max_tokens"), seed: numberOf("seed"),
  };
}

// Calls onEvent with the data of each event.
async function readEvents(answer, onEvent) {
  const reader = answer.body.pipeThrough(new TextDecoderStream()).getReader();
  let rest = "";
  for (;;) {
    const {value, done} = await reader.read();
    if (done) {
      return;
    }
    rest += value;
    const events = rest.split("\n\n");
    rest = events.pop();
    for (const event of events) {
      if (event.startsWith("data: ") && event !== "data: [DONE]") {
        onEvent(JSON.parse(event.slice(6)));
      }
    }
  }
}

async function answer() {
  const message = {role: "assistant", content: "", figures: ""};
  const begin = performance.now();
  let first = 0;
  state.messages.push(message);
  state.stopper = new AbortController();
  say("");
  render();
  try {
    const reply = await fetch("v1/chat/completions", {
      method: "POST", signal: state.stopper.signal, body: JSON.stringify(bodyWithout(message)),
      headers: {"Content-Type": "application/json", ...headers()},
    });
    if (!reply.ok) {
      throw new Error(await errorOf(reply));
    }
    await readEvents(reply, (event) => {
      if (event.error) {
        throw new Error(event.error.message);
      }
      const delta = event.choices.length ? event.choices[0].delta.content : "";
      if (delta) {
        first = first || performance.now();
        message.content += delta;
        renderLast(message);
      }
      if (event.usage) {
        const made = event.usage.completion_tokens;
        const seconds = (performance.now() - first) / 1000;
        message.figures = `${made} tokens · first after ${Math.round(first - begin)} ms` +
          (made > 1 ? ` · ${Math.round((made - 1) / seconds)} tokens/s` : "") +
          ` · ${event.usage.prompt_tokens_details.cached_tokens} of ` +
          `${event.usage.prompt_tokens} prompt tokens from the cache`;
      }
    });
  } catch (error) {
    if (error.name === "AbortError") {
      message.figures = "stopped";
    } else {
      say(error.message);
      if (!message.content) {
        state.messages.pop();
      }
    }
  }
  state.stopper = null;
  render();
  byId("input").focus();
}

function bodyWithout(message) {
  const all = state.messages;
  state.messages = all.filter((m) => m !== message);
  const body = bodyOf();
  state.messages = all;
  return body;
}

// ---- conversation ------------------------------------------------------------------------------

function element(name, attributes, ...children) {
  const e = document.createElement(name);
  Object.assign(e, attributes);
  e.append(...children);
  return e;
}

function renderMessage(message, at) {
  const mine = message.role === "user";
  const last = at === state.messages.length - 1;
  const writing = last && !mine && state.stopper;
  const who = element("div", {className: "who"}, mine ? "You" : state.model || "Model");
  if (!state.stopper) {
    who.append(mine
      ? element("button", {type: "button", textContent: "Edit", onclick: () => edit(at)})
      : element("button", {type: "button", textContent: "Retry", onclick: () => retry(at)}));
  }
  const item = element("li", {className: `${message.role}${writing ? " writing" : ""}`}, who,
    element("div", {className: "said", textContent: message.content}));
  if (message.figures) {
    item.append(element("div", {className: "figures", textContent: message.figures}));
  }
  return item;
}

function render() {
  const list = byId("messages");
  if (state.messages.length === 0) {
    list.replaceChildren(element("li", {className: "empty"},
      "Ask the model something. Enter sends, Escape stops an answer."));
  } else {
    list.replaceChildren(...state.messages.map(renderMessage));
  }
  list.scrollTop = list.scrollHeight;
  byId("send").hidden = state.stopper !== null;
  byId("stop").hidden = state.stopper === null;
}

function renderLast(message) {
  const list = byId("messages");
  const atEnd = list.scrollHeight - list.scrollTop - list.clientHeight < 48;
  list.lastElementChild.querySelector(".said").textContent = message.content;
  if (atEnd) {
    list.scrollTop = list.scrollHeight;
  }
}

function send() {
  const text = byId("input").value.trim();
  if (!text || state.stopper) {
    return;
  }
  state.messages.push({role: "user", content: text});
  byId("input").value = "";
  answer();
}

// The message goes back into the field; what followed it is gone.
function edit(at) {
  byId("input").value = state.messages[at].content;
  state.messages.length = at;
  render();
  byId("input").focus();
}

function retry(at) {
  state.messages.length = at;
  answer();
}

// ---- the engine --------------------------------------------------------------------------------

function parseMetrics(text) {
  const found = {};
  for (const line of text.split("\n")) {
    const end = line.indexOf("{");
    if (line && line[0] !== "#" && end > 0 && !line.includes("_bucket{")) {
      const name = line.slice(0, end);
      found[name] = (found[name] || 0) + Number(line.slice(line.lastIndexOf(" ") + 1));
      const blocks = line.match(/num_gpu_blocks="(\d+)"/);
      if (blocks) {
        found.blocks = Number(blocks[1]);
      }
    }
  }
  return found;
}

function percent(share) {
  return `${(100 * share).toFixed(share < 0.1 ? 1 : 0)} %`;
}

function draw(id, paint) {
  const canvas = byId(id);
  const scale = window.devicePixelRatio || 1;
  const width = canvas.clientWidth;
  const height = canvas.clientHeight;
  canvas.width = width * scale;
  canvas.height = height * scale;
  const pen = canvas.getContext("2d");
  const style = getComputedStyle(document.documentElement);
  pen.scale(scale, scale);
  paint(pen, width, height, (name) => style.getPropertyValue(`--${name}`));
}

// Each square stands for an equal share of the blocks.
function drawBlocks(share) {
  draw("blocks", (pen, width, height, colour) => {
    const side = 10;
    const columns = Math.floor(width / side);
    const rows = Math.floor(height / side);
    const full = share * columns * rows;
    for (let i = 0; i < columns * rows; i++) {
      pen.fillStyle = i < full ? colour("accent") : colour("mine");
      pen.fillRect((i % columns) * side + 1, Math.floor(i / columns) * side + 1, side - 2, side - 2);
    }
  });
}

function drawLines(id, series) {
  draw(id, (pen, width, height, colour) => {
    const top = Math.max(1, ...series.flatMap((s) => s.values));
    series.forEach((s) => {
      pen.strokeStyle = colour(s.colour);
      pen.lineWidth = 1.5;
      pen.beginPath();
      s.values.forEach((v, i) => {
        const x = width - (s.values.length - 1 - i) * width / SPAN;
        pen.lineTo(x, height - 4 - v / top * (height - 20));
      });
      pen.stroke();
    });
    pen.font = "11px system-ui, sans-serif";
    pen.fillStyle = colour("soft");
    pen.fillText(`${Math.round(top)}`, 4, 12);
    let right = width - 4;
    pen.textAlign = "right";
    series.filter((s) => s.name).forEach((s) => {
      pen.fillStyle = colour(s.colour);
      pen.fillText(s.name, right, 12);
      right -= pen.measureText(s.name).width + 12;
    });
  });
}

async function sample() {
  let m;
  try {
    const reply = await fetch("metrics", {headers: headers()});
    if (!reply.ok) {
      return;
    }
    m = parseMetrics(await reply.text());
  } catch {
    return;
  }
  const now = performance.now();
  const before = state.samples.at(-1);
  const made = m["vllm:generation_tokens_total"];
  const steps = m["pagoda:steps_total"];
  const one = {
    now, made, steps,
    stepRate: before ? Math.max(0, (steps - before.steps) / (now - before.now) * 1000) : 0,
    batch: before && steps > before.steps ? (made - before.made) / (steps - before.steps) : 0,
    running: m["vllm:num_requests_running"], waiting: m["vllm:num_requests_waiting"],
    rate: before ? Math.max(0, (made - before.made) / (now - before.now) * 1000) : 0,
  };
  state.samples.push(one);
  state.samples.splice(0, state.samples.length - SPAN);
  const asked = m["vllm:prefix_cache_queries_total"];
  const rows = {
    "Running": one.running, "Waiting": one.waiting, "Tokens a second": one.rate.toFixed(0),
    "Tokens made": made, "Prompt tokens": m["vllm:prompt_tokens_total"],
    "KV blocks": `${percent(m["vllm:kv_cache_usage_perc"])} of ${m.blocks}`,
    "Prefix cache hits": asked ? percent(m["vllm:prefix_cache_hits_total"] / asked) : "–",
    "Preemptions": m["vllm:num_preemptions_total"], "Steps": steps,
  };
  byId("figures").replaceChildren(...Object.entries(rows).flatMap(([name, value]) =>
    [element("dt", {textContent: name}), element("dd", {textContent: value})]));
  drawBlocks(m["vllm:kv_cache_usage_perc"]);
  drawLines("rate", [{colour: "accent", values: state.samples.map((s) => s.rate)}]);
  const of = (name) => state.samples.map((s) => s[name]);
  drawLines("timeline", [{colour: "accent", name: "running", values: of("running")},
    {colour: "soft", name: "waiting", values: of("waiting")}]);
  drawLines("steps", [{colour: "accent", name: "steps a second", values: of("stepRate")},
    {colour: "soft", name: "tokens a step", values: of("batch")}]);
}

// ---- panels ------------------------------------------------------------------------------------

function show(name, on) {
  byId(name).hidden = !on;
  byId(`toggle-${name}`).setAttribute("aria-expanded", String(on));
  if (name === "engine") {
    clearInterval(state.timer);
    if (on) {
      sample();
      state.timer = setInterval(sample, PERIOD_MS);
    }
  }
}

for (const name of ["settings", "engine"]) {
  byId(`toggle-${name}`).onclick = () => show(name, byId(name).hidden);
}
byId("composer").onsubmit = (event) => {
  event.preventDefault();
  send();
};
byId("input").onkeydown = (event) => {
  if (event.key === "Enter" && !event.shiftKey && !event.isComposing) {
    event.preventDefault();
    send();
  }
};
byId("stop").onclick = () => state.stopper && state.stopper.abort();
document.onkeydown = (event) => {
  if (event.key === "Escape" && state.stopper) {
    state.stopper.abort();
  }
};
byId("new-chat").onclick = () => {
  if (state.stopper) {
    state.stopper.abort();
  }
  state.messages = [];
  say("");
  render();
  byId("input").focus();
};
byId("key").onchange = connect;
byId("key-form").onsubmit = (event) => {
  event.preventDefault();
  connect();
};
render();
connect();
byId("input").focus();
