import { createHash } from 'node:crypto';
import { svelte } from '@sveltejs/vite-plugin-svelte';
import { defineConfig } from 'vitest/config';

// The server that `npm run dev` uses.
const server = process.env.SEGUE_URL ?? 'http://127.0.0.1:7348';

export default defineConfig({
  plugins: [
    svelte({
      compilerOptions: {
        // Hashes the content, not the path, so that the output is the same wherever it is built.
        cssHash: ({ css }) => `s${createHash('sha256').update(css).digest('hex').slice(0, 8)}`,
      },
    }),
  ],
  build: {
    outDir: '../crates/server/assets/studio',
    emptyOutDir: true,
    target: ['chrome123', 'firefox121', 'safari17.5'],
    cssTarget: ['chrome123', 'firefox121', 'safari17.5'],
    assetsInlineLimit: 0,
    modulePreload: { polyfill: false },
    reportCompressedSize: false,
    chunkSizeWarningLimit: 1000,
  },
  server: {
    port: 5173,
    proxy: Object.fromEntries(['/v1', '/errors', '/docs', '/openapi.json'].map((path) => [path, { target: server, changeOrigin: true }])),
  },
  test: {
    include: ['tests/**/*.test.ts'],
    environment: 'node',
  },
});
