// Keys, in one place. Letters alone count only where nobody is writing.

import { api } from '../api/client';
import { attempt } from '../state/actions';
import { router } from '../state/router.svelte';

export interface Wishes {
  help: () => void;
  palette: () => void;
  begin: () => void;
  sidebar: () => void;
  time: () => void;
  tab: (step: number) => void;
}

/** What the help page tells; the keys below do it. */
export const KEYS: { group: string; keys: { press: string[]; does: string }[] }[] = [
  {
    group: 'Anywhere',
    keys: [
      { press: ['Ctrl', 'K'], does: 'go anywhere, do anything' },
      { press: ['/'], does: 'search the sessions' },
      { press: ['n'], does: 'a new conversation' },
      { press: ['b'], does: 'show or hide the sessions' },
      { press: ['?'], does: 'this help' },
    ],
  },
  {
    group: 'In a session',
    keys: [
      { press: ['['], does: 'the view before' },
      { press: [']'], does: 'the next view' },
      { press: ['c'], does: 'write a message' },
      { press: ['j'], does: 'the next turn' },
      { press: ['k'], does: 'the turn before' },
      { press: ['h'], does: 'go through time' },
      { press: ['←', '→'], does: 'one event back or on, while in the past' },
      { press: ['Esc'], does: 'close what is open beside, or leave the past' },
    ],
  },
  {
    group: 'While writing',
    keys: [
      { press: ['Enter'], does: 'send' },
      { press: ['Shift', 'Enter'], does: 'a new line' },
      { press: ['Esc'], does: 'stop the turn that runs, if nothing is written' },
    ],
  },
];

export function keyboard(wishes: Wishes): (event: KeyboardEvent) => void {
  return (event) => {
    if (event.defaultPrevented) return;
    if ((event.ctrlKey || event.metaKey) && event.key.toLowerCase() === 'k') {
      event.preventDefault();
      wishes.palette();
      return;
    }
    const target = event.target instanceof HTMLElement ? event.target : null;
    if (event.ctrlKey || event.metaKey || event.altKey || (target && writes(target))) return;
    if (plain(event, wishes)) event.preventDefault();
  };
}

function writes(target: HTMLElement): boolean {
  return target.isContentEditable || target.matches('input:not([type=checkbox]):not([type=range]), textarea, select');
}

function plain(event: KeyboardEvent, wishes: Wishes): boolean {
  const here = router.here;
  switch (event.key) {
    case '?':
      wishes.help();
      return true;
    case '/':
      return focus('[data-search]');
    case 'n':
      wishes.begin();
      return true;
    case 'b':
      wishes.sidebar();
      return true;
  }
  if (!here) return false;
  switch (event.key) {
    case '[':
      wishes.tab(-1);
      return true;
    case ']':
      wishes.tab(1);
      return true;
    case 'c':
      return focus('[data-composer]');
    case 'h':
      wishes.time();
      return true;
    case 'j':
      return step(1);
    case 'k':
      return step(-1);
    case 'ArrowLeft':
      return travel(-1);
    case 'ArrowRight':
      return travel(1);
    case 'Escape':
      if (here.detail) router.detail(null);
      else if (here.at !== null) router.at(null);
      else return false;
      return true;
    default:
      return false;
  }
}

function focus(selector: string): boolean {
  const element = document.querySelector<HTMLElement>(selector);
  element?.focus();
  return element !== null;
}

function travel(by: number): boolean {
  const here = router.here;
  if (!here || here.at === null) return false;
  const at = Math.max(1, here.at + by);
  router.at(at, 'replace');
  return true;
}

/** The turn after or before the one that is opened, or the newest. */
function step(by: number): boolean {
  const here = router.here;
  if (!here) return false;
  void attempt(
    api.session(here.session, here.at).then((session) => {
      if (session.turns === 0) return;
      const from = here.detail?.is === 'turn' ? Number(here.detail.id.slice(1)) : session.turns + 1;
      const turn = Math.max(1, Math.min(session.turns, from + by));
      router.go({ ...here, detail: { is: 'turn', id: `t${turn}` } }, here.detail?.is === 'turn' ? 'replace' : 'push');
    }),
  );
  return true;
}
