import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { closeBrowser, composer, openBrowser, openPage, screenshot, sendMessage, waitForTurnEnd } from './browser';
import { scenario, Server } from './server';

let server: Server;

beforeAll(async () => {
  const script = scenario('services');
  server = await Server.start({ models: { atlas: script, birch: script, cedar: script }, flow: 'concierge' });
  await openBrowser();
});

afterAll(async () => {
  await closeBrowser();
  await server.stop();
});

describe('a whole concierge conversation', () => {
  it('works with mouse and keyboard', async () => {
    const { page, expectNoErrors } = await openPage(server.url, { forScreenshot: true });
    await screenshot(page, 'home');

    // Three models answer as experts.
    await page.getByRole('radio', { name: /concierge/ }).click();
    await page.getByRole('button', { name: 'Models and settings' }).click();
    const experts = page.getByRole('group', { name: 'Experts' });
    for (const model of ['atlas', 'birch', 'cedar']) await experts.getByRole('button', { name: model }).click();
    await sendMessage(page, 'Should we split our program into services?');

    // The page shows who is answering.
    await page.waitForURL(/\/s\//);
    const first = page.locator('[data-turn="t1"]');
    await first.getByText('birch').first().waitFor();
    await first.locator('.bar.open').first().waitFor();
    await first.locator('.bar.waiting').waitFor();
    await screenshot(page, 'progress');
    await waitForTurnEnd(page, 't1');
    await expect.poll(() => first.textContent()).toContain('ship the whole program every day');
    expect(await first.textContent()).not.toContain('<map>');
    await page.getByRole('link', { name: /Phases of conversation/ }).getByText('starter, now').waitFor();

    await sendMessage(page, 'Billing blocks every release, and a fifth person joins in May.');
    await waitForTurnEnd(page, 't2');
    const second = page.locator('[data-turn="t2"]');
    expect(await second.textContent()).toContain('billing is the one seam worth knowing well');
    expect(await second.textContent(), 'a block is never shown').not.toContain('HANDOVER');
    await page.getByText('explorer, now').waitFor();

    await sendMessage(page, 'Changed without fear is enough. Give us a plan.');
    await waitForTurnEnd(page, 't3');
    await page.getByText('executor, now').waitFor();
    const plan = page.getByRole('region', { name: 'Plan' });
    await plan.getByText('Name an owner, active').waitFor();
    expect(await plan.getByRole('listitem').count()).toBe(4);

    await sendMessage(page, 'Ada takes it.');
    await waitForTurnEnd(page, 't4');
    await plan.getByText('Name an owner, done').waitFor();
    await plan.getByText('1 of 4').waitFor();

    await sendMessage(page, 'Hm, most of them change the schema.');
    await waitForTurnEnd(page, 't5');
    await sendMessage(page, 'Well?');
    await waitForTurnEnd(page, 't6');
    await page.locator('[data-turn="t6"] pre').waitFor();
    await page.getByRole('heading', { name: 'Should we split our program into services?' }).waitFor();
    await screenshot(page, 'conversation');

    // The server has the same state.
    const name = new URL(page.url()).pathname.split('/')[2] ?? '';
    const session = await server.get(`/v1/sessions/${name}`);
    expect(session).toMatchObject({ turns: 6, phase: 'executor', calls: 19 });
    expect(session.settings.experts).toEqual(['atlas', 'birch', 'cedar']);
    expectNoErrors();
  });

  it('continues on a phone', async () => {
    const [row] = (await server.get('/v1/sessions')).sessions;
    const { page, expectNoErrors } = await openPage(`${server.url}/s/${row.session}`, { width: 390, height: 844, forScreenshot: true });
    await page.locator('[data-turn="t6"]').waitFor();
    expect(await page.evaluate(() => document.documentElement.scrollWidth <= window.innerWidth), 'no horizontal overflow').toBe(true);
    await page.getByRole('button', { name: /Workflow/ }).first().click();
    await page.getByText('Flags for billing, active').first().waitFor();
    await page.getByRole('button', { name: /Workflow/ }).first().click();
    await screenshot(page, 'phone');
    await page.getByRole('button', { name: 'Sessions' }).click();
    await page.getByRole('searchbox', { name: 'Search sessions' }).last().fill('fifth person');
    await page.getByText('1 match').last().waitFor();
    await page.getByRole('button', { name: 'Close the list of sessions' }).click();
    await composer(page).waitFor();
    expectNoErrors();
  });
});
