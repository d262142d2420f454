// A model's text is never executed.

import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { closeBrowser, openBrowser, openPage, sendMessage, waitForTurnEnd, waitUntilStable } from './browser';
import { scenario, Server } from './server';

let server: Server;

beforeAll(async () => {
  server = await Server.start({ models: { hostile: scenario('hostile') } });
  await openBrowser();
});

afterAll(async () => {
  await closeBrowser();
  await server.stop();
});

describe('a script tag in a model’s answer', () => {
  it('stays text in every view', async () => {
    await server.post('/v1/sessions', { session: 'hostile', flow: 'chat' });
    const { page, expectNoErrors } = await openPage(`${server.url}/s/hostile`);
    await sendMessage(page, '<script>window.owned = 9</script> **not bold**');
    await waitForTurnEnd(page, 't1');
    const reply = page.locator('[data-turn="t1"] .reply');
    expect(await reply.textContent()).toContain('Before <script>window.owned = 1</script> after.');
    expect(await reply.locator('script, img, iframe, svg:not(.meta svg, figcaption svg), style').count()).toBe(0);
    expect(await reply.locator('.prose a').count(), 'no link leads to a script').toBe(0);
    // The user's text is not rendered as Markdown either.
    expect(await page.locator('.bubble').textContent()).toBe('<script>window.owned = 9</script> **not bold**');
    for (const path of ['/s/hostile/c/c1', '/s/hostile/timeline', '/s/hostile/journal', '/s/hostile/threads/th/th1', '/s/hostile/compare/c1']) {
      await page.goto(server.url + path);
      await page.locator('main').waitFor();
      await waitUntilStable(page);
    }
    await page.goto(`${server.url}/s/hostile/c/c1`);
    for (const name of ['Exact text', 'Answer']) await page.getByRole('tab', { name }).click();
    await page.getByText('window.owned = 1').last().waitFor();
    expect(await page.evaluate(() => (window as unknown as { owned?: number }).owned)).toBeUndefined();
    expectNoErrors();
  });

  it('could not run even as an element', async () => {
    const answer = await fetch(server.url);
    const policy = answer.headers.get('content-security-policy') ?? '';
    expect(policy).toContain("default-src 'none'");
    expect(policy).toContain("script-src 'self'");
    expect(policy).not.toContain('unsafe');
    const { page } = await openPage(server.url);
    const ran = await page.evaluate(() => {
      const holder = document.createElement('div');
      holder.innerHTML = '<img src="data:," onerror="window.owned = 1">';
      document.body.append(holder);
      const script = document.createElement('script');
      script.textContent = 'window.owned = 2';
      document.body.append(script);
      return new Promise((resolve) => setTimeout(() => resolve((window as unknown as { owned?: number }).owned), 200));
    });
    expect(ran).toBeUndefined();
  });
});

describe('a server that requires a key', () => {
  it('shows nothing without the key, and everything with it', async () => {
    const guarded = await Server.start({ models: { hostile: scenario('instant') }, requireKey: true });
    try {
      const { page, expectNoErrors } = await openPage(guarded.url, { expectedErrors: /401/ });
      await page.getByLabel(/requires a key/).fill('sg_wrong');
      await page.getByRole('button', { name: 'Continue' }).click();
      await page.getByRole('alert').waitFor();
      await page.getByLabel(/requires a key/).fill(guarded.key);
      await page.getByRole('button', { name: 'Continue' }).click();
      await page.getByRole('heading', { name: 'Start a conversation' }).waitFor();
      await sendMessage(page, 'hello');
      await page.getByText('Answer 1 to “hello”').waitFor();
      await page.reload();
      await page.getByText('Answer 1 to “hello”').waitFor();
      expectNoErrors();
    } finally {
      await guarded.stop();
    }
  });
});
