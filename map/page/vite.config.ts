import { existsSync, mkdirSync, readdirSync, readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { defineConfig, type Plugin } from 'vite';
import { land, type Atlas } from './land';
import { dependencies } from './package.json';

// Writes the files that background.ts imports before vite resolves imports, for `npx vite` as well
// as for a build.
const folder = join(import.meta.dirname, 'made');
mkdirSync(folder, { recursive: true });
for (const level of ['110m', '50m', '10m']) {
  const atlas = JSON.parse(readFileSync(join(import.meta.dirname, `node_modules/world-atlas/countries-${level}.json`), 'utf8')) as Atlas;
  writeFileSync(join(folder, `land-${level}.json`), JSON.stringify(land(atlas)));
}

export default defineConfig({
  // A proxy may serve the page below a path.
  base: './',
  build: {
    target: 'es2022',
    // A data: URL would need a wider CSP for fonts and scripts.
    assetsInlineLimit: 0,
    // The chunk of the map's libraries is large, but loads after the page itself.
    chunkSizeWarningLimit: 2000,
    modulePreload: { polyfill: false },
  },
  // `npx vite` shows changes at once, with the data of a running server.
  server: { proxy: { '/api': { target: process.env.MAP_URL ?? 'http://127.0.0.1:9480', changeOrigin: true } } },
  plugins: [licences()],
});

/**
 * Writes licences.txt: the licences of the bundled packages require that their texts are
 * distributed, too.
 */
function licences(): Plugin {
  return {
    name: 'licences',
    apply: 'build',
    generateBundle() {
      const packages = new Set(Object.keys(dependencies));
      for (const id of this.getModuleIds()) {
        const name = /.*\/node_modules\/((?:@[^/]+\/)?[^/]+)\//.exec(id)?.[1];
        if (name) packages.add(name);
      }
      const source = [...packages].sort().map(licence).join('\n\n');
      this.emitFile({ type: 'asset', fileName: 'licences.txt', source });
    },
  };
}

function licence(name: string): string {
  const folder = join(import.meta.dirname, 'node_modules', name);
  const { version, license } = JSON.parse(readFileSync(join(folder, 'package.json'), 'utf8')) as { version: string; license: string };
  const file = existsSync(folder) ? readdirSync(folder).find((entry) => /^licen[cs]e/i.test(entry)) : undefined;
  return `${name} ${version} (${license})\n\n${file ? readFileSync(join(folder, file), 'utf8').trim() : ''}`;
}
