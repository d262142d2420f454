// Syntax highlighting, loaded when the first code block is shown. The HTML is sanitised.

import type { HLJSApi } from 'highlight.js';
import DOMPurify from 'dompurify';

/** Longer code is not highlighted. */
const HIGHLIGHT_CHARS_MAX = 60_000;

let loading: Promise<HLJSApi> | null = null;

/** Returns the code as HTML with colour classes, or `null` if the language is unknown. */
export async function highlight(code: string, language: string): Promise<string | null> {
  if (code.length > HIGHLIGHT_CHARS_MAX) return null;
  loading ??= import('./languages').then((module) => module.hljs);
  const hljs = await loading;
  const name = language.toLowerCase();
  if (!hljs.getLanguage(name)) return null;
  const html = hljs.highlight(code, { language: name, ignoreIllegals: true }).value;
  return DOMPurify.sanitize(html, { ALLOWED_TAGS: ['span'], ALLOWED_ATTR: ['class'], ALLOW_DATA_ATTR: false });
}
