// The assistant's memory in the studio: entities and why they are kept, decisions, the prompt of each node, writes and undo.

import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { accessibilityViolations, closeBrowser, openBrowser, openPage, screenshot, sendMessage, waitForTurnEnd, waitUntilStable } from './browser';
import { scenario, Server } from './server';

const MESSAGES = ['help me plan meals', '3 days, dinners only', 'no cod this week', 'let’s go with the chicken and pasta ones', 'lovely', 'thank you', 'until next week'];

let server: Server;
let path = '';

beforeAll(async () => {
  server = await Server.start({ models: { kitchen: scenario('kitchen') }, flow: 'assistant' });
  await openBrowser();
});

afterAll(async () => {
  await closeBrowser();
  await server.stop();
});

describe('a conversation with the assistant', () => {
  it('works with mouse and keyboard', async () => {
    const { page, expectNoErrors } = await openPage(server.url);
    await page.getByRole('radio', { name: /^assistant/ }).click();
    for (const [index, message] of MESSAGES.entries()) {
      await sendMessage(page, message);
      await waitForTurnEnd(page, `t${index + 1}`);
    }
    path = new URL(page.url()).pathname;
    await page.locator('[data-turn="t4"]').getByText('Lemon Herb Chicken and Garlic Pasta').waitFor();
    const tabs = await page.getByRole('navigation', { name: 'Views' }).getByRole('link').allTextContents();
    expect(tabs).toEqual(expect.arrayContaining(['Timeline', 'Threads', 'Entities', 'Reasoning', 'Writes', 'Ledger']));
    expect(tabs, 'the assistant has no phases').not.toContain('Phases');
    expectNoErrors();
  });

  it('shows active, retained and demoted records with their reasons, at any event', async () => {
    const { page, expectNoErrors } = await openPage(`${server.url}${path}/artifacts/entities`, { forScreenshot: true });
    const row = (group: string, name: string) => page.getByRole('rowgroup', { name: group, exact: true }).getByRole('row', { name });
    await row('retained', 'recipe_1').getByText('chosen').waitFor();
    await row('demoted', 'recipe_3').getByText('no cod this week').waitFor();
    await screenshot(page, 'entities');
    // After the second turn all eight were active.
    const turn = await server.get(`/v1/sessions/${path.split('/')[2]}/turns/t2`);
    await page.goto(`${server.url}${path}/artifacts/entities?at=${turn.end_seq}`);
    await expect.poll(() => page.getByRole('rowgroup', { name: 'active', exact: true }).getByRole('row', { name: /recipe_\d/ }).count()).toBe(8);
    expect(await page.getByRole('rowgroup', { name: 'demoted', exact: true }).count()).toBe(0);
    expectNoErrors();
  });

  it('shows the decisions of each turn, and links to the prompts of each node', async () => {
    const { page, expectNoErrors } = await openPage(`${server.url}${path}/artifacts/reasoning`, { forScreenshot: true });
    await page.getByText('Up to turn', { exact: false }).first().waitFor();
    await page.getByText('no cod this week; what expires first goes first.', { exact: false }).first().waitFor();
    await page.getByText('decision: propose (goal: leave it at that)').first().waitFor();
    await page.getByRole('link', { name: 't7' }).click();
    const panel = page.getByRole('region', { name: 'Turn t7' });
    for (const node of ['understand', 'think', 'reply']) await panel.getByRole('img', { name: new RegExp(`^c\\d+ ${node}`) }).waitFor();
    await page.goto(`${server.url}${path}/t/t4`);
    await page.getByRole('region', { name: 'Turn t4' }).getByRole('img', { name: /^c\d+ act/ }).first().waitFor();
    await waitUntilStable(page);
    await screenshot(page, 'nodes');
    // The timeline shows tool runs among the calls: the snapshot, and two reads.
    await page.goto(`${server.url}${path}/timeline`);
    const second = page.getByRole('region', { name: 'Turn t2' });
    await expect.poll(() => second.locator('.role.tool').count()).toBe(3);
    expectNoErrors();
  });

  it('can undo a write', async () => {
    const { page, expectNoErrors } = await openPage(`${server.url}${path}/artifacts/writes`, { expectedErrors: /409/ });
    const active = page.getByRole('rowgroup', { name: 'active', exact: true });
    await active.getByText(/created meal/).waitFor();
    await active.getByRole('button', { name: /^Undo x\d+/ }).click();
    await page.getByRole('rowgroup', { name: 'undone', exact: true }).getByText(/created meal/).waitFor();
    expect(await page.getByRole('button', { name: /^Undo x\d+/ }).count()).toBe(0);
    // The flow's commands are in the menu too. This one says why it cannot run now.
    await page.getByRole('button', { name: 'More', exact: true }).click();
    await page.getByRole('menuitem', { name: 'Undo' }).click();
    await page.getByRole('dialog', { name: 'Undo' }).getByRole('button', { name: 'Undo' }).click();
    await page.getByText(/this session has no write that can be undone/i).waitFor();
    await page.keyboard.press('Control+k');
    await page.keyboard.type('undo');
    await page.getByRole('option', { name: /Undo/ }).waitFor();
    await page.keyboard.press('Escape');
    expectNoErrors();
  });

  it.each(['light', 'dark'] as const)('has views without accessibility violations (%s)', async (scheme) => {
    for (const width of [1440, 390]) {
      const { page, context } = await openPage(server.url, { scheme, width, bypassCSP: true });
      for (const view of ['', '/artifacts/entities', '/artifacts/reasoning', '/artifacts/writes', '/t/t4', '/timeline']) {
        await page.goto(server.url + path + view);
        await page.locator('main').waitFor();
        await waitUntilStable(page);
        expect(await accessibilityViolations(page), `${view} at ${width}`).toEqual([]);
      }
      await context.close();
    }
  });
});
