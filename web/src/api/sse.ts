// Reads the text of an event stream, however it is cut into pieces. Knows nothing of what the events mean.

export interface StreamEvent {
  /** The last id seen, this event's own included. */
  id: string | null;
  kind: string;
  data: string;
}

/** Takes pieces of text and gives back the events that are complete. */
export class StreamReader {
  #rest = '';
  #id: string | null = null;
  #kind = '';
  #data: string[] = [];
  /** How long the server asks to wait before a new attempt. */
  retryMs: number | null = null;

  push(piece: string): StreamEvent[] {
    const text = this.#rest + piece;
    const events: StreamEvent[] = [];
    let from = 0;
    for (;;) {
      const end = lineEnd(text, from);
      if (end === null) break;
      const event = this.#line(text.slice(from, end.at));
      if (event) events.push(event);
      from = end.next;
    }
    this.#rest = text.slice(from);
    return events;
  }

  #line(line: string): StreamEvent | null {
    if (line === '') return this.#dispatch();
    if (line.startsWith(':')) return null;
    const colon = line.indexOf(':');
    const field = colon < 0 ? line : line.slice(0, colon);
    let value = colon < 0 ? '' : line.slice(colon + 1);
    if (value.startsWith(' ')) value = value.slice(1);
    if (field === 'data') this.#data.push(value);
    else if (field === 'event') this.#kind = value;
    else if (field === 'id' && !value.includes('\0')) this.#id = value;
    else if (field === 'retry' && /^\d+$/.test(value)) this.retryMs = Number(value);
    return null;
  }

  #dispatch(): StreamEvent | null {
    const event = this.#data.length > 0 ? { id: this.#id, kind: this.#kind || 'message', data: this.#data.join('\n') } : null;
    this.#kind = '';
    this.#data = [];
    return event;
  }
}

/** A line ends with LF, CR or CRLF; a CR at the very end may be half of a CRLF, so it waits. */
function lineEnd(text: string, from: number): { at: number; next: number } | null {
  for (let at = from; at < text.length; at += 1) {
    const char = text[at];
    if (char === '\n') return { at, next: at + 1 };
    if (char === '\r') {
      if (at + 1 === text.length) return null;
      return { at, next: text[at + 1] === '\n' ? at + 2 : at + 1 };
    }
  }
  return null;
}
