// Talks to /api/v1: one answer, or the stream of summaries. With a tokens file every request carries the token.

const TOKEN = "autoscaler-token";

export class NeedsToken extends Error {}

function headers() {
  const token = sessionStorage.getItem(TOKEN);
  return token ? {Authorization: `Bearer ${token}`} : {};
}

export const keepToken = (token) => sessionStorage.setItem(TOKEN, token);

export async function get(path) {
  const answer = await fetch(`/api/v1/${path}`, {headers: headers()});
  if (answer.status === 401) throw new NeedsToken();
  const found = await answer.json();
  if (!answer.ok) throw new Error(found.error);
  return found;
}

/** Calls `told` with each summary until the connection ends or breaks; fetch, because EventSource sends no token. */
export async function listen(told) {
  const answer = await fetch("/api/v1/stream", {headers: headers()});
  if (answer.status === 401) throw new NeedsToken();
  if (!answer.ok) throw new Error((await answer.json()).error);
  const reader = answer.body.pipeThrough(new TextDecoderStream()).getReader();
  let text = "";
  for (;;) {
    const {done, value} = await reader.read();
    if (done) return;
    text += value;
    const messages = text.split("\n\n");
    text = messages.pop();
    for (const message of messages) {
      const data = message.split("\n").filter((line) => line.startsWith("data: ")).map((line) => line.slice(6));
      if (data.length) told(JSON.parse(data.join("\n")));
    }
  }
}
