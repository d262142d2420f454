"""The OpenAI Agents SDK, unmodified, runs agents with tools of their own against the chat flow, in both APIs."""

import asyncio
import json
import os
import urllib.request

from agents import Agent, OpenAIChatCompletionsModel, OpenAIResponsesModel, Runner, function_tool, set_tracing_disabled
from openai import AsyncOpenAI
from pydantic import BaseModel

URL = os.environ["SEGUE_URL"]
set_tracing_disabled(True)
client = AsyncOpenAI(base_url=f"{URL}/v1", api_key="unused")
cities = []


@function_tool
def get_weather(city: str) -> str:
    """Returns the weather of a city."""
    cities.append(city)
    return f"It rains in {city}."


class Person(BaseModel):
    name: str
    age: int


def get(path):
    with urllib.request.urlopen(f"{URL}{path}") as answer:
        return json.load(answer)


def recorded(question):
    """Returns the turns of the only session that begins with the question."""
    sessions = [entry for entry in get("/v1/sessions?flow=chat&limit=200")["sessions"] if entry["title"] == question]
    assert len(sessions) == 1, sessions
    return get(f"/v1/sessions/{sessions[0]['session']}/turns")["turns"]


async def use_tool(model, label, streamed):
    cities.clear()
    question = f"Please get the weather of a city ({label})"
    agent = Agent(name="forecaster", instructions="Answer briefly.", model=model, tools=[get_weather])
    if streamed:
        result = Runner.run_streamed(agent, question)
        async for _ in result.stream_events():
            pass
    else:
        result = await Runner.run(agent, question)
    assert len(cities) == 1 and result.final_output, (cities, result.final_output)
    again = await Runner.run(agent, result.to_input_list() + [{"role": "user", "content": "Thank you"}])
    assert again.final_output and len(cities) == 1, "the tool is called once"
    turns = recorded(question)
    assert [len(turn["tool_runs"]) for turn in turns] == [1, 0], turns
    run = turns[0]["tool_runs"][0]
    assert (run["tool"], run["outcome"], run["text"]) == ("get_weather", "done", f"It rains in {cities[0]}."), run
    assert turns[0]["replies"][-1]["text"] == result.final_output, "the final output is the recorded reply"


async def answer_in_a_format(model):
    agent = Agent(name="biographer", instructions="Invent a person.", model=model, output_type=Person)
    result = await Runner.run(agent, "Who is it?")
    assert isinstance(result.final_output, Person), result.final_output


async def main():
    for label, kind in [("chat completions", OpenAIChatCompletionsModel), ("responses", OpenAIResponsesModel)]:
        model = kind(model="chat", openai_client=client)
        await use_tool(model, label, streamed=False)
        await use_tool(model, f"{label}, streamed", streamed=True)
        await answer_in_a_format(model)


asyncio.run(main())
print("agents: tools and a format of the client, in both APIs")
