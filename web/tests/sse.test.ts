import { describe, expect, it } from 'vitest';
import { SseParser, type SseEvent } from '../src/api/sse';

const STREAM = 'retry: 500\n\nid: 7\nevent: event\ndata: {"seq": 7}\n\n: keep-alive\n\nevent: delta\ndata: {"text":\ndata: "ä"}\n\nevent: live\r\ndata: {}\r\n\r\nid: 8\rdata:plain\r\r\n';

const WHOLE: SseEvent[] = [
  { id: '7', type: 'event', data: '{"seq": 7}' },
  { id: '7', type: 'delta', data: '{"text":\n"ä"}' },
  { id: '7', type: 'live', data: '{}' },
  { id: '8', type: 'message', data: 'plain' },
];

describe('SseParser', () => {
  it('gives the same events however the text is split', () => {
    for (let size = 1; size <= STREAM.length; size += 1) {
      const parser = new SseParser();
      const events: SseEvent[] = [];
      for (let at = 0; at < STREAM.length; at += size) events.push(...parser.push(STREAM.slice(at, at + size)));
      expect(events, `pieces of ${size}`).toEqual(WHOLE);
      expect(parser.retryMs).toBe(500);
    }
  });

  it('does not return an incomplete event', () => {
    expect(new SseParser().push('event: event\ndata: {}\n')).toEqual([]);
  });

  it('ignores comments', () => {
    expect(new SseParser().push(': one\n\n: two\n\n')).toEqual([]);
  });
});
