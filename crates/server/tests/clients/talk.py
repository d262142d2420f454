"""The official Python client, unmodified, talks to the concierge flow: streamed, over several turns."""

import json
import os
import urllib.request

import openai

URL = os.environ["SEGUE_URL"]
client = openai.OpenAI(base_url=f"{URL}/v1", api_key="unused")
MESSAGES = [
    "Should I open a small bakery?",
    "I have some savings and a free year.",
    "What if nobody comes?",
    "I'm going to do it, give me a plan.",
]


def get(path):
    with urllib.request.urlopen(f"{URL}{path}") as answer:
        return json.load(answer)


def turns(session):
    return get(f"/v1/sessions/{session}/turns")["turns"]


def chat():
    history, replies = [], []
    for text in MESSAGES:
        history.append({"role": "user", "content": text})
        stream = client.chat.completions.create(
            model="concierge", messages=history, stream=True, stream_options={"include_usage": True}
        )
        reply, chunks, usage, finish = "", 0, None, None
        for chunk in stream:
            usage = chunk.usage or usage
            for choice in chunk.choices:
                chunks += bool(choice.delta.content)
                reply += choice.delta.content or ""
                finish = choice.finish_reason or finish
        assert chunks > 1 and finish == "stop" and usage.total_tokens > 0, (chunks, finish, usage)
        assert "<<<" not in reply, reply
        history.append({"role": "assistant", "content": reply})
        replies.append(reply)
    whole = client.chat.completions.with_raw_response.create(
        model="concierge", messages=history + [{"role": "user", "content": "It is done."}]
    )
    session = whole.headers["segue-session"]
    recorded = turns(session)
    assert [turn["messages"][0]["text"] for turn in recorded] == MESSAGES + ["It is done."], "one session holds the conversation"
    recorded_replies = ["\n\n".join(reply["text"] for reply in turn["replies"]) for turn in recorded]
    assert recorded_replies == replies + [whole.parse().choices[0].message.content], "the streamed text equals the recorded replies"
    assert get(f"/v1/sessions/{session}/phases")["graphs"][0]["current"]["phase"] == "executor"


def respond():
    previous, session = None, None
    for text in MESSAGES[:3]:
        stream = client.responses.create(model="concierge", input=text, previous_response_id=previous, stream=True)
        reply, done = "", None
        for event in stream:
            if event.type == "response.output_text.delta":
                reply += event.delta
            if event.type == "response.completed":
                done = event.response
        assert done.output_text == reply and done.status == "completed", done
        previous, session = done.id, done.metadata["session"]
    assert [turn["messages"][0]["text"] for turn in turns(session)] == MESSAGES[:3]
    assert client.responses.retrieve(previous).output_text == reply


def refuse():
    try:
        client.chat.completions.create(model="nobody", messages=[{"role": "user", "content": "hello"}])
        raise AssertionError("there is no such flow")
    except openai.NotFoundError as error:
        assert error.code == "no-such-flow", error
    assert "concierge" in [model.id for model in client.models.list()]


chat()
respond()
refuse()
print("python: a conversation of several turns, streamed, in both APIs")
