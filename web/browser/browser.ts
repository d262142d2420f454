// A real browser for the tests. Every page is watched: an error in the console, an uncaught exception or anything the content policy stopped fails the test that
// made it.

import { chromium, type Browser, type BrowserContext, type Page } from 'playwright-core';
import { mkdirSync, readFileSync, writeFileSync } from 'node:fs';
import { createRequire } from 'node:module';
import { join } from 'node:path';
import { expect } from 'vitest';
import { small } from './png';

const FLAGS = ['--no-sandbox', '--disable-gpu', '--disable-quic', '--no-first-run', '--disable-background-networking', '--disable-component-update', '--disable-sync'];

/** Every picture goes here, beside what is built. */
const PICTURES = join(import.meta.dirname, '../../target/pictures');
/** Those that the documents show are put there too, made small, if that is asked for. */
const DOCUMENTS = process.env['SEGUE_PICTURES'] === 'keep' ? join(import.meta.dirname, '../../docs/images') : null;
const KEPT = ['conversation', 'conversation-dark', 'receipt', 'receipt-dark', 'threads', 'threads-dark', 'map', 'timeline', 'progress', 'past', 'entities', 'phone'];

let browser: Browser | null = null;

export async function openBrowser(): Promise<void> {
  const executablePath = process.env['SEGUE_CHROMIUM'];
  if (executablePath === undefined) throw new Error('SEGUE_CHROMIUM does not say where Chromium is; run `cargo xtask test`');
  browser = await chromium.launch({ executablePath, args: FLAGS });
}

export async function closeBrowser(): Promise<void> {
  await browser?.close();
  browser = null;
}

export interface Manner {
  width?: number;
  height?: number;
  scheme?: 'light' | 'dark';
  /** What may go wrong on purpose, such as requests while the server is away. */
  forgive?: RegExp;
  /** For pictures: smaller, at twice the density. */
  sharp?: boolean;
  bypassCSP?: boolean;
  motion?: 'reduce' | 'no-preference';
}

export interface Watched {
  page: Page;
  context: BrowserContext;
  /** Fails if anything went wrong on the page. */
  fine: () => void;
}

export async function openPage(url: string, manner: Manner = {}): Promise<Watched> {
  if (!browser) throw new Error('the browser is not open');
  const context = await browser.newContext({
    viewport: { width: manner.width ?? (manner.sharp ? 1280 : 1440), height: manner.height ?? (manner.sharp ? 800 : 900) },
    colorScheme: manner.scheme ?? 'light',
    deviceScaleFactor: manner.sharp ? 2 : 1,
    reducedMotion: manner.motion ?? 'reduce',
    bypassCSP: manner.bypassCSP ?? false,
    permissions: ['clipboard-read', 'clipboard-write'],
  });
  const page = await context.newPage();
  const fine = watch(page, manner.forgive);
  await page.goto(url);
  return { page, context, fine };
}

/** Another tab of the same person. */
export async function openTab(context: BrowserContext, url: string): Promise<{ page: Page; fine: () => void }> {
  const page = await context.newPage();
  const fine = watch(page);
  await page.goto(url);
  return { page, fine };
}

function watch(page: Page, forgive?: RegExp): () => void {
  const wrong: string[] = [];
  const note = (text: string) => {
    if (!forgive?.test(text)) wrong.push(text);
  };
  page.on('console', (message) => {
    if (message.type() === 'error') note(message.text());
  });
  page.on('pageerror', (error) => note(`${error.message}\n${error.stack ?? ''}`));
  return () => expect(wrong, 'what went wrong on the page').toEqual([]);
}

/** A picture of the page, by day and by night. */
export async function picture(page: Page, name: string): Promise<void> {
  mkdirSync(PICTURES, { recursive: true });
  await page.evaluate(() => document.fonts.ready);
  for (const scheme of ['light', 'dark'] as const) {
    await page.emulateMedia({ colorScheme: scheme });
    const full = scheme === 'dark' ? `${name}-dark` : name;
    const taken = await page.screenshot({ path: join(PICTURES, `studio-${full}.png`) });
    if (DOCUMENTS !== null && KEPT.includes(full)) writeFileSync(join(DOCUMENTS, `studio-${full}.png`), small(taken));
  }
  await page.emulateMedia({ colorScheme: 'light' });
}

const axe = readFileSync(createRequire(import.meta.url).resolve('axe-core/axe.min.js'), 'utf8');

/** What an accessibility checker finds on the page, a line each. The page must bypass the content policy, which would stop the checker. */
export async function flaws(page: Page): Promise<string[]> {
  await page.evaluate(axe);
  const found = await page.evaluate(async () => {
    const checker = (window as unknown as { axe: { run: (options: unknown) => Promise<{ violations: { id: string; impact: string; nodes: { html: string; failureSummary: string }[] }[] }> } }).axe;
    return (await checker.run({ resultTypes: ['violations'] })).violations;
  });
  return found.flatMap((rule) => rule.nodes.map((node) => `${rule.id} (${rule.impact}): ${node.html.slice(0, 160)}\n${node.failureSummary}`));
}

/** Waits until nothing on the page has changed for a moment. Streams never end, so the network is never idle. */
export async function quiet(page: Page): Promise<void> {
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
export async function say(page: Page, text: string): Promise<void> {
  await composer(page).fill(text);
  await composer(page).press('Enter');
}

/** Waits until a turn has ended on the page. */
export async function ended(page: Page, turn: string): Promise<void> {
  await page.locator(`[data-turn="${turn}"]`).waitFor();
  await page.locator(`[data-turn="${turn}"] .pulse`).waitFor({ state: 'detached' });
  await expect.poll(() => page.getByRole('button', { name: 'Stop' }).count(), { timeout: 30_000 }).toBe(0);
}
