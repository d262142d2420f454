// The preferences stored on this device (theme, sidebar), and the toasts.

export type Theme = 'system' | 'light' | 'dark';

function readStored(key: string): string | null {
  try {
    return localStorage.getItem(key);
  } catch {
    return null;
  }
}

function writeStored(key: string, value: string | null): void {
  try {
    if (value === null) localStorage.removeItem(key);
    else localStorage.setItem(key, value);
  } catch {
    // Without storage the preference is lost when the page is closed.
  }
}

class Prefs {
  theme = $state<Theme>(readTheme());
  sidebar = $state(readStored('segue.sidebar') !== 'closed');

  setTheme(theme: Theme): void {
    this.theme = theme;
    if (theme === 'system') delete document.documentElement.dataset['theme'];
    else document.documentElement.dataset['theme'] = theme;
    writeStored('segue.theme', theme === 'system' ? null : theme);
  }

  nextTheme(): void {
    this.setTheme(this.theme === 'system' ? 'light' : this.theme === 'light' ? 'dark' : 'system');
  }

  toggleSidebar(): void {
    this.sidebar = !this.sidebar;
    writeStored('segue.sidebar', this.sidebar ? null : 'closed');
  }
}

function readTheme(): Theme {
  const theme = readStored('segue.theme');
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

  show(text: string, tone: Toast['tone'] = 'plain'): void {
    const id = this.#next;
    this.#next += 1;
    this.list = [...this.list.slice(-2), { id, tone, text }];
    setTimeout(() => this.close(id), tone === 'bad' ? 9000 : 4000);
  }

  close(id: number): void {
    this.list = this.list.filter((toast) => toast.id !== id);
  }

  /** Shows an error message. */
  showError(error: unknown): void {
    this.show(error instanceof Error ? capitalize(error.message) : String(error), 'bad');
  }
}

function capitalize(text: string): string {
  return text.charAt(0).toUpperCase() + text.slice(1);
}

export const toasts = new Toasts();
