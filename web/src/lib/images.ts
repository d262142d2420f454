// Reads and checks images before they are sent. The server checks the bytes again.

import type { InlineImage } from '../api/types';

export const MEDIA_TYPES = ['image/png', 'image/jpeg', 'image/gif', 'image/webp'];
export const IMAGES_MAX = 8;
const IMAGE_BYTES_MAX = 5_000_000;

/** Returns why a file cannot be sent, or `null` if it can. */
export function fileProblem(file: { type: string; size: number; name: string }): string | null {
  if (!MEDIA_TYPES.includes(file.type)) return `${file.name} is not a supported image (PNG, JPEG, GIF or WebP)`;
  if (file.size > IMAGE_BYTES_MAX) return `${file.name} is larger than 5 MB`;
  return null;
}

export async function readImage(file: File): Promise<InlineImage> {
  const bytes = new Uint8Array(await file.arrayBuffer());
  return { data: base64(bytes), media_type: file.type };
}

export function base64(bytes: Uint8Array): string {
  // In chunks, because the number of arguments of a call is limited.
  const CHUNK = 0x8000;
  let text = '';
  for (let at = 0; at < bytes.length; at += CHUNK) text += String.fromCharCode(...bytes.subarray(at, at + CHUNK));
  return btoa(text);
}

/** Returns the image as a `data:` URL, or `null` if it is not of a supported type. */
export function dataUrl(image: InlineImage): string | null {
  return MEDIA_TYPES.includes(image.media_type) && /^[A-Za-z0-9+/=\s]*$/.test(image.data) ? `data:${image.media_type};base64,${image.data}` : null;
}
