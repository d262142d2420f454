// Compresses screenshots for the documentation by reducing them to at most 256 colours. Supports only PNGs as Chromium writes them (8 bits, RGB or RGBA, not
// interlaced).

import { deflateSync, inflateSync } from 'node:zlib';

const SIGNATURE = Buffer.from([0x89, 0x50, 0x4e, 0x47, 0x0d, 0x0a, 0x1a, 0x0a]);
const COLOURS_MAX = 256;

export function compressPng(png: Buffer): Buffer {
  const { width, height, pixels } = decode(png);
  const counts = new Map<number, number>();
  for (const pixel of pixels) counts.set(pixel, (counts.get(pixel) ?? 0) + 1);
  const palette = medianCut(counts);
  const nearest = new Map([...counts.keys()].map((colour) => [colour, closest(colour, palette)]));
  // Rows have no filter: flat colours compress well without one.
  const rows = Buffer.alloc((width + 1) * height);
  for (let y = 0; y < height; y += 1) {
    for (let x = 0; x < width; x += 1) rows[y * (width + 1) + 1 + x] = nearest.get(pixels[y * width + x] ?? 0) ?? 0;
  }
  const header = Buffer.alloc(13);
  header.writeUInt32BE(width, 0);
  header.writeUInt32BE(height, 4);
  header.set([8, 3, 0, 0, 0], 8);
  const colours = Buffer.from(palette.flatMap((colour) => [colour >> 16, (colour >> 8) & 255, colour & 255]));
  return Buffer.concat([SIGNATURE, chunk('IHDR', header), chunk('PLTE', colours), chunk('IDAT', deflateSync(rows, { level: 9, memLevel: 9 })), chunk('IEND', Buffer.alloc(0))]);
}

interface Picture {
  width: number;
  height: number;
  /** As 0xRRGGBB. */
  pixels: Uint32Array;
}

export function decode(png: Buffer): Picture {
  if (!png.subarray(0, 8).equals(SIGNATURE)) throw new Error('this is not a PNG');
  let at = 8;
  let [width, height, channels] = [0, 0, 3];
  const packed: Buffer[] = [];
  while (at < png.length) {
    const length = png.readUInt32BE(at);
    const kind = png.toString('latin1', at + 4, at + 8);
    const data = png.subarray(at + 8, at + 8 + length);
    if (kind === 'IHDR') {
      [width, height] = [data.readUInt32BE(0), data.readUInt32BE(4)];
      if (data[8] !== 8 || (data[9] !== 2 && data[9] !== 6) || data[12] !== 0) throw new Error('unsupported PNG format');
      channels = data[9] === 6 ? 4 : 3;
    }
    if (kind === 'IDAT') packed.push(data);
    at += 12 + length;
  }
  const bytes = unfilter(inflateSync(Buffer.concat(packed)), width * channels, height, channels);
  const pixels = new Uint32Array(width * height);
  for (let index = 0; index < pixels.length; index += 1) {
    const from = index * channels;
    pixels[index] = ((bytes[from] ?? 0) << 16) | ((bytes[from + 1] ?? 0) << 8) | (bytes[from + 2] ?? 0);
  }
  return { width, height, pixels };
}

function unfilter(raw: Buffer, stride: number, height: number, step: number): Uint8Array {
  const out = new Uint8Array(stride * height);
  for (let y = 0; y < height; y += 1) {
    const filter = raw[y * (stride + 1)] ?? 0;
    for (let x = 0; x < stride; x += 1) {
      const here = y * stride + x;
      const left = x >= step ? (out[here - step] ?? 0) : 0;
      const above = y > 0 ? (out[here - stride] ?? 0) : 0;
      const corner = x >= step && y > 0 ? (out[here - stride - step] ?? 0) : 0;
      const guess = [0, left, above, (left + above) >> 1, paeth(left, above, corner)][filter] ?? 0;
      out[here] = (raw[y * (stride + 1) + 1 + x] ?? 0) + guess;
    }
  }
  return out;
}

function paeth(left: number, above: number, corner: number): number {
  const guess = left + above - corner;
  const [a, b, c] = [Math.abs(guess - left), Math.abs(guess - above), Math.abs(guess - corner)];
  return a <= b && a <= c ? left : b <= c ? above : corner;
}

const parts = (colour: number): [number, number, number] => [colour >> 16, (colour >> 8) & 255, colour & 255];

/** Returns the palette: all colours if they are few, otherwise the most common colour of each median-cut box. */
function medianCut(counts: Map<number, number>): number[] {
  const boxes = [[...counts.keys()]];
  while (boxes.length < COLOURS_MAX) {
    const widest = boxes.map((box) => ({ box, ...spread(box, counts) })).reduce((best, next) => (next.worth > best.worth ? next : best));
    if (widest.worth === 0) break;
    const shift = 16 - 8 * widest.channel;
    const sorted = widest.box.sort((a, b) => ((a >> shift) & 255) - ((b >> shift) & 255) || a - b);
    boxes.splice(boxes.indexOf(widest.box), 1, sorted.slice(0, sorted.length >> 1), sorted.slice(sorted.length >> 1));
  }
  return boxes.map((box) => box.reduce((best, next) => ((counts.get(next) ?? 0) > (counts.get(best) ?? 0) ? next : best)));
}

function spread(box: number[], counts: Map<number, number>): { channel: number; worth: number } {
  let pixels = 0;
  const [low, high] = [[255, 255, 255], [0, 0, 0]];
  for (const colour of box) {
    pixels += counts.get(colour) ?? 0;
    parts(colour).forEach((value, channel) => {
      low[channel] = Math.min(low[channel] ?? 0, value);
      high[channel] = Math.max(high[channel] ?? 0, value);
    });
  }
  const ranges = high.map((value, channel) => value - (low[channel] ?? 0));
  const widest = Math.max(...ranges);
  return { channel: ranges.indexOf(widest), worth: widest * Math.sqrt(pixels) };
}

function closest(colour: number, palette: number[]): number {
  const [red, green, blue] = parts(colour);
  let best = { index: 0, distance: Number.POSITIVE_INFINITY };
  palette.forEach((candidate, index) => {
    const [r, g, b] = parts(candidate);
    const distance = 2 * (r - red) ** 2 + 4 * (g - green) ** 2 + 3 * (b - blue) ** 2;
    if (distance < best.distance) best = { index, distance };
  });
  return best.index;
}

function chunk(kind: string, data: Buffer): Buffer {
  const body = Buffer.concat([Buffer.from(kind, 'latin1'), data]);
  const out = Buffer.alloc(body.length + 8);
  out.writeUInt32BE(data.length, 0);
  body.copy(out, 4);
  out.writeUInt32BE(crc(body), body.length + 4);
  return out;
}

function crc(data: Buffer): number {
  let sum = 0xffffffff;
  for (const byte of data) {
    sum ^= byte;
    for (let bit = 0; bit < 8; bit += 1) sum = sum & 1 ? (sum >>> 1) ^ 0xedb88320 : sum >>> 1;
  }
  return (sum ^ 0xffffffff) >>> 0;
}
