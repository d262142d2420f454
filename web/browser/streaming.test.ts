// Streaming: the page is reloaded, another tab is open, the server is killed, the user stops the turn.

import { afterAll, afterEach, beforeAll, describe, expect, it } from 'vitest';
import type { Page } from 'playwright-core';
import { closeBrowser, composer, openBrowser, openPage, openTab, sendMessage, waitForTurnEnd } from './browser';
import { scenario, Server } from './server';

const STORY_END = 'That is where the story begins.';
let server: Server;

beforeAll(async () => {
  server = await Server.start({ models: { slow: scenario('slow'), other: scenario('instant') } });
  await openBrowser();
});

afterAll(async () => {
  await closeBrowser();
  await server.stop();
});

let open: (() => Promise<void>)[] = [];
afterEach(async () => {
  for (const close of open) await close();
  open = [];
});

async function openSession(session: string, options = {}): Promise<{ page: Page; expectNoErrors: () => void; context: import('playwright-core').BrowserContext }> {
  await server.post('/v1/sessions', { session, flow: 'chat' });
  const watched = await openPage(`${server.url}/s/${session}`, options);
  open.push(() => watched.context.close());
  return watched;
}

/** Waits until a part of the story, but not its end, is on the page. */
async function waitForMidStream(page: Page): Promise<void> {
  await page.getByText(/Once upon a time there was a fox who could count/).waitFor();
  expect(await page.getByText(STORY_END).count()).toBe(0);
}

/** Counts the turns, endings and requests of the story on the page. */
async function countStories(page: Page): Promise<{ turns: number; ends: number; messages: number }> {
  await page.getByText(STORY_END).waitFor();
  const text = (await page.getByRole('region', { name: 'Conversation' }).textContent()) ?? '';
  return { turns: await page.locator('[data-turn]').count(), ends: text.split(STORY_END).length - 1, messages: text.split('Tell me a story').length - 1 };
}

const ONCE = { turns: 1, ends: 1, messages: 1 };

describe('while a reply is streamed', () => {
  it('a reload loses and duplicates nothing', async () => {
    const { page, expectNoErrors } = await openSession('reload');
    await sendMessage(page, 'Tell me a story');
    await waitForMidStream(page);
    await page.reload();
    // The text from before the reload is shown again at once, not only at the end.
    await page.getByText(/Once upon a time/).waitFor();
    await waitForTurnEnd(page, 't1');
    expect(await countStories(page)).toEqual(ONCE);
    expect((await server.get('/v1/sessions/reload')).calls).toBe(1);
    expectNoErrors();
  });

  it('two tabs show the same', async () => {
    const { page, context, expectNoErrors } = await openSession('tabs');
    const other = await openTab(context, `${server.url}/s/tabs`);
    await other.page.getByText('No messages yet').waitFor();
    await sendMessage(page, 'Tell me a story');
    await waitForMidStream(page);
    await waitForMidStream(other.page);
    await waitForTurnEnd(page, 't1');
    await waitForTurnEnd(other.page, 't1');
    expect(await countStories(page)).toEqual(ONCE);
    expect(await countStories(other.page)).toEqual(ONCE);
    // The other tab sends, too.
    await sendMessage(other.page, 'hello from the other side');
    await page.getByText('You said: hello from the other side').waitFor();
    await waitForTurnEnd(page, 't2');
    await waitForTurnEnd(other.page, 't2');
    const shown = (tab: Page) => tab.locator('[data-turn="t2"] .prose').allTextContents();
    expect(await shown(page)).toEqual(await shown(other.page));
    expectNoErrors();
    other.expectNoErrors();
  });

  it('a server that is killed in mid-turn and restarted finishes the turn on the open page', async () => {
    const { page, expectNoErrors } = await openSession('restart', { expectedErrors: /ERR_|Failed to load/ });
    await page.evaluate(() => ((window as unknown as { same: boolean }).same = true));
    await sendMessage(page, 'Tell me a story');
    await waitForMidStream(page);
    await server.kill();
    await page.getByText('Reconnecting').waitFor();
    // A message written meanwhile is sent once.
    await sendMessage(page, 'and then?');
    await page.getByText('the server cannot be reached; retrying').waitFor();
    await server.up();
    await waitForTurnEnd(page, 't1');
    await page.getByText('You said: and then?').waitFor();
    await waitForTurnEnd(page, 't2');
    expect(await countStories(page)).toMatchObject({ ends: 1, messages: 1 });
    expect(await page.getByText('Reconnecting').count()).toBe(0);
    expect(await page.evaluate(() => (window as unknown as { same?: boolean }).same), 'the page was not reloaded').toBe(true);
    const { turns } = await server.get('/v1/sessions/restart/turns');
    expect(turns.map((turn: { messages: { text: string }[] }) => turn.messages.map((message) => message.text))).toEqual([['Tell me a story'], ['and then?']]);
    expectNoErrors();
  });

  it('a turn can be stopped and sent again', async () => {
    const { page, expectNoErrors } = await openSession('stop');
    await sendMessage(page, 'hang on');
    await page.getByText('Just a mo').waitFor();
    await page.getByRole('button', { name: 'Stop' }).click();
    await page.getByText('Stopped.').waitFor();
    await page.getByRole('button', { name: 'Retry' }).click();
    await page.locator('[data-turn="t2"]').getByText('Just a mo').waitFor();
    await composer(page).press('Escape');
    await page.locator('[data-turn="t2"]').getByText('Stopped.').waitFor();
    expectNoErrors();
  });

  it('a message sent meanwhile is queued', async () => {
    const { page, expectNoErrors } = await openSession('queue');
    await sendMessage(page, 'Tell me a story');
    await waitForMidStream(page);
    await sendMessage(page, 'and another thing');
    await page.getByText('queued until this turn ends').waitFor();
    await page.getByText('You said: and another thing').waitFor();
    await waitForTurnEnd(page, 't2');
    expect(await countStories(page)).toEqual({ turns: 2, ends: 1, messages: 1 });
    expectNoErrors();
  });

  it('a failed turn shows the reason', async () => {
    const { page, expectNoErrors } = await openSession('fails');
    await sendMessage(page, 'please fail');
    await page.getByText(/This turn failed:.*this key was revoked/).waitFor();
    await page.getByRole('button', { name: 'Retry' }).click();
    await page.locator('[data-turn="t2"]').getByText(/This turn failed:/).waitFor();
    expect((await server.get('/v1/sessions/fails/turns')).turns.map((turn: { messages: { message: string }[] }) => turn.messages.map((message) => message.message))).toEqual([['m1'], ['m1']]);
    expectNoErrors();
  });
});

describe('a conversation', () => {
  it('can fork from an earlier message', async () => {
    const { page, expectNoErrors } = await openSession('stem');
    await sendMessage(page, 'one');
    await waitForTurnEnd(page, 't1');
    await sendMessage(page, 'two');
    await waitForTurnEnd(page, 't2');
    await page.locator('[data-turn="t2"]').getByRole('button', { name: 'Edit m2 in a fork' }).click();
    await page.getByRole('textbox', { name: 'Edit message' }).fill('three');
    await page.getByRole('button', { name: 'Send in a fork' }).click();
    await page.waitForURL((url) => !url.pathname.endsWith('/stem'));
    await page.getByText('You said: three').waitFor();
    await waitForTurnEnd(page, 't2');
    const text = await page.getByRole('region', { name: 'Conversation' }).textContent();
    expect(text).toContain('You said: one');
    expect(text).not.toContain('You said: two');
    await page.getByRole('link', { name: 'forked from stem' }).waitFor();
    // The original session did not change.
    const { turns } = await server.get('/v1/sessions/stem/turns');
    expect(turns.map((turn: { messages: { text: string }[] }) => turn.messages[0]?.text)).toEqual(['one', 'two']);
    expectNoErrors();
  });

  it('can have images, which stay with their message', async () => {
    const { page, expectNoErrors } = await openSession('images');
    const pixel = Buffer.from('iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg==', 'base64');
    const chooser = page.getByLabel('Attach images');
    await chooser.setInputFiles({ name: 'notes.txt', mimeType: 'text/plain', buffer: Buffer.from('hello') });
    await page.getByText(/notes.txt is not a supported image/).waitFor();
    await chooser.setInputFiles([1, 2].map((number) => ({ name: `${number}.png`, mimeType: 'image/png', buffer: pixel })));
    await page.getByRole('button', { name: 'Remove image 2' }).click();
    await sendMessage(page, 'what is this?');
    await waitForTurnEnd(page, 't1');
    const shown = page.locator('[data-turn="t1"]').getByRole('img', { name: 'Image 1 (png)' });
    const drawn = () => shown.evaluate((image: HTMLImageElement) => image.naturalWidth);
    await expect.poll(drawn).toBe(1);
    await page.reload();
    await expect.poll(drawn).toBe(1);
    expect(await page.getByRole('img', { name: /^Image/ }).count()).toBe(1);
    // The prompt has the image too.
    await page.goto(`${server.url}/s/images/c/c1`);
    const call = page.getByRole('region', { name: 'Call c1' });
    await call.getByRole('tab', { name: 'Exact text' }).click();
    await call.getByRole('img', { name: 'Image 1 (png)' }).waitFor();
    expectNoErrors();
  });

  it('keeps a draft over a reload', async () => {
    const { page, expectNoErrors } = await openSession('draft');
    await composer(page).fill('half a thought');
    await page.reload();
    await expect.poll(() => composer(page).inputValue()).toBe('half a thought');
    expectNoErrors();
  });

  it('appears in every list at once, and can be found by its texts', async () => {
    const { page, context, expectNoErrors } = await openSession('found');
    const other = await openTab(context, server.url);
    await sendMessage(page, 'the word is xylophone');
    await waitForTurnEnd(page, 't1');
    await other.page.getByRole('navigation', { name: 'Sessions' }).getByText('the word is xylophone').waitFor();
    await other.page.getByRole('searchbox', { name: 'Search sessions' }).fill('xylophone');
    await other.page.getByText('1 match').waitFor();
    await other.page.getByRole('navigation', { name: 'Sessions' }).getByRole('link', { name: /xylophone/ }).click();
    await other.page.locator('[data-turn="t1"]').waitFor();
    expectNoErrors();
    other.expectNoErrors();
  });

  it('can be renamed, closed and deleted', async () => {
    // Requests that are open when the session is deleted find nothing.
    const { page, expectNoErrors } = await openSession('brief', { expectedErrors: /404/ });
    await sendMessage(page, 'hello');
    await waitForTurnEnd(page, 't1');
    await page.getByRole('heading', { name: 'hello' }).getByRole('button').click();
    await page.getByRole('textbox', { name: 'Title' }).fill('A brief talk');
    await page.keyboard.press('Enter');
    await page.getByRole('heading', { name: 'A brief talk' }).waitFor();
    await page.getByRole('navigation', { name: 'Sessions' }).getByText('A brief talk').waitFor();
    await page.getByRole('button', { name: 'More', exact: true }).click();
    // Closing cannot be undone, so it asks first.
    page.once('dialog', (dialog) => void dialog.dismiss());
    await page.getByRole('menuitem', { name: 'Close' }).click();
    expect((await server.get('/v1/sessions/brief')).closed_reason).toBeNull();
    page.on('dialog', (dialog) => void dialog.accept());
    await page.getByRole('button', { name: 'More', exact: true }).click();
    await page.getByRole('menuitem', { name: 'Close' }).click();
    await page.getByText(/^Closed:/).first().waitFor();
    await page.getByRole('button', { name: 'More', exact: true }).click();
    await page.getByRole('menuitem', { name: 'Delete' }).click();
    await page.getByRole('heading', { name: 'Start a conversation' }).waitFor();
    expect(await page.getByText('A brief talk').count()).toBe(0);
    expectNoErrors();
  });
});
