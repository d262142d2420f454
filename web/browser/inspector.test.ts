// The inspector's views, compared with the server's responses.

import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { closeBrowser, openBrowser, openPage, screenshot } from './browser';
import { startConciergeServer } from './scenes';
import type { Server } from './server';

let server: Server;

beforeAll(async () => {
  server = await startConciergeServer('split');
  await openBrowser();
});

afterAll(async () => {
  await closeBrowser();
  await server.stop();
});

describe('the receipt of a call', () => {
  it('shows every fragment with its tokens, source and reason, the omitted fragments, and the reason for the thread', async () => {
    const receipt = await server.get('/v1/sessions/split/calls/c12');
    const { page, expectNoErrors } = await openPage(`${server.url}/s/split/c/c12`, { forScreenshot: true });
    const panel = page.getByRole('region', { name: 'Call c12' });
    await panel.getByText(receipt.thread_reason).waitFor();
    await panel.getByText(receipt.cache_summary.replaceAll('`', ''), { exact: false }).first().waitFor();
    const rows = panel.locator('.fragment');
    expect(await rows.count()).toBe(receipt.fragments.length);
    for (const [index, fragment] of receipt.fragments.entries()) {
      const text = (await rows.nth(index).textContent()) ?? '';
      expect(text).toContain(fragment.name);
      expect(text).toContain(fragment.layer.replaceAll('_', ' '));
      expect(text).toContain(fragment.reason);
      expect(text).toContain(fragment.tokens.toLocaleString('en-US'));
    }
    for (const fragment of receipt.omitted_fragments) expect(await panel.locator('.out').textContent()).toContain(fragment.reason);
    // Heights are in proportion to tokens.
    const heights = await panel.locator('rect.segment').evaluateAll((list) => list.map((rect) => rect.getBoundingClientRect().height));
    const large = receipt.fragments.map((fragment: { tokens: number }, index: number) => ({ tokens: fragment.tokens, height: heights[index] ?? 0 })).filter((part: { tokens: number }) => part.tokens > 50);
    const scale = large[0].height / large[0].tokens;
    for (const part of large) expect(part.height / part.tokens / scale).toBeCloseTo(1, 1);
    await screenshot(page, 'receipt');

    // The text of one fragment, then the exact prompt, then the changes.
    const goal = panel.locator('.fragment.layer-handover').first();
    await goal.getByRole('button').click();
    expect(await goal.locator('pre').textContent()).toContain('billing can be changed and released');
    await panel.getByRole('tab', { name: 'Exact text' }).click();
    await panel.getByText('digest').waitFor();
    const prompt = await server.get('/v1/sessions/split/calls/c12/prompt');
    expect(await panel.locator('.message pre').allTextContents()).toEqual(prompt.messages.map((message: { text: string }) => message.text));
    await panel.getByRole('tab', { name: 'Changes' }).click();
    await panel.locator('.line.added').first().waitFor();
    const diff = await server.get('/v1/sessions/split/calls/c12/diff');
    expect(await panel.locator('.line.added').count()).toBe(diff.lines.filter((line: { type: string }) => line.type === 'added').length);
    await panel.getByRole('tab', { name: 'Answer' }).click();
    // The answer includes the hidden blocks.
    await panel.getByText('<<<STEPS>>>').waitFor();
    await page.keyboard.press('Escape');
    await expect.poll(() => new URL(page.url()).pathname).toBe('/s/split');
    expectNoErrors();
  });

  it('opens from a reply, and each turn shows all its prompts', async () => {
    const { page, expectNoErrors } = await openPage(`${server.url}/s/split/t/t3`);
    const panel = page.getByRole('region', { name: 'Turn t3' });
    await panel.getByRole('img', { name: /^c12 concierge/ }).waitFor();
    expect(await panel.getByRole('img', { name: /^c\d+ expert/ }).count()).toBe(3);
    await page.locator('[data-turn="t3"]').getByRole('link', { name: 'Show the prompt of c7' }).click();
    await page.getByRole('region', { name: 'Call c7' }).getByText('in explorer').waitFor();
    expectNoErrors();
  });
});

describe('views', () => {
  it('show turns, retries, phases and refusals on a timeline', async () => {
    const { page, expectNoErrors } = await openPage(`${server.url}/s/split/timeline`, { forScreenshot: true });
    const first = page.getByRole('region', { name: 'Turn t1' });
    await first.getByTitle(/c2: expert \(question\) on birch.*2 attempts/).waitFor();
    await first.locator('.bar.waiting').waitFor();
    await page.getByRole('region', { name: 'Turn t2' }).getByText('starter → explorer').waitFor();
    await page.getByRole('region', { name: 'Turn t3' }).getByText('refused').waitFor();
    await page.getByRole('region', { name: 'Turn t3' }).getByRole('link', { name: 'handover h2' }).waitFor();
    await screenshot(page, 'timeline');
    await first.getByTitle(/^c4: mapper/).click();
    const receipt = await server.get('/v1/sessions/split/calls/c4');
    await page.getByRole('region', { name: 'Call c4' }).getByText(receipt.thread_reason).waitFor();
    expectNoErrors();
  });

  it('show threads as lanes: the experts continue, the mapper is fresh, the concierge starts again', async () => {
    const { page, expectNoErrors } = await openPage(`${server.url}/s/split/threads`, { forScreenshot: true });
    await page.getByText('expert birch').first().waitFor();
    expect(await page.locator('svg .begin.fresh').count(), 'one point for each call of the mapper').toBe(3);
    expect(await page.locator('svg .life').count(), 'three experts, and three threads of the concierge').toBe(6);
    await screenshot(page, 'threads');
    await page.getByRole('link', { name: 'th8' }).click();
    await page.getByRole('region', { name: 'Thread th8' }).getByText('the phase executor', { exact: false }).waitFor();
    expectNoErrors();
  });

  it('show the phases with the path taken, and refuse what the graph refuses', async () => {
    const { page, expectNoErrors } = await openPage(`${server.url}/s/split/phases`, { expectedErrors: /409/, forScreenshot: true });
    await page.getByText('handover intent').waitFor();
    expect(await page.locator('.edge.taken').count()).toBe(2);
    await screenshot(page, 'phases');
    await page.getByRole('button', { name: 'Move conversation' }).click();
    await page.getByRole('menuitem', { name: 'Propose starter' }).click();
    await page.getByText(/cannot be entered from `executor`/).first().waitFor();
    await page.getByText('starter refused').waitFor();
    expectNoErrors();
  });

  it('show handovers with the source of each field', async () => {
    const { page, expectNoErrors } = await openPage(`${server.url}/s/split/handovers`);
    const card = page.getByRole('article', { name: 'Handover h1' });
    await card.getByText('a fifth person joins in May').first().waitFor();
    const handovers = (await server.get('/v1/sessions/split/handovers')).handovers;
    const found = handovers[0].fields.flatMap((field: { value: unknown; found_in: unknown[] }) => (field.value === null ? [] : field.found_in));
    expect(await card.locator('.from .tag').count()).toBe(found.length);
    await card.getByRole('link', { name: 'c7' }).click();
    await page.getByRole('region', { name: 'Call c7' }).waitFor();
    expectNoErrors();
  });

  it('show the map of claims with their relations and sources', async () => {
    const { page, expectNoErrors } = await openPage(`${server.url}/s/split/artifacts/map`, { forScreenshot: true });
    await page.getByText('ship daily before you split').first().waitFor();
    expect(await page.locator('.node').count()).toBe(6);
    expect(await page.locator('.edge').count()).toBe(6);
    const held = page.locator('tr', { has: page.getByRole('rowheader', { name: 'keep one program, with modules' }) });
    expect(await held.getByRole('img', { name: 'yes' }).count(), 'all three support it').toBe(3);
    await page.getByRole('button', { name: /split by team/ }).click();
    await page.getByText('conflicts with “keep one program, with modules”').first().waitFor();
    await page.getByRole('button', { name: /split by team/ }).click();
    await screenshot(page, 'map');
    expectNoErrors();
  });

  it('show the totals of the ledger', async () => {
    const { page, expectNoErrors } = await openPage(`${server.url}/s/split/ledger`);
    const { total, roles } = await server.get('/v1/sessions/split/ledger');
    await page.getByText(total.input.toLocaleString('en-US'), { exact: true }).first().waitFor();
    const table = page.getByRole('region', { name: 'By role' });
    for (const role of roles) await table.getByRole('row', { name: new RegExp(`${role.name}.*${role.spent.output.toLocaleString('en-US')}`) }).waitFor();
    expectNoErrors();
  });

  it('are only those for which the session has data', async () => {
    await server.post('/v1/sessions', { session: 'bare', flow: 'chat' });
    const { page, expectNoErrors } = await openPage(`${server.url}/s/bare`);
    const tabs = page.getByRole('navigation', { name: 'Views' });
    await tabs.getByRole('link', { name: 'Journal' }).waitFor();
    expect(await tabs.getByRole('link').allTextContents()).toEqual(['Conversation', 'Journal']);
    expectNoErrors();
  });
});

describe('history', () => {
  it('can be browsed event by event, and forked from anywhere', async () => {
    const { page, expectNoErrors } = await openPage(`${server.url}/s/split?at=31`, { forScreenshot: true });
    await page.getByText('Viewing event 31 (read-only)').waitFor();
    expect(await page.locator('[data-turn]').count()).toBe(2);
    await page.getByText('explorer, now').waitFor();
    await page.getByRole('button', { name: 'Previous event' }).click();
    await page.getByText('starter, now').waitFor();
    await expect.poll(() => new URL(page.url()).search).toBe('?at=30');
    await screenshot(page, 'past');
    // The fork continues an unanswered message, so the studio asks first.
    page.once('dialog', (dialog) => void dialog.accept());
    await page.getByRole('button', { name: 'Fork here' }).first().click();
    await page.waitForURL((url) => !url.pathname.startsWith('/s/split'));
    await page.getByRole('link', { name: 'forked from split' }).waitFor();
    const name = new URL(page.url()).pathname.split('/')[2];
    expect(await server.get(`/v1/sessions/${name}`)).toMatchObject({ turns: 2, forked_from: { session: 'split', at: 30 } });
    expectNoErrors();
  });

  it('does not change when a call is re-run with another model and compared', async () => {
    const before = await server.get('/v1/sessions/split');
    const { page, expectNoErrors } = await openPage(`${server.url}/s/split/c/c8`);
    const panel = page.getByRole('region', { name: 'Call c8' });
    await panel.getByRole('tab', { name: 'Re-run' }).click();
    await panel.getByRole('combobox', { name: 'Model' }).selectOption('birch');
    await panel.getByRole('button', { name: 'Re-run the call' }).click();
    await page.waitForURL(/\/compare\/c8\/c\d+/);
    await page.getByRole('article', { name: 'Answer of c8' }).locator('mark.removed').first().waitFor();
    await page.getByText('re-run', { exact: true }).waitFor();
    const after = await server.get('/v1/sessions/split');
    expect(after.turns).toBe(before.turns);
    expect(after.calls).toBe(before.calls + 1);
    expectNoErrors();
  });
});

describe('an operator', () => {
  it('can grant what the graph refuses, and roll back', async () => {
    // In a fork, so that the other tests are not affected.
    await server.post('/v1/sessions/split/fork', { session: 'moved' });
    const { page, expectNoErrors } = await openPage(`${server.url}/s/moved/phases`);
    const move = async (name: string | RegExp) => {
      await page.getByRole('button', { name: 'Move conversation' }).click();
      await page.getByRole('menuitem', { name }).click();
    };
    await move(/^Grant starter once/);
    await page.getByRole('heading', { name: 'Unused grants' }).waitFor();
    await move('Propose starter');
    await page.getByText('in starter since', { exact: false }).waitFor();
    await move('Roll back to visit 3: executor');
    await page.getByText('in executor since', { exact: false }).waitFor();
    const [graph] = (await server.get('/v1/sessions/moved/phases')).graphs;
    expect(graph.current.phase).toBe('executor');
    expectNoErrors();
  });
});
