// Parses server-sent events from text that arrives in arbitrary pieces. It does not interpret the events.

export interface SseEvent {
  /** The last id seen, including this event's own. */
  id: string | null;
  type: string;
  data: string;
}

/** Takes pieces of text and returns the events that are complete. */
export class SseParser {
  #rest = '';
  #id: string | null = null;
  #type = '';
  #data: string[] = [];
  /** The reconnection delay that the server asked for. */
  retryMs: number | null = null;

  push(piece: string): SseEvent[] {
    const text = this.#rest + piece;
    const events: SseEvent[] = [];
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

  #line(line: string): SseEvent | null {
    if (line === '') return this.#dispatch();
    if (line.startsWith(':')) return null;
    const colon = line.indexOf(':');
    const field = colon < 0 ? line : line.slice(0, colon);
    let value = colon < 0 ? '' : line.slice(colon + 1);
    if (value.startsWith(' ')) value = value.slice(1);
    if (field === 'data') this.#data.push(value);
    else if (field === 'event') this.#type = value;
    else if (field === 'id' && !value.includes('\0')) this.#id = value;
    else if (field === 'retry' && /^\d+$/.test(value)) this.retryMs = Number(value);
    return null;
  }

  #dispatch(): SseEvent | null {
    const event = this.#data.length > 0 ? { id: this.#id, type: this.#type || 'message', data: this.#data.join('\n') } : null;
    this.#type = '';
    this.#data = [];
    return event;
  }
}

/** A line ends with LF, CR or CRLF. A CR at the very end may be half of a CRLF, so it is not yet a line end. */
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
