// Drives a real browser in the tests. A console error, an uncaught exception or a content policy violation on a page fails its test.

import { chromium, type Browser, type BrowserContext, type Page } from 'playwright-core';
import { mkdirSync, readFileSync, writeFileSync } from 'node:fs';
import { createRequire } from 'node:module';
import { join } from 'node:path';
import { expect } from 'vitest';
import { compressPng } from './png';

const FLAGS = ['--no-sandbox', '--disable-gpu', '--disable-quic', '--no-first-run', '--disable-background-networking', '--disable-component-update', '--disable-sync'];

/** All screenshots are written here. */
const PICTURES = join(import.meta.dirname, '../../target/pictures');
/** With `SEGUE_PICTURES=keep`, the screenshots that the documentation shows are compressed and written here. */
const DOCUMENTS = process.env['SEGUE_PICTURES'] === 'keep' ? join(import.meta.dirname, '../../docs/images') : null;
const KEPT = ['conversation', 'conversation-dark', 'receipt', 'receipt-dark', 'threads', 'threads-dark', 'map', 'timeline', 'progress', 'past', 'entities', 'phone'];

let browser: Browser | null = null;

/** Starts the browser. Playwright disables the back/forward cache, which people have. */
export async function openBrowser(): Promise<void> {
  const executablePath = process.env['SEGUE_CHROMIUM'];
  if (executablePath === undefined) throw new Error('SEGUE_CHROMIUM is not set to the path of Chromium; run `cargo xtask test`');
  browser = await chromium.launch({ executablePath, args: FLAGS, ignoreDefaultArgs: ['--disable-back-forward-cache'] });
}

export async function closeBrowser(): Promise<void> {
  await browser?.close();
  browser = null;
}

export interface PageOptions {
  width?: number;
  height?: number;
  scheme?: 'light' | 'dark';
  /** Errors that the test expects, such as failed requests while the server is down. */
  expectedErrors?: RegExp;
  /** For screenshots: a smaller page at twice the density. */
  forScreenshot?: boolean;
  bypassCSP?: boolean;
  motion?: 'reduce' | 'no-preference';
}

export interface WatchedPage {
  page: Page;
  context: BrowserContext;
  /** Fails the test if an unexpected error occurred on the page. */
  expectNoErrors: () => void;
}

export async function openPage(url: string, options: PageOptions = {}): Promise<WatchedPage> {
  if (!browser) throw new Error('the browser is not open');
  const context = await browser.newContext({
    viewport: { width: options.width ?? (options.forScreenshot ? 1280 : 1440), height: options.height ?? (options.forScreenshot ? 800 : 900) },
    colorScheme: options.scheme ?? 'light',
    deviceScaleFactor: options.forScreenshot ? 2 : 1,
    reducedMotion: options.motion ?? 'reduce',
    bypassCSP: options.bypassCSP ?? false,
    permissions: ['clipboard-read', 'clipboard-write'],
  });
  const page = await context.newPage();
  const expectNoErrors = collectErrors(page, options.expectedErrors);
  await page.goto(url);
  return { page, context, expectNoErrors };
}

/** Opens another tab in the same browser context. */
export async function openTab(context: BrowserContext, url: string): Promise<{ page: Page; expectNoErrors: () => void }> {
  const page = await context.newPage();
  const expectNoErrors = collectErrors(page);
  await page.goto(url);
  return { page, expectNoErrors };
}

/**
 * Goes back to `url`, which the browser may have kept. The page itself goes back, because the browser's own protocol refuses commands to a page
 * while it is replaced by the kept one.
 */
export async function goBack(page: Page, url: string): Promise<void> {
  await page.evaluate(() => void setTimeout(() => history.back()));
  await page.waitForURL(url, { waitUntil: 'commit' });
  await page.getByRole('textbox', { name: 'Message' }).waitFor();
}

function collectErrors(page: Page, expected?: RegExp): () => void {
  const errors: string[] = [];
  const record = (text: string) => {
    if (!expected?.test(text)) errors.push(text);
  };
  page.on('console', (message) => {
    if (message.type() === 'error') record(message.text());
  });
  page.on('pageerror', (error) => record(`${error.message}\n${error.stack ?? ''}`));
  return () => expect(errors, 'errors on the page').toEqual([]);
}

/** Takes a screenshot of the page in light and in dark mode. */
export async function screenshot(page: Page, name: string): Promise<void> {
  mkdirSync(PICTURES, { recursive: true });
  await page.evaluate(() => document.fonts.ready);
  for (const scheme of ['light', 'dark'] as const) {
    await page.emulateMedia({ colorScheme: scheme });
    const full = scheme === 'dark' ? `${name}-dark` : name;
    const taken = await page.screenshot({ path: join(PICTURES, `studio-${full}.png`) });
    if (DOCUMENTS !== null && KEPT.includes(full)) writeFileSync(join(DOCUMENTS, `studio-${full}.png`), compressPng(taken));
  }
  await page.emulateMedia({ colorScheme: 'light' });
}

const axe = readFileSync(createRequire(import.meta.url).resolve('axe-core/axe.min.js'), 'utf8');

/** Runs axe and returns one line for each violation. The page must bypass the content policy, which would block axe. */
export async function accessibilityViolations(page: Page): Promise<string[]> {
  await page.evaluate(axe);
  const found = await page.evaluate(async () => {
    const checker = (window as unknown as { axe: { run: (options: unknown) => Promise<{ violations: { id: string; impact: string; nodes: { html: string; failureSummary: string }[] }[] }> } }).axe;
    return (await checker.run({ resultTypes: ['violations'] })).violations;
  });
  return found.flatMap((rule) => rule.nodes.map((node) => `${rule.id} (${rule.impact}): ${node.html.slice(0, 160)}\n${node.failureSummary}`));
}

/** Waits until the page has not changed for a moment. The network is never idle, because streams stay open. */
export async function waitUntilStable(page: Page): Promise<void> {
  await page.evaluate(
    () =>
      new Promise<void>((resolve) => {
        const done = () => {
          observer.disconnect();
          resolve();
        };
        let timer = setTimeout(done, 250);
        const observer = new MutationObserver(() => {
          clearTimeout(timer);
          timer = setTimeout(done, 250);
        });
        observer.observe(document.body, { childList: true, subtree: true });
      }),
  );
}

export const composer = (page: Page) => page.getByRole('textbox', { name: 'Message' });

/** Types a message and sends it. */
export async function sendMessage(page: Page, text: string): Promise<void> {
  await composer(page).fill(text);
  await composer(page).press('Enter');
}

/** Waits until the page shows that a turn has ended. */
export async function waitForTurnEnd(page: Page, turn: string): Promise<void> {
  await page.locator(`[data-turn="${turn}"]`).waitFor();
  await page.locator(`[data-turn="${turn}"] .pulse`).waitFor({ state: 'detached' });
  await expect.poll(() => page.getByRole('button', { name: 'Stop' }).count(), { timeout: 30_000 }).toBe(0);
}
