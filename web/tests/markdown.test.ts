// @vitest-environment jsdom
import { describe, expect, it } from 'vitest';
import { renderBlocks, safeHref } from '../src/lib/markdown';

function page(text: string): HTMLElement {
  const root = document.createElement('div');
  for (const block of renderBlocks(text)) {
    const part = document.createElement('div');
    if (block.type === 'code') part.textContent = block.code;
    else part.innerHTML = block.html;
    root.append(part);
  }
  return root;
}

/** Answers of a hostile model. None may become an active element or an executable URL. */
const HOSTILE = [
  '<script>alert(1)</script>',
  'before <script src="//evil.example/x.js"></script> after',
  '<img src=x onerror=alert(1)>',
  '<svg onload=alert(1)><a xlink:href="javascript:alert(1)">x</a></svg>',
  '<iframe srcdoc="<script>alert(1)</script>"></iframe>',
  '[click](javascript:alert(1))',
  '[click](JaVaScRiPt:alert(1))',
  '[click](data:text/html,<script>alert(1)</script>)',
  '[click](vbscript:msgbox(1))',
  '![x](javascript:alert(1))',
  '<a href="javascript:alert(1)">x</a>',
  '[x](http://a.example "onmouseover=alert(1) x=")',
  '[x](http://a.example/" onmouseover="alert(1))',
  '```html\n<script>alert(1)</script>\n```',
  '`<script>alert(1)</script>`',
  '<style>body{display:none}</style>',
  '<div style="position:fixed;inset:0">x</div>',
  '<form action="//evil.example"><input name=a></form>',
  '<math><mtext><table><mglyph><style><img src=x onerror=alert(1)>',
  '- <details open ontoggle=alert(1)>x</details>',
  '| a |\n|---|\n| <img src=x onerror=alert(1)> |',
  '<base href="//evil.example">',
  '<meta http-equiv="refresh" content="0;url=//evil.example">',
  '[x]: javascript:alert(1)\n\n[click][x]',
  '&lt;script&gt;alert(1)&lt;/script&gt;',
  '<scr<script>ipt>alert(1)</scr</script>ipt>',
  '# <img src=x onerror=alert(1)>',
  '<!--><img src=x onerror=alert(1)>-->',
];

describe('a model’s text', () => {
  it.each(HOSTILE)('is never executed: %s', (text) => {
    const root = page(text);
    const forbidden = root.querySelectorAll('script, style, iframe, object, embed, img, svg, math, form, input, base, meta, link, details');
    expect([...forbidden].map((element) => element.outerHTML)).toEqual([]);
    for (const element of root.querySelectorAll('*')) {
      for (const { name, value } of element.attributes) {
        expect(name.startsWith('on') || name === 'style' || name === 'srcdoc', `${name}="${value}"`).toBe(false);
        if (name === 'href') expect(value).toMatch(/^(https?:|mailto:)/);
      }
    }
  });

  it('shows a script tag as text', () => {
    expect(page('before <script>alert(1)</script> after').textContent).toContain('<script>alert(1)</script>');
    expect(page('<script>alert(1)</script>').textContent).toContain('<script>alert(1)</script>');
  });

  it('keeps formatting', () => {
    const root = page('## Two\n\n**bold** and `code`, [a link](https://a.example/x?y=1&z=2)\n\n1. one\n2. two\n\n| a | b |\n|---|--:|\n| 1 | 2 |\n\n```rust\nfn main() {}\n```');
    expect(root.querySelector('h4')?.textContent).toBe('Two');
    expect(root.querySelector('strong')?.textContent).toBe('bold');
    expect(root.querySelector('a')?.getAttribute('href')).toBe('https://a.example/x?y=1&z=2');
    expect(root.querySelector('a')?.getAttribute('rel')).toContain('noopener');
    expect(root.querySelectorAll('li')).toHaveLength(2);
    expect(root.querySelectorAll('td')).toHaveLength(2);
    expect(renderBlocks('```rust\nfn main() {}\n```')).toEqual([{ type: 'code', key: '0', code: 'fn main() {}', language: 'rust' }]);
  });

  it('changes only its last block while it grows', () => {
    const text = 'One.\n\nTwo, with *stress*.\n\n- three\n- four\n\nFive';
    for (let end = 1; end < text.length; end += 1) {
      const before = renderBlocks(text.slice(0, end));
      const after = renderBlocks(text.slice(0, end + 1));
      // A new block may be split off the last one, but earlier blocks do not change.
      expect(after.slice(0, Math.max(0, before.length - 1))).toEqual(before.slice(0, -1));
    }
  });
});

it('links may only lead to the web', () => {
  expect(safeHref('https://a.example/')).toBe('https://a.example/');
  expect(safeHref('mailto:a@b.example')).toBe('mailto:a@b.example');
  for (const href of ['javascript:1', ' javascript:1', 'java\nscript:1', 'data:text/html,x', 'file:///etc/passwd', '/v1/sessions', 'x', '']) expect(safeHref(href), href).toBeNull();
});
