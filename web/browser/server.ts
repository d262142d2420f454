// A real server for the tests: the program itself, on a store of its own, with scenarios in place of models.

import { execFileSync, spawn, type ChildProcess } from 'node:child_process';
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { createServer } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';

const READY_MS_MAX = 30_000;

export interface Cast {
  /** The scenario each model answers from, by the model's name. The first is the default. */
  models: Record<string, string>;
  flow?: string;
  require_key?: boolean;
}

export const scenario = (name: string) => join(import.meta.dirname, 'scenarios', `${name}.toml`);

export class Server {
  readonly url: string;
  readonly folder: string;
  /** What it asks for, if it asks for a key. */
  key = '';
  readonly #port: number;
  readonly #cast: Cast;
  #process: ChildProcess | null = null;
  #said = '';

  private constructor(port: number, cast: Cast) {
    this.#port = port;
    this.#cast = cast;
    this.url = `http://127.0.0.1:${port}`;
    this.folder = mkdtempSync(join(tmpdir(), 'segue-studio-'));
    writeFileSync(join(this.folder, 'segue.toml'), config(cast));
  }

  static async start(cast: Cast): Promise<Server> {
    const server = new Server(await freePort(), cast);
    if (cast.require_key) {
      const said = execFileSync(program(), ['keys', 'add', 'studio'], { cwd: server.folder, env: server.#surroundings(), encoding: 'utf8' });
      server.key = /sg_\S+/.exec(said)?.[0] ?? '';
    }
    await server.up();
    return server;
  }

  /** Starts the process, on the same port and store as before. */
  async up(): Promise<void> {
    const flags = this.#cast.require_key ? ['--require-key'] : [];
    this.#process = spawn(program(), ['serve', '--port', String(this.#port), ...flags], { cwd: this.folder, env: this.#surroundings(), stdio: ['ignore', 'pipe', 'pipe'] });
    this.#process.stdout?.on('data', (data) => (this.#said += String(data)));
    this.#process.stderr?.on('data', (data) => (this.#said += String(data)));
    const until = Date.now() + READY_MS_MAX;
    for (;;) {
      if (await fetch(`${this.url}/ready`).then((answer) => answer.ok).catch(() => false)) return;
      if (this.#process.exitCode !== null || Date.now() > until) throw new Error(`the server did not start: ${this.#said}`);
      await new Promise((resolve) => setTimeout(resolve, 50));
    }
  }

  #surroundings(): NodeJS.ProcessEnv {
    return { ...clean(), HOME: this.folder };
  }

  /** Ends the process as a power cut would. */
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
    const answer = await fetch(this.url + path, { headers: { accept: 'application/json' } });
    if (!answer.ok) throw new Error(`GET ${path}: ${answer.status} ${await answer.text()}`);
    return (await answer.json()) as T;
  }

  async post<T = any>(path: string, body: unknown = {}): Promise<T> {
    const answer = await fetch(this.url + path, { method: 'POST', headers: { 'content-type': 'application/json', accept: 'application/json' }, body: JSON.stringify(body) });
    if (!answer.ok) throw new Error(`POST ${path}: ${answer.status} ${await answer.text()}`);
    return (await answer.json()) as T;
  }

  /** A session with these messages said, one after the other. */
  async converse(session: string, flow: string, messages: string[], settings?: unknown): Promise<void> {
    await this.post('/v1/sessions', { session, flow, ...(settings === undefined ? {} : { settings }) });
    for (const text of messages) await this.post(`/v1/sessions/${session}/messages`, { text });
  }
}

function program(): string {
  const program = process.env['SEGUE_PROGRAM'];
  if (program === undefined) throw new Error('SEGUE_PROGRAM does not say where the program is; run `cargo xtask test`');
  return program;
}

/** The surroundings without settings of the developer's own. */
function clean(): NodeJS.ProcessEnv {
  return Object.fromEntries(Object.entries(process.env).filter(([name]) => !name.startsWith('SEGUE_') && !name.startsWith('XDG_')));
}

function config(cast: Cast): string {
  const names = Object.keys(cast.models);
  const models = names.map((name, index) => `[models.${name}]\nkind = "scripted"\nfile = ${JSON.stringify(cast.models[name])}\nprice = { input = ${3 - index}.0, output = ${15 - 5 * index}.0, cached = 0.${3 - index} }\n`);
  return `[store]\npath = "segue.db"\n\n[session]\nflow = "${cast.flow ?? 'chat'}"\n\n[models]\ndefault = "${names[0]}"\n\n${models.join('\n')}`;
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
