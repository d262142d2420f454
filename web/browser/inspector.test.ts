// What was shown to whom, and why: the page against the server's own account.

import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { closeBrowser, openBrowser, openPage, picture } from './browser';
import { splitIntoServices } from './scenes';
import type { Server } from './server';

let server: Server;

beforeAll(async () => {
  server = await splitIntoServices('split');
  await openBrowser();
});

afterAll(async () => {
  await closeBrowser();
  await server.stop();
});

describe('the receipt of a call', () => {
  it('has every fragment with its tokens, source and reason, what was left out, and why this thread', async () => {
    const receipt = await server.get('/v1/sessions/split/calls/c12');
    const { page, fine } = await openPage(`${server.url}/s/split/c/c12`, { sharp: true });
    const panel = page.getByRole('region', { name: 'Call c12' });
    await panel.getByText(receipt.why).waitFor();
    await panel.getByText(receipt.cache.replaceAll('`', ''), { exact: false }).first().waitFor();
    const rows = panel.locator('.fragment');
    expect(await rows.count()).toBe(receipt.fragments.length);
    for (const [index, fragment] of receipt.fragments.entries()) {
      const text = (await rows.nth(index).textContent()) ?? '';
      expect(text).toContain(fragment.name);
      expect(text).toContain(fragment.layer);
      expect(text).toContain(fragment.why);
      expect(text).toContain(fragment.tokens.toLocaleString('en-US'));
    }
    for (const fragment of receipt.left_out) expect(await panel.locator('.out').textContent()).toContain(fragment.why);
    // To token scale: heights are in proportion.
    const heights = await panel.locator('rect.segment').evaluateAll((list) => list.map((rect) => rect.getBoundingClientRect().height));
    const large = receipt.fragments.map((fragment: { tokens: number }, index: number) => ({ tokens: fragment.tokens, height: heights[index] ?? 0 })).filter((part: { tokens: number }) => part.tokens > 50);
    const scale = large[0].height / large[0].tokens;
    for (const part of large) expect(part.height / part.tokens / scale).toBeCloseTo(1, 1);
    await picture(page, 'receipt');

    // The text of one fragment, then the exact prompt, then what changed.
    const goal = rows.filter({ hasText: 'what the phase before left' });
    await goal.getByRole('button').click();
    expect(await goal.locator('pre').textContent()).toContain('billing can be changed and released');
    await panel.getByRole('tab', { name: 'Exact text' }).click();
    await panel.getByText('digest').waitFor();
    const prompt = await server.get('/v1/sessions/split/calls/c12/prompt');
    expect(await panel.locator('.message pre').allTextContents()).toEqual(prompt.messages.map((message: { text: string }) => message.text));
    await panel.getByRole('tab', { name: 'What changed' }).click();
    await panel.locator('.line.new').first().waitFor();
    const diff = await server.get('/v1/sessions/split/calls/c12/diff');
    expect(await panel.locator('.line.new').count()).toBe(diff.lines.filter((line: { is: string }) => line.is === 'new').length);
    await panel.getByRole('tab', { name: 'Answer' }).click();
    // What the user never saw is here.
    await panel.getByText('<<<STEPS>>>').waitFor();
    await page.keyboard.press('Escape');
    await expect.poll(() => new URL(page.url()).pathname).toBe('/s/split');
    fine();
  });

  it('is reached from a reply, and each turn shows what all were shown', async () => {
    const { page, fine } = await openPage(`${server.url}/s/split/t/t3`);
    const panel = page.getByRole('region', { name: 'Turn t3' });
    await panel.getByRole('img', { name: /^c12 concierge/ }).waitFor();
    expect(await panel.getByRole('img', { name: /^c\d+ expert/ }).count()).toBe(3);
    await page.locator('[data-turn="t3"]').getByRole('link', { name: 'What c7 was shown' }).click();
    await page.getByRole('region', { name: 'Call c7' }).getByText('in explorer').waitFor();
    fine();
  });
});

describe('views', () => {
  it('tell of turns, retries, phases and refusals on a timeline', async () => {
    const { page, fine } = await openPage(`${server.url}/s/split/timeline`, { sharp: true });
    const first = page.getByRole('region', { name: 'Turn t1' });
    await first.getByTitle(/c2: expert asked question on birch.*2 tries/).waitFor();
    await first.locator('.bar.waiting').waitFor();
    await page.getByRole('region', { name: 'Turn t2' }).getByText('starter → explorer').waitFor();
    await page.getByRole('region', { name: 'Turn t3' }).getByText('refused').waitFor();
    await page.getByRole('region', { name: 'Turn t3' }).getByRole('link', { name: 'handover h2' }).waitFor();
    await picture(page, 'timeline');
    await first.getByTitle(/^c4: mapper/).click();
    const receipt = await server.get('/v1/sessions/split/calls/c4');
    await page.getByRole('region', { name: 'Call c4' }).getByText(receipt.why).waitFor();
    fine();
  });

  it('show memory as lanes: the experts go on, the mapper is fresh, the concierge is reset', async () => {
    const { page, fine } = await openPage(`${server.url}/s/split/threads`, { sharp: true });
    await page.getByText('expert birch').first().waitFor();
    expect(await page.locator('svg .begin.fresh').count(), 'one single point for each call of the mapper').toBe(3);
    expect(await page.locator('svg .life').count(), 'three experts, and three lives of the concierge').toBe(6);
    await picture(page, 'threads');
    await page.getByRole('link', { name: 'th8' }).click();
    await page.getByRole('region', { name: 'Thread th8' }).getByText('when it is no longer the phase executor', { exact: false }).waitFor();
    fine();
  });

  it('show the phases with the way taken, and refuse what the graph refuses', async () => {
    const { page, fine } = await openPage(`${server.url}/s/split/phases`, { forgive: /409/, sharp: true });
    await page.getByText('handover intent').waitFor();
    expect(await page.locator('.edge.taken').count()).toBe(2);
    await picture(page, 'phases');
    await page.getByRole('button', { name: 'Move conversation' }).click();
    await page.getByRole('menuitem', { name: 'Propose starter' }).click();
    await page.getByText(/cannot be entered from `executor`/).first().waitFor();
    await page.getByText('starter refused').waitFor();
    fine();
  });

  it('show handovers with where each field came from', async () => {
    const { page, fine } = await openPage(`${server.url}/s/split/handovers`);
    const card = page.getByRole('article', { name: 'Handover h1' });
    await card.getByText('a fifth person joins in May').first().waitFor();
    const handovers = (await server.get('/v1/sessions/split/handovers')).handovers;
    const found = handovers[0].fields.flatMap((field: { value: unknown; found_in: unknown[] }) => (field.value === null ? [] : field.found_in));
    expect(await card.locator('.from .tag').count()).toBe(found.length);
    await card.getByRole('link', { name: 'c7' }).click();
    await page.getByRole('region', { name: 'Call c7' }).waitFor();
    fine();
  });

  it('show the map of claims, how they hang together, and who holds them', async () => {
    const { page, fine } = await openPage(`${server.url}/s/split/x/map`, { sharp: true });
    await page.getByText('ship daily before you split').first().waitFor();
    expect(await page.locator('.node').count()).toBe(6);
    expect(await page.locator('.edge').count()).toBe(6);
    const held = page.locator('tr', { has: page.getByRole('rowheader', { name: 'keep one program, with modules' }) });
    expect(await held.getByRole('img', { name: 'yes' }).count(), 'all three hold it').toBe(3);
    await page.getByRole('button', { name: /split by team/ }).click();
    await page.getByText('stands against “keep one program, with modules”').first().waitFor();
    await page.getByRole('button', { name: /split by team/ }).click();
    await picture(page, 'map');
    fine();
  });

  it('account for every token and cent', async () => {
    const { page, fine } = await openPage(`${server.url}/s/split/ledger`);
    const { total, roles } = await server.get('/v1/sessions/split/ledger');
    await page.getByText(total.input.toLocaleString('en-US'), { exact: true }).first().waitFor();
    const table = page.getByRole('region', { name: 'By role' });
    for (const role of roles) await table.getByRole('row', { name: new RegExp(`${role.name}.*${role.spent.output.toLocaleString('en-US')}`) }).waitFor();
    fine();
  });

  it('are only those that the session has something for', async () => {
    await server.post('/v1/sessions', { session: 'bare', flow: 'chat' });
    const { page, fine } = await openPage(`${server.url}/s/bare`);
    const tabs = page.getByRole('navigation', { name: 'Views' });
    await tabs.getByRole('link', { name: 'Journal' }).waitFor();
    expect(await tabs.getByRole('link').allTextContents()).toEqual(['Conversation', 'Journal']);
    fine();
  });
});

describe('time', () => {
  it('can be gone through, event by event, and branched from anywhere', async () => {
    const { page, fine } = await openPage(`${server.url}/s/split?at=31`, { sharp: true });
    await page.getByText('This is the past. Nothing can be said here.').waitFor();
    expect(await page.locator('[data-turn]').count()).toBe(2);
    await page.getByText('explorer, now').waitFor();
    await page.getByRole('button', { name: 'One event back' }).click();
    await page.getByText('starter, now').waitFor();
    await expect.poll(() => new URL(page.url()).search).toBe('?at=30');
    await picture(page, 'past');
    await page.getByRole('button', { name: 'Branch here' }).first().click();
    await page.waitForURL((url) => !url.pathname.startsWith('/s/split'));
    await page.getByRole('link', { name: 'of split' }).waitFor();
    const name = new URL(page.url()).pathname.split('/')[2];
    expect(await server.get(`/v1/sessions/${name}`)).toMatchObject({ turns: 2, forked_from: { session: 'split', at: 30 } });
    fine();
  });

  it('stands still while one step is made once more with another model, and both are compared', async () => {
    const before = await server.get('/v1/sessions/split');
    const { page, fine } = await openPage(`${server.url}/s/split/c/c8`);
    const panel = page.getByRole('region', { name: 'Call c8' });
    await panel.getByRole('tab', { name: 'Once more' }).click();
    await panel.getByRole('combobox', { name: 'Model' }).selectOption('birch');
    await panel.getByRole('button', { name: 'Ask once more' }).click();
    await page.waitForURL(/\/compare\/c8\/c\d+/);
    await page.getByRole('article', { name: 'Answer of c8' }).locator('mark.gone').first().waitFor();
    await page.getByText('once more', { exact: true }).waitFor();
    const after = await server.get('/v1/sessions/split');
    expect(after.turns).toBe(before.turns);
    expect(after.calls).toBe(before.calls + 1);
    fine();
  });
});

describe('a person at the controls', () => {
  it('may allow what the graph refuses, and go back', async () => {
    // Elsewhere, so that the others find what they expect.
    await server.post('/v1/sessions/split/fork', { session: 'moved' });
    const { page, fine } = await openPage(`${server.url}/s/moved/phases`);
    const move = async (name: string | RegExp) => {
      await page.getByRole('button', { name: 'Move conversation' }).click();
      await page.getByRole('menuitem', { name }).click();
    };
    await move(/^Allow starter once/);
    await page.getByRole('heading', { name: 'Granted' }).waitFor();
    await move('Propose starter');
    await page.getByText('in starter since', { exact: false }).waitFor();
    await move('Back to visit 3: executor');
    await page.getByText('in executor since', { exact: false }).waitFor();
    const [graph] = (await server.get('/v1/sessions/moved/phases')).graphs;
    expect(graph.now.phase).toBe('executor');
    fine();
  });
});
