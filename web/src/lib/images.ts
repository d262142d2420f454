// Images on their way to the server: what may be shown, and how a file becomes what the server takes. What an image is, the server judges by its bytes.

import type { Image } from '../api/types';

export const MEDIA = ['image/png', 'image/jpeg', 'image/gif', 'image/webp'];
export const IMAGES_MAX = 8;
const IMAGE_BYTES_MAX = 5_000_000;

/** Why a file cannot be shown; nothing if it can. */
export function unfit(file: { type: string; size: number; name: string }): string | null {
  if (!MEDIA.includes(file.type)) return `${file.name} is no image that models can look at: PNG, JPEG, GIF and WebP are taken`;
  if (file.size > IMAGE_BYTES_MAX) return `${file.name} is larger than 5 MB`;
  return null;
}

export async function read(file: File): Promise<Image> {
  const bytes = new Uint8Array(await file.arrayBuffer());
  return { data: base64(bytes), media: file.type };
}

export function base64(bytes: Uint8Array): string {
  // In pieces: a function takes only so many arguments.
  const PIECE = 0x8000;
  let text = '';
  for (let at = 0; at < bytes.length; at += PIECE) text += String.fromCharCode(...bytes.subarray(at, at + PIECE));
  return btoa(text);
}

/** As an address that the page may show. Anything but the four forms of image would be something else than an image. */
export function address(image: Image): string | null {
  return MEDIA.includes(image.media) && /^[A-Za-z0-9+/=\s]*$/.test(image.data) ? `data:${image.media};base64,${image.data}` : null;
}
