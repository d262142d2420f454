// The shared worker that holds the connection of all pages of the studio. Pages with different API keys have different connections.

import { StreamHub } from './hub';
import { SILENT_PAGE_MS_MAX, type PageMessage, type WorkerMessage } from './stream-messages';

const hubs = new Map<string | null, StreamHub>();

function hubFor(key: string | null): StreamHub {
  let hub = hubs.get(key);
  if (!hub) {
    hub = new StreamHub(key);
    hubs.set(key, hub);
  }
  return hub;
}

function serve(port: MessagePort): void {
  const stops = new Map<number, () => void>();
  const post = (message: WorkerMessage) => port.postMessage(message);
  const drop = () => {
    if (stops.size === 0) return;
    for (const stop of stops.values()) stop();
    stops.clear();
    post({ type: 'dropped' });
  };
  let silence = setTimeout(drop, SILENT_PAGE_MS_MAX);
  port.onmessage = ({ data }: MessageEvent<PageMessage>) => {
    clearTimeout(silence);
    silence = setTimeout(drop, SILENT_PAGE_MS_MAX);
    if (data.type === 'subscribe') {
      const { id, key, session, after } = data;
      stops.set(
        id,
        hubFor(key).subscribe({
          session,
          after,
          onEvent: (event, value) => post({ type: 'event', id, event, data: value }),
          onStatus: (status) => post({ type: 'status', id, status }),
          onEnd: ({ status, details }) => {
            stops.delete(id);
            post({ type: 'end', id, status, details });
          },
        }),
      );
    } else if (data.type === 'unsubscribe') {
      stops.get(data.id)?.();
      stops.delete(data.id);
    }
  };
}

(globalThis as unknown as { onconnect: (event: MessageEvent) => void }).onconnect = (event) => {
  const [port] = event.ports;
  if (port) serve(port);
};
