// What a person chose on this device: the theme, and what is folded away. And the toasts that tell what happened.

export type Theme = 'system' | 'light' | 'dark';

function read(slot: string): string | null {
  try {
    return localStorage.getItem(slot);
  } catch {
    return null;
  }
}

function write(slot: string, value: string | null): void {
  try {
    if (value === null) localStorage.removeItem(slot);
    else localStorage.setItem(slot, value);
  } catch {
    // Without storage it holds as long as the page.
  }
}

class Prefs {
  theme = $state<Theme>(readTheme());
  sidebar = $state(read('segue.sidebar') !== 'closed');

  setTheme(theme: Theme): void {
    this.theme = theme;
    if (theme === 'system') delete document.documentElement.dataset['theme'];
    else document.documentElement.dataset['theme'] = theme;
    write('segue.theme', theme === 'system' ? null : theme);
  }

  nextTheme(): void {
    this.setTheme(this.theme === 'system' ? 'light' : this.theme === 'light' ? 'dark' : 'system');
  }

  toggleSidebar(): void {
    this.sidebar = !this.sidebar;
    write('segue.sidebar', this.sidebar ? null : 'closed');
  }
}

function readTheme(): Theme {
  const theme = read('segue.theme');
  return theme === 'light' || theme === 'dark' ? theme : 'system';
}

export const prefs = new Prefs();

export interface Toast {
  id: number;
  tone: 'plain' | 'bad';
  text: string;
}

class Toasts {
  list = $state.raw<Toast[]>([]);
  #next = 1;

  say(text: string, tone: Toast['tone'] = 'plain'): void {
    const id = this.#next;
    this.#next += 1;
    this.list = [...this.list.slice(-2), { id, tone, text }];
    setTimeout(() => this.close(id), tone === 'bad' ? 9000 : 4000);
  }

  close(id: number): void {
    this.list = this.list.filter((toast) => toast.id !== id);
  }

  /** Says what went wrong. */
  fail(error: unknown): void {
    this.say(error instanceof Error ? sentence(error.message) : String(error), 'bad');
  }
}

function sentence(text: string): string {
  return text.charAt(0).toUpperCase() + text.slice(1);
}

export const toasts = new Toasts();
