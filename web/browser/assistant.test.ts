// The assistant's memory, as a person sees it: what is at hand and why, what was decided, what each node was shown, what was written and taken back.

import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { closeBrowser, ended, flaws, openBrowser, openPage, picture, quiet, say } from './browser';
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
  it('is had by clicking and typing', async () => {
    const { page, fine } = await openPage(server.url);
    await page.getByRole('radio', { name: /^assistant/ }).click();
    for (const [index, message] of MESSAGES.entries()) {
      await say(page, message);
      await ended(page, `t${index + 1}`);
    }
    path = new URL(page.url()).pathname;
    await page.locator('[data-turn="t4"]').getByText('Lemon Herb Chicken and Garlic Pasta').waitFor();
    const tabs = await page.getByRole('navigation', { name: 'Views' }).getByRole('link').allTextContents();
    expect(tabs).toEqual(expect.arrayContaining(['Timeline', 'Threads', 'Entities', 'Reasoning', 'Writes', 'Ledger']));
    expect(tabs, 'it has no phases that could block anything').not.toContain('Phases');
    fine();
  });

  it('shows what is active, kept and set aside, each with its reason, at any time', async () => {
    const { page, fine } = await openPage(`${server.url}${path}/x/entities`, { sharp: true });
    const row = (group: string, name: string) => page.getByRole('rowgroup', { name: group, exact: true }).getByRole('row', { name });
    await row('retained', 'recipe_1').getByText('chosen').waitFor();
    await row('demoted', 'recipe_3').getByText('no cod this week').waitFor();
    await picture(page, 'entities');
    // Right after the second turn all eight were active.
    const turn = await server.get(`/v1/sessions/${path.split('/')[2]}/turns/t2`);
    await page.goto(`${server.url}${path}/x/entities?at=${turn.to}`);
    await expect.poll(() => page.getByRole('rowgroup', { name: 'active', exact: true }).getByRole('row', { name: /recipe_\d/ }).count()).toBe(8);
    expect(await page.getByRole('rowgroup', { name: 'demoted', exact: true }).count()).toBe(0);
    fine();
  });

  it('shows what was decided turn by turn, and leads to what each node was shown', async () => {
    const { page, fine } = await openPage(`${server.url}${path}/x/reasoning`, { sharp: true });
    await page.getByText('Up to turn', { exact: false }).first().waitFor();
    await page.getByText('no cod this week; what expires first goes first.', { exact: false }).first().waitFor();
    await page.getByText('decided propose, to leave it at that').first().waitFor();
    await page.getByRole('link', { name: 't7' }).click();
    const panel = page.getByRole('region', { name: 'Turn t7' });
    for (const node of ['understand', 'think', 'reply']) await panel.getByRole('img', { name: new RegExp(`^c\\d+ ${node}`) }).waitFor();
    await page.goto(`${server.url}${path}/t/t4`);
    await page.getByRole('region', { name: 'Turn t4' }).getByRole('img', { name: /^c\d+ act/ }).first().waitFor();
    await quiet(page);
    await picture(page, 'nodes');
    // Tools stand on the timeline among the calls.
    await page.goto(`${server.url}${path}/timeline`);
    const second = page.getByRole('region', { name: 'Turn t2' });
    await expect.poll(() => second.locator('.role.tool').count()).toBe(2);
    fine();
  });

  it('has what it wrote taken back', async () => {
    const { page, fine } = await openPage(`${server.url}${path}/x/writes`, { forgive: /409/ });
    const stands = page.getByRole('rowgroup', { name: 'stands', exact: true });
    await stands.getByText(/created meal/).waitFor();
    await stands.getByRole('button', { name: /^Undo x\d+/ }).click();
    await page.getByRole('rowgroup', { name: 'taken back', exact: true }).getByText(/created meal/).waitFor();
    expect(await page.getByRole('button', { name: /^Undo x\d+/ }).count()).toBe(0);
    // What the flow offers is in the menu too; it says why it cannot be done now.
    await page.getByRole('button', { name: 'More', exact: true }).click();
    await page.getByRole('menuitem', { name: 'Undo' }).click();
    await page.getByRole('dialog', { name: 'Undo' }).getByRole('button', { name: 'Undo' }).click();
    await page.getByText(/nothing was written in this session that could be taken back/i).waitFor();
    await page.keyboard.press('Control+k');
    await page.keyboard.type('undo');
    await page.getByRole('option', { name: /Undo/ }).waitFor();
    await page.keyboard.press('Escape');
    fine();
  });

  it.each(['light', 'dark'] as const)('has views in which an accessibility checker finds nothing (%s)', async (scheme) => {
    for (const width of [1440, 390]) {
      const { page, context } = await openPage(server.url, { scheme, width, bypassCSP: true });
      for (const view of ['', '/x/entities', '/x/reasoning', '/x/writes', '/t/t4', '/timeline']) {
        await page.goto(server.url + path + view);
        await page.locator('main').waitFor();
        await quiet(page);
        expect(await flaws(page), `${view} at ${width}`).toEqual([]);
      }
      await context.close();
    }
  });
});
