// Accessibility: keyboard only, URLs, reduced motion, and the axe checker.

import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import type { Locator, Page } from 'playwright-core';
import { accessibilityViolations, closeBrowser, composer, openBrowser, openPage, sendMessage, waitForTurnEnd, waitUntilStable } from './browser';
import { startConciergeServer } from './scenes';
import { scenario, Server } from './server';

let server: Server;

beforeAll(async () => {
  server = await startConciergeServer('split');
  await openBrowser();
});

afterAll(async () => {
  await closeBrowser();
  await server.stop();
});

describe('the keyboard', () => {
  it('reaches every view', async () => {
    const { page, expectNoErrors } = await openPage(`${server.url}/s/split`);
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
    await page.getByRole('dialog', { name: 'Help' }).getByText('Layers of a prompt').waitFor();
    await page.keyboard.press('Escape');
    await page.keyboard.press('h');
    await page.getByRole('slider', { name: 'Event' }).waitFor();
    await page.keyboard.press('n');
    await page.getByRole('heading', { name: 'Start a conversation' }).waitFor();
    await page.goBack();
    await page.getByRole('navigation', { name: 'Views' }).waitFor();
    expectNoErrors();
  });

  it('reaches every control with Tab, and each shows its focus', async () => {
    const { page, expectNoErrors } = await openPage(`${server.url}/s/split`);
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
    for (const name of ['New conversation', 'Search sessions', 'Browse history', 'More', 'Timeline', 'Message']) expect([...seen]).toContain(name);
    expectNoErrors();
  });

  it('is enough for a whole conversation', async () => {
    const { page, expectNoErrors } = await openPage(server.url);
    const focused = (target: Locator) => target.evaluate((element) => element === document.activeElement);
    const press = async (key: string, until: Locator) => {
      for (let step = 0; step < 60 && !(await focused(until)); step += 1) await page.keyboard.press(key);
      expect(await focused(until)).toBe(true);
    };
    await composer(page).waitFor();
    // The message box has the focus.
    await expect.poll(() => focused(composer(page))).toBe(true);
    await page.keyboard.type('Who are you?');
    const chat = page.getByRole('radio', { name: /^chat/ });
    await press('Tab', page.getByRole('radio', { checked: true }));
    await press('ArrowLeft', chat);
    expect(await chat.getAttribute('aria-checked')).toBe('true');
    await press('Shift+Tab', composer(page));
    await page.keyboard.press('Enter');
    await page.waitForURL(/\/s\//);
    await waitForTurnEnd(page, 't1');
    // From the reply to its prompt, and back.
    await press('Shift+Tab', page.getByRole('link', { name: 'Show the prompt of c1' }));
    await page.keyboard.press('Enter');
    await page.getByRole('region', { name: 'Call c1' }).waitFor();
    await page.keyboard.press('Escape');
    await expect.poll(() => new URL(page.url()).pathname).toMatch(/^\/s\/[^/]+$/);
    expectNoErrors();
  });
});

describe('a URL', () => {
  it.each([
    ['/s/split', (page: Page) => page.locator('[data-turn="t6"]')],
    ['/s/split/t/t3', (page: Page) => page.getByRole('region', { name: 'Turn t3' })],
    ['/s/split/c/c12', (page: Page) => page.getByRole('region', { name: 'Call c12' }).getByRole('tab', { name: 'Prompt' })],
    ['/s/split/timeline/c/c12', (page: Page) => page.getByRole('region', { name: 'Call c12' }).getByRole('tab', { name: 'Prompt' })],
    ['/s/split/threads/th/th5', (page: Page) => page.getByRole('region', { name: 'Thread th5' })],
    ['/s/split/handovers/h/h1', (page: Page) => page.getByRole('region', { name: 'Handover h1' })],
    ['/s/split/artifacts/map?at=31', (page: Page) => page.getByText('ship daily before you split').first()],
    ['/s/split?at=31', (page: Page) => page.getByText('Viewing event 31 (read-only)')],
  ])('opens %s, can be copied, and opens it again', async (path, there) => {
    const { page, context, expectNoErrors } = await openPage(server.url + path);
    await there(page).waitFor();
    await page.getByRole('button', { name: 'More', exact: true }).click();
    await page.getByRole('menuitem', { name: 'Copy link' }).click();
    await page.getByText('Link copied').waitFor();
    const copied = await page.evaluate(() => navigator.clipboard.readText());
    expect(copied).toBe(server.url + path);
    const other = await context.newPage();
    await other.goto(copied);
    await there(other).waitFor();
    expectNoErrors();
  });

  it('of an unknown page shows an error', async () => {
    const { page } = await openPage(`${server.url}/s/split/c/c999`, { expectedErrors: /404/ });
    await page.getByRole('region', { name: 'Call c999' }).getByRole('alert').waitFor();
    await page.goto(`${server.url}/s/missing`);
    await page.getByRole('alert').waitFor();
    await page.goto(`${server.url}/nowhere`);
    await page.getByText('Page not found').waitFor();
  });
});

describe('motion', () => {
  /** The duration of the longest animation on the page, in milliseconds. */
  const longestAnimation = (page: Page) =>
    page.evaluate(() => Math.max(0, ...document.getAnimations().map((moving) => Number(moving.effect?.getComputedTiming().activeDuration ?? 0))));

  it.each([
    ['reduce', (longest: number) => longest < 10],
    ['no-preference', (longest: number) => longest > 1_000],
  ] as const)('follows the system setting: %s', async (motion, fits) => {
    const slow = await Server.start({ models: { slow: scenario('slow') } });
    try {
      await slow.post('/v1/sessions', { session: 'still', flow: 'chat' });
      const { page, expectNoErrors } = await openPage(`${slow.url}/s/still`, { motion });
      await sendMessage(page, 'hang on');
      await page.getByText('Just a mo').waitFor();
      await expect.poll(async () => fits(await longestAnimation(page))).toBe(true);
      await page.getByRole('button', { name: 'Stop' }).click();
      await page.getByText('Stopped.').waitFor();
      expectNoErrors();
    } finally {
      await slow.stop();
    }
  });
});

const PAGES = ['/', '/s/split', '/s/split/c/c12', '/s/split/t/t3', '/s/split/timeline', '/s/split/threads', '/s/split/threads/th/th5', '/s/split/phases', '/s/split/handovers/h/h1', '/s/split/artifacts/map', '/s/split/artifacts/workflow', '/s/split/ledger', '/s/split/journal', '/s/split/compare/c8/c9', '/s/split?at=40', '/s/missing', '/nowhere'];

type Opening = [name: string, path: string, open: (page: Page) => Promise<void>];

/** Overlays and panels, and how to open them. */
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
  ['history', '/s/split/timeline', (page) => page.getByRole('button', { name: 'Browse history' }).click()],
  ...['Exact text', 'Changes', 'Answer', 'Re-run'].map((name): Opening => [`“${name}” of a call`, '/s/split/c/c12', (page) => page.getByRole('tab', { name }).click()]),
];

describe.each(['light', 'dark'] as const)('an accessibility checker (%s)', (scheme) => {
  it.each([
    ['on a desktop', 1440],
    ['on a phone', 390],
  ])('finds nothing %s', { timeout: 300_000 }, async (_, width) => {
    const { page, context } = await openPage(server.url, { scheme, width, bypassCSP: true });
    for (const path of PAGES) {
      await page.goto(server.url + path);
      await page.locator('main, [role=alert]').first().waitFor();
      await waitUntilStable(page);
      expect(await accessibilityViolations(page), path).toEqual([]);
      expect(await page.evaluate(() => document.documentElement.scrollWidth - window.innerWidth), `${path}: no horizontal overflow`).toBeLessThanOrEqual(0);
    }
    for (const [name, path, open] of OPENED) {
      await page.goto(server.url + path);
      await page.locator('main').waitFor();
      await waitUntilStable(page);
      await open(page);
      await waitUntilStable(page);
      expect(await accessibilityViolations(page), name).toEqual([]);
    }
    await context.close();
  });
});
