// Starts the real program as a server for the tests, with its own store and scripted models.

import { execFileSync, spawn, type ChildProcess } from 'node:child_process';
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { createServer } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';

const READY_MS_MAX = 30_000;

export interface ServerOptions {
  /** The scenario file of each scripted model, by model name. The first model is the default. */
  models: Record<string, string>;
  flow?: string;
  requireKey?: boolean;
}

export const scenario = (name: string) => join(import.meta.dirname, 'scenarios', `${name}.toml`);

export class Server {
  readonly url: string;
  readonly folder: string;
  /** The API key, if the server requires one. */
  key = '';
  readonly #port: number;
  readonly #options: ServerOptions;
  #process: ChildProcess | null = null;
  #output = '';

  private constructor(port: number, options: ServerOptions) {
    this.#port = port;
    this.#options = options;
    this.url = `http://127.0.0.1:${port}`;
    this.folder = mkdtempSync(join(tmpdir(), 'segue-studio-'));
    writeFileSync(join(this.folder, 'segue.toml'), config(options));
  }

  static async start(options: ServerOptions): Promise<Server> {
    const server = new Server(await freePort(), options);
    if (options.requireKey) {
      const output = execFileSync(program(), ['keys', 'add', 'studio'], { cwd: server.folder, env: server.#environment(), encoding: 'utf8' });
      server.key = /sg_\S+/.exec(output)?.[0] ?? '';
    }
    await server.up();
    return server;
  }

  /** Starts the process, on the same port and store as before. */
  async up(): Promise<void> {
    const flags = this.#options.requireKey ? ['--require-key'] : [];
    this.#process = spawn(program(), ['serve', '--port', String(this.#port), ...flags], { cwd: this.folder, env: this.#environment(), stdio: ['ignore', 'pipe', 'pipe'] });
    this.#process.stdout?.on('data', (data) => (this.#output += String(data)));
    this.#process.stderr?.on('data', (data) => (this.#output += String(data)));
    const until = Date.now() + READY_MS_MAX;
    for (;;) {
      if (await fetch(`${this.url}/ready`).then((response) => response.ok).catch(() => false)) return;
      if (this.#process.exitCode !== null || Date.now() > until) throw new Error(`the server did not start: ${this.#output}`);
      await new Promise((resolve) => setTimeout(resolve, 50));
    }
  }

  #environment(): NodeJS.ProcessEnv {
    return { ...cleanEnvironment(), HOME: this.folder };
  }

  /** Kills the process without a shutdown. */
  kill(): Promise<void> {
    return this.#end('SIGKILL');
  }

  #end(signal: NodeJS.Signals): Promise<void> {
    const process = this.#process;
    this.#process = null;
    if (!process || process.exitCode !== null) return Promise.resolve();
    return new Promise((resolve) => {
      process.once('exit', () => resolve());
      process.kill(signal);
    });
  }

  async stop(): Promise<void> {
    await this.#end('SIGTERM');
    rmSync(this.folder, { recursive: true, force: true });
  }

  async get<T = any>(path: string): Promise<T> {
    const response = await fetch(this.url + path, { headers: { accept: 'application/json' } });
    if (!response.ok) throw new Error(`GET ${path}: ${response.status} ${await response.text()}`);
    return (await response.json()) as T;
  }

  async post<T = any>(path: string, body: unknown = {}): Promise<T> {
    const response = await fetch(this.url + path, { method: 'POST', headers: { 'content-type': 'application/json', accept: 'application/json' }, body: JSON.stringify(body) });
    if (!response.ok) throw new Error(`POST ${path}: ${response.status} ${await response.text()}`);
    return (await response.json()) as T;
  }

  /** Creates a session and sends these messages one after the other. */
  async converse(session: string, flow: string, messages: string[], settings?: unknown): Promise<void> {
    await this.post('/v1/sessions', { session, flow, ...(settings === undefined ? {} : { settings }) });
    for (const text of messages) await this.post(`/v1/sessions/${session}/messages`, { text });
  }
}

function program(): string {
  const program = process.env['SEGUE_PROGRAM'];
  if (program === undefined) throw new Error('SEGUE_PROGRAM is not set to the path of the program; run `cargo xtask test`');
  return program;
}

/** The environment without the developer's own settings. */
function cleanEnvironment(): NodeJS.ProcessEnv {
  return Object.fromEntries(Object.entries(process.env).filter(([name]) => !name.startsWith('SEGUE_') && !name.startsWith('XDG_')));
}

function config(options: ServerOptions): string {
  const names = Object.keys(options.models);
  const models = names.map((name, index) => `[models.${name}]\nkind = "scripted"\nfile = ${JSON.stringify(options.models[name])}\nprice = { input = ${3 - index}.0, output = ${15 - 5 * index}.0, cache_read = 0.${3 - index} }\n`);
  return `[store]\npath = "segue.db"\n\n[session]\nflow = "${options.flow ?? 'chat'}"\n\n[models]\ndefault = "${names[0]}"\n\n${models.join('\n')}`;
}

function freePort(): Promise<number> {
  return new Promise((resolve, reject) => {
    const probe = createServer();
    probe.once('error', reject);
    probe.listen(0, '127.0.0.1', () => {
      const address = probe.address();
      const port = typeof address === 'object' && address ? address.port : 0;
      probe.close(() => resolve(port));
    });
  });
}
