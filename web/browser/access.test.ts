// For everybody: by keyboard alone, by address, without motion, and with whatever reads the page aloud.

import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import type { Locator, Page } from 'playwright-core';
import { closeBrowser, composer, ended, flaws, openBrowser, openPage, quiet, say } from './browser';
import { splitIntoServices } from './scenes';
import { scenario, Server } from './server';

let server: Server;

beforeAll(async () => {
  server = await splitIntoServices('split');
  await openBrowser();
});

afterAll(async () => {
  await closeBrowser();
  await server.stop();
});

describe('the keyboard', () => {
  it('goes anywhere', async () => {
    const { page, fine } = await openPage(`${server.url}/s/split`);
    await page.locator('[data-turn="t6"]').waitFor();
    await page.keyboard.press('Control+k');
    await page.keyboard.type('c5');
    await page.keyboard.press('Enter');
    await page.getByRole('region', { name: 'Call c5' }).waitFor();
    await page.keyboard.press('Escape');
    await page.keyboard.press('Escape');
    await page.keyboard.press('k');
    await page.getByRole('region', { name: 'Turn t6' }).waitFor();
    await page.keyboard.press('k');
    await page.getByRole('region', { name: 'Turn t5' }).waitFor();
    await page.keyboard.press(']');
    await expect.poll(() => new URL(page.url()).pathname).toBe('/s/split/timeline');
    await page.keyboard.press('?');
    await page.getByRole('dialog', { name: 'Help' }).getByText('What a prompt is made of').waitFor();
    await page.keyboard.press('Escape');
    await page.keyboard.press('h');
    await page.getByRole('slider', { name: 'Event' }).waitFor();
    await page.keyboard.press('n');
    await page.getByRole('heading', { name: 'Where shall we begin?' }).waitFor();
    await page.goBack();
    await page.getByRole('navigation', { name: 'Views' }).waitFor();
    fine();
  });

  it('reaches every control with Tab, and each shows that it is reached', async () => {
    const { page, fine } = await openPage(`${server.url}/s/split`);
    await page.locator('[data-turn="t6"]').waitFor();
    const seen = new Set<string>();
    for (let step = 0; step < 60; step += 1) {
      await page.keyboard.press('Tab');
      const here = await page.evaluate(() => {
        const element = document.activeElement as HTMLElement | null;
        if (!element || element === document.body) return null;
        const style = getComputedStyle(element);
        const ring = style.outlineStyle !== 'none' || style.boxShadow !== 'none' || element.closest('.composer, .track') !== null;
        return { name: element.getAttribute('aria-label') ?? element.textContent?.trim().slice(0, 40) ?? '', ring };
      });
      if (here === null) continue;
      expect(here.ring, `${here.name} shows its focus`).toBe(true);
      seen.add(here.name);
    }
    for (const name of ['New conversation', 'Search sessions', 'Go through time', 'More', 'Timeline', 'Message']) expect([...seen]).toContain(name);
    fine();
  });

  it('is enough for a whole conversation', async () => {
    const { page, fine } = await openPage(server.url);
    const focused = (target: Locator) => target.evaluate((element) => element === document.activeElement);
    const press = async (key: string, until: Locator) => {
      for (let step = 0; step < 60 && !(await focused(until)); step += 1) await page.keyboard.press(key);
      expect(await focused(until)).toBe(true);
    };
    await composer(page).waitFor();
    // The cursor stands where one writes.
    await expect.poll(() => focused(composer(page))).toBe(true);
    await page.keyboard.type('Who are you?');
    const chat = page.getByRole('radio', { name: /^chat/ });
    await press('Tab', page.getByRole('radio', { checked: true }));
    await press('ArrowLeft', chat);
    expect(await chat.getAttribute('aria-checked')).toBe('true');
    await press('Shift+Tab', composer(page));
    await page.keyboard.press('Enter');
    await page.waitForURL(/\/s\//);
    await ended(page, 't1');
    // From the reply to what the model was shown, and back.
    await press('Shift+Tab', page.getByRole('link', { name: 'What c1 was shown' }));
    await page.keyboard.press('Enter');
    await page.getByRole('region', { name: 'Call c1' }).waitFor();
    await page.keyboard.press('Escape');
    await expect.poll(() => new URL(page.url()).pathname).toMatch(/^\/s\/[^/]+$/);
    fine();
  });
});

describe('an address', () => {
  it.each([
    ['/s/split', (page: Page) => page.locator('[data-turn="t6"]')],
    ['/s/split/t/t3', (page: Page) => page.getByRole('region', { name: 'Turn t3' })],
    ['/s/split/c/c12', (page: Page) => page.getByRole('region', { name: 'Call c12' }).getByRole('tab', { name: 'Prompt' })],
    ['/s/split/timeline/c/c12', (page: Page) => page.getByRole('region', { name: 'Call c12' }).getByRole('tab', { name: 'Prompt' })],
    ['/s/split/threads/th/th5', (page: Page) => page.getByRole('region', { name: 'Thread th5' })],
    ['/s/split/handovers/h/h1', (page: Page) => page.getByRole('region', { name: 'Handover h1' })],
    ['/s/split/x/map?at=31', (page: Page) => page.getByText('ship daily before you split').first()],
    ['/s/split?at=31', (page: Page) => page.getByText('This is the past.', { exact: false })],
  ])('leads to %s, can be copied, and leads there again', async (path, there) => {
    const { page, context, fine } = await openPage(server.url + path);
    await there(page).waitFor();
    await page.getByRole('button', { name: 'More', exact: true }).click();
    await page.getByRole('menuitem', { name: 'Copy a link to this' }).click();
    await page.getByText('Link copied').waitFor();
    const copied = await page.evaluate(() => navigator.clipboard.readText());
    expect(copied).toBe(server.url + path);
    const other = await context.newPage();
    await other.goto(copied);
    await there(other).waitFor();
    fine();
  });

  it('of nothing says so', async () => {
    const { page } = await openPage(`${server.url}/s/split/c/c999`, { forgive: /404/ });
    await page.getByRole('region', { name: 'Call c999' }).getByRole('alert').waitFor();
    await page.goto(`${server.url}/s/nobody`);
    await page.getByRole('alert').waitFor();
    await page.goto(`${server.url}/nowhere`);
    await page.getByText('There is nothing here').waitFor();
  });
});

describe('motion', () => {
  /** How long anything on the page moves, at the longest, in milliseconds. */
  const moves = (page: Page) =>
    page.evaluate(() => Math.max(0, ...document.getAnimations().map((moving) => Number(moving.effect?.getComputedTiming().activeDuration ?? 0))));

  it.each([
    ['reduce', (longest: number) => longest < 10],
    ['no-preference', (longest: number) => longest > 1_000],
  ] as const)('is as the system asks: %s', async (motion, fits) => {
    const slow = await Server.start({ models: { slow: scenario('slow') } });
    try {
      await slow.post('/v1/sessions', { session: 'still', flow: 'chat' });
      const { page, fine } = await openPage(`${slow.url}/s/still`, { motion });
      await say(page, 'hang on');
      await page.getByText('Just a mo').waitFor();
      await expect.poll(async () => fits(await moves(page))).toBe(true);
      await page.getByRole('button', { name: 'Stop' }).click();
      await page.getByText('Stopped.').waitFor();
      fine();
    } finally {
      await slow.stop();
    }
  });
});

const PAGES = ['/', '/s/split', '/s/split/c/c12', '/s/split/t/t3', '/s/split/timeline', '/s/split/threads', '/s/split/threads/th/th5', '/s/split/phases', '/s/split/handovers/h/h1', '/s/split/x/map', '/s/split/x/workflow', '/s/split/ledger', '/s/split/journal', '/s/split/compare/c8/c9', '/s/split?at=40', '/s/nobody', '/nowhere'];

type Opening = [name: string, path: string, open: (page: Page) => Promise<void>];

/** What opens above or beside a page, and how. */
const OPENED: Opening[] = [
  ['the palette', '/s/split', (page) => page.keyboard.press('Control+k')],
  [
    'help',
    '/s/split',
    async (page) => {
      await page.keyboard.press('Control+k');
      await page.keyboard.type('help');
      await page.keyboard.press('Enter');
      await page.getByRole('dialog', { name: 'Help' }).waitFor();
    },
  ],
  ['the menu', '/s/split', (page) => page.getByRole('button', { name: 'More', exact: true }).click()],
  [
    'settings',
    '/',
    async (page) => {
      await page.getByRole('radio', { name: /concierge/ }).click();
      await page.getByRole('button', { name: 'Models and settings' }).click();
      await page.getByRole('group', { name: 'Experts' }).getByRole('button', { name: 'birch' }).click();
    },
  ],
  ['time', '/s/split/timeline', (page) => page.getByRole('button', { name: 'Go through time' }).click()],
  ...['Exact text', 'What changed', 'Answer', 'Once more'].map((name): Opening => [`“${name}” of a call`, '/s/split/c/c12', (page) => page.getByRole('tab', { name }).click()]),
];

describe.each(['light', 'dark'] as const)('an accessibility checker (%s)', (scheme) => {
  it.each([
    ['at a desk', 1440],
    ['on a phone', 390],
  ])('finds nothing %s', { timeout: 300_000 }, async (_, width) => {
    const { page, context } = await openPage(server.url, { scheme, width, bypassCSP: true });
    for (const path of PAGES) {
      await page.goto(server.url + path);
      await page.locator('main, [role=alert]').first().waitFor();
      await quiet(page);
      expect(await flaws(page), path).toEqual([]);
      expect(await page.evaluate(() => document.documentElement.scrollWidth - window.innerWidth), `${path}: nothing sticks out`).toBeLessThanOrEqual(0);
    }
    for (const [name, path, open] of OPENED) {
      await page.goto(server.url + path);
      await page.locator('main').waitFor();
      await quiet(page);
      await open(page);
      await quiet(page);
      expect(await flaws(page), name).toEqual([]);
    }
    await context.close();
  });
});
