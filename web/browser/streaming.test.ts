// What happens to words while they come: the page is reloaded, another tab looks on, the server dies, someone stops it.

import { afterAll, afterEach, beforeAll, describe, expect, it } from 'vitest';
import type { Page } from 'playwright-core';
import { closeBrowser, composer, ended, openBrowser, openPage, openTab, say } from './browser';
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

async function tell(session: string, manner = {}): Promise<{ page: Page; fine: () => void; context: import('playwright-core').BrowserContext }> {
  await server.post('/v1/sessions', { session, flow: 'chat' });
  const watched = await openPage(`${server.url}/s/${session}`, manner);
  open.push(() => watched.context.close());
  return watched;
}

/** Some words, and not all of them, are on the page. */
async function inMidStream(page: Page): Promise<void> {
  await page.getByText(/Once upon a time there was a fox who could count/).waitFor();
  expect(await page.getByText(STORY_END).count()).toBe(0);
}

/** The turns on the page, and how often the story's end stands in them. */
async function told(page: Page): Promise<{ turns: number; ends: number; messages: number }> {
  await page.getByText(STORY_END).waitFor();
  const text = (await page.getByRole('region', { name: 'Conversation' }).textContent()) ?? '';
  return { turns: await page.locator('[data-turn]').count(), ends: text.split(STORY_END).length - 1, messages: text.split('Tell me a story').length - 1 };
}

const ONCE = { turns: 1, ends: 1, messages: 1 };

describe('while words come', () => {
  it('a reload loses nothing and doubles nothing', async () => {
    const { page, fine } = await tell('reload');
    await say(page, 'Tell me a story');
    await inMidStream(page);
    await page.reload();
    // What was said before the reload is there again at once, not only at the end.
    await page.getByText(/Once upon a time/).waitFor();
    await ended(page, 't1');
    expect(await told(page)).toEqual(ONCE);
    expect((await server.get('/v1/sessions/reload')).calls).toBe(1);
    fine();
  });

  it('two tabs stay in step', async () => {
    const { page, context, fine } = await tell('tabs');
    const other = await openTab(context, `${server.url}/s/tabs`);
    await other.page.getByText('Nothing has been said yet').waitFor();
    await say(page, 'Tell me a story');
    await inMidStream(page);
    await inMidStream(other.page);
    await ended(page, 't1');
    await ended(other.page, 't1');
    expect(await told(page)).toEqual(ONCE);
    expect(await told(other.page)).toEqual(ONCE);
    // And the other way round.
    await say(other.page, 'hello from the other side');
    await page.getByText('You said: hello from the other side').waitFor();
    await ended(page, 't2');
    await ended(other.page, 't2');
    const shown = (tab: Page) => tab.locator('[data-turn="t2"] .prose').allTextContents();
    expect(await shown(page)).toEqual(await shown(other.page));
    fine();
    other.fine();
  });

  it('a server that dies in mid-turn and comes back ends the turn, on the page that waited', async () => {
    const { page, fine } = await tell('restart', { forgive: /ERR_|Failed to load/ });
    await page.evaluate(() => ((window as unknown as { same: boolean }).same = true));
    await say(page, 'Tell me a story');
    await inMidStream(page);
    await server.kill();
    await page.getByText('Reconnecting').waitFor();
    // What one writes meanwhile is kept and sent, once.
    await say(page, 'and then?');
    await page.getByText('the server cannot be reached; trying again').waitFor();
    await server.up();
    await ended(page, 't1');
    await page.getByText('You said: and then?').waitFor();
    await ended(page, 't2');
    expect(await told(page)).toMatchObject({ ends: 1, messages: 1 });
    expect(await page.getByText('Reconnecting').count()).toBe(0);
    expect(await page.evaluate(() => (window as unknown as { same?: boolean }).same), 'the page was not loaded anew').toBe(true);
    const { turns } = await server.get('/v1/sessions/restart/turns');
    expect(turns.map((turn: { messages: { text: string }[] }) => turn.messages.map((message) => message.text))).toEqual([['Tell me a story'], ['and then?']]);
    fine();
  });

  it('a turn can be stopped, and tried again', async () => {
    const { page, fine } = await tell('stop');
    await say(page, 'hang on');
    await page.getByText('Just a mo').waitFor();
    await page.getByRole('button', { name: 'Stop' }).click();
    await page.getByText('Stopped.').waitFor();
    await page.getByRole('button', { name: 'Retry' }).click();
    await page.locator('[data-turn="t2"]').getByText('Just a mo').waitFor();
    await composer(page).press('Escape');
    await page.locator('[data-turn="t2"]').getByText('Stopped.').waitFor();
    fine();
  });

  it('a message sent meanwhile waits its turn', async () => {
    const { page, fine } = await tell('queue');
    await say(page, 'Tell me a story');
    await inMidStream(page);
    await say(page, 'and another thing');
    await page.getByText('waits for this turn').waitFor();
    await page.getByText('You said: and another thing').waitFor();
    await ended(page, 't2');
    expect(await told(page)).toEqual({ turns: 2, ends: 1, messages: 1 });
    fine();
  });

  it('a turn that fails says why', async () => {
    const { page, fine } = await tell('fails');
    await say(page, 'please fail');
    await page.getByText(/This turn failed:.*this key was revoked/).waitFor();
    await page.getByRole('button', { name: 'Retry' }).click();
    await page.locator('[data-turn="t2"]').getByText(/This turn failed:/).waitFor();
    expect((await server.get('/v1/sessions/fails/turns')).turns.map((turn: { messages: { message: string }[] }) => turn.messages.map((message) => message.message))).toEqual([['m1'], ['m1']]);
    fine();
  });
});

describe('a conversation', () => {
  it('can go another way from an earlier message', async () => {
    const { page, fine } = await tell('stem');
    await say(page, 'one');
    await ended(page, 't1');
    await say(page, 'two');
    await ended(page, 't2');
    await page.locator('[data-turn="t2"]').getByRole('button', { name: 'Edit m2 in a branch' }).click();
    await page.getByRole('textbox', { name: 'Say it otherwise' }).fill('three');
    await page.getByRole('button', { name: 'Say this instead' }).click();
    await page.waitForURL((url) => !url.pathname.endsWith('/stem'));
    await page.getByText('You said: three').waitFor();
    await ended(page, 't2');
    const text = await page.getByRole('region', { name: 'Conversation' }).textContent();
    expect(text).toContain('You said: one');
    expect(text).not.toContain('You said: two');
    await page.getByRole('link', { name: 'of stem' }).waitFor();
    // The stem is as it was.
    const { turns } = await server.get('/v1/sessions/stem/turns');
    expect(turns.map((turn: { messages: { text: string }[] }) => turn.messages[0]?.text)).toEqual(['one', 'two']);
    fine();
  });

  it('can be shown images, which stay where they were shown', async () => {
    const { page, fine } = await tell('images');
    const pixel = Buffer.from('iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg==', 'base64');
    const chooser = page.getByLabel('Images to show');
    await chooser.setInputFiles({ name: 'notes.txt', mimeType: 'text/plain', buffer: Buffer.from('hello') });
    await page.getByText(/notes.txt is no image/).waitFor();
    await chooser.setInputFiles([1, 2].map((number) => ({ name: `${number}.png`, mimeType: 'image/png', buffer: pixel })));
    await page.getByRole('button', { name: 'Take image 2 away' }).click();
    await say(page, 'what is this?');
    await ended(page, 't1');
    const shown = page.locator('[data-turn="t1"]').getByRole('img', { name: 'Shown: png 1' });
    const drawn = () => shown.evaluate((image: HTMLImageElement) => image.naturalWidth);
    await expect.poll(drawn).toBe(1);
    await page.reload();
    await expect.poll(drawn).toBe(1);
    expect(await page.getByRole('img', { name: /^Shown/ }).count()).toBe(1);
    // The model saw it too.
    await page.goto(`${server.url}/s/images/c/c1`);
    const call = page.getByRole('region', { name: 'Call c1' });
    await call.getByRole('tab', { name: 'Exact text' }).click();
    await call.getByRole('img', { name: 'Shown: png 1' }).waitFor();
    fine();
  });

  it('keeps what is half written over a reload', async () => {
    const { page, fine } = await tell('draft');
    await composer(page).fill('half a thought');
    await page.reload();
    await expect.poll(() => composer(page).inputValue()).toBe('half a thought');
    fine();
  });

  it('appears in every list at once, and can be found by what was said', async () => {
    const { page, context, fine } = await tell('found');
    const other = await openTab(context, server.url);
    await say(page, 'the word is xylophone');
    await ended(page, 't1');
    await other.page.getByRole('navigation', { name: 'Sessions' }).getByText('the word is xylophone').waitFor();
    await other.page.getByRole('searchbox', { name: 'Search sessions' }).fill('xylophone');
    await other.page.getByText('1 match').waitFor();
    await other.page.getByRole('navigation', { name: 'Sessions' }).getByRole('link', { name: /xylophone/ }).click();
    await other.page.locator('[data-turn="t1"]').waitFor();
    fine();
    other.fine();
  });

  it('can be renamed, closed and erased', async () => {
    // What was being asked when it was erased finds nothing.
    const { page, fine } = await tell('brief', { forgive: /404/ });
    await say(page, 'hello');
    await ended(page, 't1');
    await page.getByRole('heading', { name: 'hello' }).getByRole('button').click();
    await page.getByRole('textbox', { name: 'Title' }).fill('A brief talk');
    await page.keyboard.press('Enter');
    await page.getByRole('heading', { name: 'A brief talk' }).waitFor();
    await page.getByRole('navigation', { name: 'Sessions' }).getByText('A brief talk').waitFor();
    await page.getByRole('button', { name: 'More', exact: true }).click();
    await page.getByRole('menuitem', { name: 'Close' }).click();
    await page.getByText(/^Closed:/).first().waitFor();
    page.on('dialog', (dialog) => void dialog.accept());
    await page.getByRole('button', { name: 'More', exact: true }).click();
    await page.getByRole('menuitem', { name: 'Erase' }).click();
    await page.getByRole('heading', { name: 'Where shall we begin?' }).waitFor();
    expect(await page.getByText('A brief talk').count()).toBe(0);
    fine();
  });
});
