import { describe, expect, it } from 'vitest';
import { StreamReader, type StreamEvent } from '../src/api/sse';

const STREAM = 'retry: 500\n\nid: 7\nevent: event\ndata: {"seq": 7}\n\n: still here\n\nevent: words\ndata: {"text":\ndata: "ä"}\n\nevent: live\r\ndata: {}\r\n\r\nid: 8\rdata:plain\r\r\n';

const WHOLE: StreamEvent[] = [
  { id: '7', kind: 'event', data: '{"seq": 7}' },
  { id: '7', kind: 'words', data: '{"text":\n"ä"}' },
  { id: '7', kind: 'live', data: '{}' },
  { id: '8', kind: 'message', data: 'plain' },
];

describe('the reader of event streams', () => {
  it('reads the same however the text is cut', () => {
    for (let size = 1; size <= STREAM.length; size += 1) {
      const reader = new StreamReader();
      const events: StreamEvent[] = [];
      for (let at = 0; at < STREAM.length; at += size) events.push(...reader.push(STREAM.slice(at, at + size)));
      expect(events, `pieces of ${size}`).toEqual(WHOLE);
      expect(reader.retryMs).toBe(500);
    }
  });

  it('says nothing about an event that has not ended', () => {
    expect(new StreamReader().push('event: event\ndata: {}\n')).toEqual([]);
  });

  it('does not take comments for events', () => {
    expect(new StreamReader().push(': one\n\n: two\n\n')).toEqual([]);
  });
});
