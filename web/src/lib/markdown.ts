// Renders Markdown from models safely. HTML in it is shown as text, links may only lead to the web, images become links, and the result passes a sanitiser
// with a short list of allowed tags.

import DOMPurify from 'dompurify';
import { Marked, type Token, type Tokens } from 'marked';

/** A part of a text that is rendered separately. While a text grows, only its last block changes. */
export type Block = { type: 'code'; key: string; code: string; language: string } | { type: 'html'; key: string; html: string };

/** Longer texts are shown without formatting. */
const MARKDOWN_CHARS_MAX = 400_000;

const escapes: Record<string, string> = { '&': '&amp;', '<': '&lt;', '>': '&gt;', '"': '&quot;', "'": '&#39;' };

export function escapeHtml(text: string): string {
  return text.replace(/[&<>"']/g, (char) => escapes[char] ?? char);
}

/** Returns the URL if a link may lead there, otherwise `null`. */
export function safeHref(href: string): string | null {
  try {
    const to = new URL(href);
    return ['http:', 'https:', 'mailto:'].includes(to.protocol) ? to.href : null;
  } catch {
    return null;
  }
}

const marked = new Marked({
  gfm: true,
  renderer: {
    html: ({ text }: Tokens.HTML | Tokens.Tag) => escapeHtml(text),
    heading({ tokens, depth }: Tokens.Heading) {
      // The page's own headings are above these.
      const level = Math.min(6, depth + 2);
      return `<h${level}>${this.parser.parseInline(tokens)}</h${level}>\n`;
    },
    link({ href, title, tokens }: Tokens.Link) {
      const inner = this.parser.parseInline(tokens);
      const to = safeHref(href);
      if (to === null) return inner;
      const hint = title ? ` title="${escapeHtml(title)}"` : '';
      return `<a href="${escapeHtml(to)}"${hint} target="_blank" rel="noopener noreferrer nofollow">${inner}</a>`;
    },
    image({ href, text }: Tokens.Image) {
      const to = safeHref(href);
      const name = escapeHtml(text || 'image');
      return to === null ? name : `<a href="${escapeHtml(to)}" target="_blank" rel="noopener noreferrer nofollow">${name}</a>`;
    },
    checkbox: ({ checked }: Tokens.Checkbox) => (checked ? '☑ ' : '☐ '),
  },
});

const ALLOWED_TAGS = ['p', 'br', 'strong', 'em', 'del', 'code', 'pre', 'blockquote', 'ul', 'ol', 'li', 'h3', 'h4', 'h5', 'h6', 'hr', 'a', 'table', 'thead', 'tbody', 'tr', 'th', 'td'];
const ALLOWED_ATTR = ['href', 'title', 'target', 'rel', 'align', 'start'];

export function sanitise(html: string): string {
  return DOMPurify.sanitize(html, { ALLOWED_TAGS, ALLOWED_ATTR, ALLOW_DATA_ATTR: false, ALLOW_ARIA_ATTR: false });
}

const cache = new Map<string, string>();
const CACHE_MAX = 2_000;

/** Renders a block, from the cache if possible: streaming renders the same blocks again and again. */
function blockHtml(token: Token): string {
  const known = cache.get(token.raw);
  if (known !== undefined) return known;
  const html = sanitise(marked.parser([token]));
  if (cache.size >= CACHE_MAX) cache.clear();
  cache.set(token.raw, html);
  return html;
}

export function renderBlocks(text: string): Block[] {
  if (text.length > MARKDOWN_CHARS_MAX) return [{ type: 'code', key: '0', code: text, language: '' }];
  const tokens = marked.lexer(text);
  const linked = Object.keys((tokens as { links?: object }).links ?? {}).length > 0;
  if (linked) return [{ type: 'html', key: '0', html: sanitise(marked.parser(tokens)) }];
  return tokens
    .filter((token) => token.type !== 'space')
    .map((token, index) => {
      const key = String(index);
      if (token.type === 'code') {
        const code = token as Tokens.Code;
        return { type: 'code', key, code: code.text, language: (code.lang ?? '').split(/\s/)[0] ?? '' };
      }
      return { type: 'html', key, html: blockHtml(token) };
    });
}
