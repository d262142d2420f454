// Many tabs, and pages that the browser keeps in its back/forward cache: all of them share one stream, so no tab waits for a connection.

import { afterAll, afterEach, beforeAll, describe, expect, it } from 'vitest';
import type { BrowserContext, Page } from 'playwright-core';
import { closeBrowser, goBack, openBrowser, openPage, openTab, screenshot, sendMessage, waitForTurnEnd } from './browser';
import { scenario, Server } from './server';

let server: Server;

beforeAll(async () => {
  server = await Server.start({ models: { other: scenario('instant'), slow: scenario('slow') } });
  await openBrowser();
});

afterAll(async () => {
  await closeBrowser();
  await server.stop();
});

let contexts: BrowserContext[] = [];
afterEach(async () => {
  for (const context of contexts) await context.close();
  contexts = [];
});

async function openStudio(path: string): Promise<{ page: Page; context: BrowserContext; expectNoErrors: () => void }> {
  const opened = await openPage(server.url + path);
  contexts.push(opened.context);
  return opened;
}

/** The number of streams that the server has open. */
async function openStreams(): Promise<number> {
  const metrics = await (await fetch(`${server.url}/metrics`)).text();
  return Number(/^segue_streams_open (\d+)/m.exec(metrics)?.[1] ?? NaN);
}

describe('many tabs', () => {
  it('follow ten sessions with one stream', async () => {
    const names = Array.from({ length: 10 }, (_, index) => `tab-${index}`);
    for (const session of names) await server.post('/v1/sessions', { session, flow: 'chat' });
    const first = await openStudio(`/s/${names[0]}`);
    const tabs = [{ page: first.page, expectNoErrors: first.expectNoErrors }];
    for (const name of names.slice(1)) {
      const started = Date.now();
      tabs.push(await openTab(first.context, `${server.url}/s/${name}`));
      await tabs.at(-1)?.page.getByRole('textbox', { name: 'Message' }).waitFor();
      expect(Date.now() - started, `${name} opens at once`).toBeLessThan(10_000);
    }
    // Every tab receives what happens in its session, from somewhere else.
    for (const [index, name] of names.entries()) await server.post(`/v1/sessions/${name}/messages`, { text: `hello from ${index}` });
    for (const [index, tab] of tabs.entries()) await tab.page.locator('[data-turn="t1"]').getByText(`hello from ${index}`).first().waitFor();
    await expect.poll(openStreams).toBe(1);
    await screenshot(tabs[9]!.page, 'ten-tabs');
    // And every tab can send.
    await sendMessage(tabs[9]!.page, 'and back');
    await waitForTurnEnd(tabs[9]!.page, 't2');
    for (const tab of tabs) tab.expectNoErrors();
  });

  it('end the stream with the last tab', async () => {
    await server.post('/v1/sessions', { session: 'last', flow: 'chat' });
    const { page } = await openStudio('/s/last');
    await expect.poll(openStreams).toBe(1);
    await page.close();
    await expect.poll(openStreams, { timeout: 20_000 }).toBe(0);
  });
});

describe('the back/forward cache', () => {
  it('keeps no stream, and a page that comes back shows what it missed', async () => {
    for (const session of ['one', 'two', 'three', 'four']) await server.post('/v1/sessions', { session, flow: 'chat' });
    const { page, expectNoErrors } = await openStudio('/s/one');
    await page.getByRole('textbox', { name: 'Message' }).waitFor();
    for (const session of ['two', 'three', 'four']) {
      const started = Date.now();
      // A navigation of the browser, not of the studio.
      await page.goto(`${server.url}/s/${session}`);
      await page.getByRole('textbox', { name: 'Message' }).waitFor();
      expect(Date.now() - started, `${session} is not blank`).toBeLessThan(10_000);
    }
    await expect.poll(openStreams).toBe(1);
    await server.post('/v1/sessions/one/messages', { text: 'while you were away' });
    for (const session of ['three', 'two', 'one']) await goBack(page, `${server.url}/s/${session}`);
    await page.locator('[data-turn="t1"]').getByText('while you were away').first().waitFor();
    await sendMessage(page, 'I am back');
    await waitForTurnEnd(page, 't2');
    await expect.poll(openStreams).toBe(1);
    expectNoErrors();
  });
});

describe('a fork that would call models', () => {
  it('asks first', async () => {
    await server.post('/v1/sessions', { session: 'costly', flow: 'chat', models: { assistant: 'slow' } });
    await server.post('/v1/sessions/costly/messages', { text: 'tell me a story', wait: false });
    const received = (await server.get('/v1/sessions/costly/events')).events.find((event: { type: string }) => event.type === 'user_message_received');
    const { page, expectNoErrors } = await openStudio(`/s/costly?at=${received.seq}`);
    const before = (await server.get('/v1/sessions')).sessions.length;
    const asked = page.waitForEvent('dialog').then(async (dialog) => {
      const text = dialog.message();
      await dialog.dismiss();
      return text;
    });
    await page.getByRole('button', { name: 'Fork here' }).first().click();
    expect(await asked).toContain('may be billed');
    expect((await server.get('/v1/sessions')).sessions.length).toBe(before);
    page.once('dialog', (dialog) => void dialog.accept());
    await page.getByRole('button', { name: 'Fork here' }).first().click();
    await expect.poll(async () => (await server.get('/v1/sessions')).sessions.length).toBe(before + 1);
    expectNoErrors();
  });
});
