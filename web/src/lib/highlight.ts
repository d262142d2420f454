// Colours for code, loaded when the first code is shown. The result is sanitised like everything else that becomes HTML.

import type { HLJSApi } from 'highlight.js';
import DOMPurify from 'dompurify';

/** Longer code is shown without colours. */
const HIGHLIGHT_CHARS_MAX = 60_000;

let loading: Promise<HLJSApi> | null = null;

/** The code as HTML with colour classes; nothing if the language is not known. */
export async function highlight(code: string, language: string): Promise<string | null> {
  if (code.length > HIGHLIGHT_CHARS_MAX) return null;
  loading ??= import('./languages').then((module) => module.hljs);
  const hljs = await loading;
  const name = language.toLowerCase();
  if (!hljs.getLanguage(name)) return null;
  const html = hljs.highlight(code, { language: name, ignoreIllegals: true }).value;
  return DOMPurify.sanitize(html, { ALLOWED_TAGS: ['span'], ALLOWED_ATTR: ['class'], ALLOW_DATA_ATTR: false });
}
