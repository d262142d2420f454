// Keyboard shortcuts. Single letters are ignored while the user is typing.

import { api } from '../api/client';
import { attempt } from '../state/actions';
import { router } from '../state/router.svelte';

export interface ShortcutActions {
  help: () => void;
  palette: () => void;
  newConversation: () => void;
  toggleSidebar: () => void;
  toggleHistory: () => void;
  switchTab: (step: number) => void;
}

/** The shortcuts as the help dialog lists them. */
export const KEYS: { group: string; keys: { press: string[]; does: string }[] }[] = [
  {
    group: 'Anywhere',
    keys: [
      { press: ['Ctrl', 'K'], does: 'open the command palette' },
      { press: ['/'], does: 'search sessions' },
      { press: ['n'], does: 'start a conversation' },
      { press: ['b'], does: 'show or hide the sidebar' },
      { press: ['?'], does: 'show this help' },
    ],
  },
  {
    group: 'In a session',
    keys: [
      { press: ['['], does: 'previous view' },
      { press: [']'], does: 'next view' },
      { press: ['c'], does: 'write a message' },
      { press: ['j'], does: 'next turn' },
      { press: ['k'], does: 'previous turn' },
      { press: ['h'], does: 'browse history' },
      { press: ['←', '→'], does: 'previous or next event, while browsing history' },
      { press: ['Esc'], does: 'close the panel, or return to now' },
    ],
  },
  {
    group: 'While writing',
    keys: [
      { press: ['Enter'], does: 'send' },
      { press: ['Shift', 'Enter'], does: 'insert a line break' },
      { press: ['Esc'], does: 'stop the running turn, if the box is empty' },
    ],
  },
];

export function keyboard(actions: ShortcutActions): (event: KeyboardEvent) => void {
  return (event) => {
    if (event.defaultPrevented) return;
    if ((event.ctrlKey || event.metaKey) && event.key.toLowerCase() === 'k') {
      event.preventDefault();
      actions.palette();
      return;
    }
    const target = event.target instanceof HTMLElement ? event.target : null;
    if (event.ctrlKey || event.metaKey || event.altKey || (target && isTextInput(target))) return;
    if (handleKey(event, actions)) event.preventDefault();
  };
}

function isTextInput(target: HTMLElement): boolean {
  return target.isContentEditable || target.matches('input:not([type=checkbox]):not([type=range]), textarea, select');
}

function handleKey(event: KeyboardEvent, actions: ShortcutActions): boolean {
  const route = router.sessionRoute;
  switch (event.key) {
    case '?':
      actions.help();
      return true;
    case '/':
      return focus('[data-search]');
    case 'n':
      actions.newConversation();
      return true;
    case 'b':
      actions.toggleSidebar();
      return true;
  }
  if (!route) return false;
  switch (event.key) {
    case '[':
      actions.switchTab(-1);
      return true;
    case ']':
      actions.switchTab(1);
      return true;
    case 'c':
      return focus('[data-composer]');
    case 'h':
      actions.toggleHistory();
      return true;
    case 'j':
      return moveTurn(1);
    case 'k':
      return moveTurn(-1);
    case 'ArrowLeft':
      return moveEvent(-1);
    case 'ArrowRight':
      return moveEvent(1);
    case 'Escape':
      if (route.detail) router.showDetail(null);
      else if (route.at !== null) router.showEvent(null);
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

function moveEvent(by: number): boolean {
  const route = router.sessionRoute;
  if (!route || route.at === null) return false;
  const at = Math.max(1, route.at + by);
  router.showEvent(at, 'replace');
  return true;
}

/** Opens the next or previous turn, starting from the newest. */
function moveTurn(by: number): boolean {
  const route = router.sessionRoute;
  if (!route) return false;
  void attempt(
    api.session(route.session, route.at).then((session) => {
      if (session.turns === 0) return;
      const from = route.detail?.type === 'turn' ? Number(route.detail.id.slice(1)) : session.turns + 1;
      const turn = Math.max(1, Math.min(session.turns, from + by));
      router.go({ ...route, detail: { type: 'turn', id: `t${turn}` } }, route.detail?.type === 'turn' ? 'replace' : 'push');
    }),
  );
  return true;
}
