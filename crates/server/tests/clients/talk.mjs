// The official Node client, unmodified, talks to the concierge flow: streamed, over several turns.

import assert from "node:assert/strict";
import OpenAI from "openai";

const url = process.env.SEGUE_URL;
const client = new OpenAI({ baseURL: `${url}/v1`, apiKey: "unused" });
const messages = ["Should we move to the sea?", "We have two children and a cat.", "What about school?", "We will do it, give us a plan."];

const get = async (path) => (await fetch(`${url}${path}`)).json();
const texts = async (session) => (await get(`/v1/sessions/${session}/turns`)).turns.map((turn) => turn.messages[0].text);

async function chat() {
  const history = [];
  let session;
  for (const content of messages) {
    history.push({ role: "user", content });
    const { data: stream, response } = await client.chat.completions.create({ model: "concierge", messages: history, stream: true }).withResponse();
    session = response.headers.get("segue-session");
    let reply = "";
    let chunks = 0;
    for await (const chunk of stream) {
      const text = chunk.choices[0]?.delta?.content ?? "";
      chunks += text ? 1 : 0;
      reply += text;
    }
    assert(chunks > 1 && !reply.includes("<<<"), reply);
    history.push({ role: "assistant", content: reply });
  }
  assert.deepEqual(await texts(session), messages, "one session holds the conversation");
}

async function respond() {
  const first = await client.responses.create({ model: "concierge", input: messages[0] });
  const second = await client.responses.create({ model: "concierge", input: messages[1], previous_response_id: first.id });
  assert.equal(second.metadata.session, first.metadata.session);
  const stream = await client.responses.create({ model: "concierge", input: "Something else.", previous_response_id: first.id, stream: true });
  let branch;
  for await (const event of stream) {
    if (event.type === "response.completed") branch = event.response;
  }
  assert.notEqual(branch.metadata.session, first.metadata.session, "going back forks the session");
  assert.deepEqual(await texts(branch.metadata.session), [messages[0], "Something else."]);
  assert.deepEqual(await texts(first.metadata.session), messages.slice(0, 2));
}

async function refuse() {
  await assert.rejects(client.chat.completions.create({ model: "nobody", messages: [{ role: "user", content: "hello" }] }), (error) => error.status === 404 && error.code === "no-such-flow");
}

await chat();
await respond();
await refuse();
console.log("node: a conversation of several turns, streamed, in both APIs");
