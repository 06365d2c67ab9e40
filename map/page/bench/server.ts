// Serves the page with a simulated fleet of any size, without milepost and ClickHouse, so that only
// the page is measured.
import { readFileSync } from 'node:fs';
import { createServer, type Server } from 'node:http';
import { extname, join, resolve, sep } from 'node:path';
import { once } from 'node:events';
import { answer, encode, type Row } from '../test/tile';
import { unmercator } from '../src/tiles';

const DIST = resolve(import.meta.dirname, '../dist');
const TYPES: Record<string, string> = { '.html': 'text/html', '.js': 'text/javascript', '.css': 'text/css', '.json': 'application/json', '.woff2': 'font/woff2', '.svg': 'image/svg+xml' };
const DEGREES_A_SECOND = 15 / 111_320;

/** Starts the server. Each second, `moving` of the drivers have a new fix. */
export async function serve(drivers: number, moving: number): Promise<{ server: Server; url: string }> {
  const fleet: Row[] = Array.from({ length: drivers }, (_, i) => ({
    lat: 25.4 + ((i * 0.618034) % 1) * 0.8,
    lng: -80.9 + ((i * 0.754878) % 1) * 1.4,
    ts: Math.floor(Date.now() / 1000),
    speed: 15,
    heading: (i * 37) % 360,
    id: `d${i}`,
  }));
  let generation = 1;
  let next = 0;
  const timer = setInterval(() => {
    for (let i = 0; i < moving; i++) {
      const row = fleet[next++ % drivers];
      const seconds = Math.floor(Date.now() / 1000) - row.ts;
      row.lat += Math.cos((row.heading! * Math.PI) / 180) * DEGREES_A_SECOND * seconds;
      row.lng += Math.sin((row.heading! * Math.PI) / 180) * DEGREES_A_SECOND * seconds;
      row.ts += seconds;
    }
    generation++;
  }, 1000);
  const server = createServer((request, response) => {
    const { pathname, searchParams } = new URL(request.url ?? '/', 'http://localhost');
    if (pathname === '/api/tiles') {
      const wanted = (searchParams.get('of') ?? '').split(',').map((tile) => tile.split(':')[0].split('/').map(Number));
      const tiles = wanted.map(([z, x, y]) => {
        const from = unmercator(x / 2 ** z, (y + 1) / 2 ** z);
        const to = unmercator((x + 1) / 2 ** z, y / 2 ** z);
        const inside = fleet.filter(({ lat, lng }) => lng >= from.lng && lng < to.lng && lat > from.lat && lat <= to.lat);
        return { z, x, y, version: BigInt(generation), body: encode('points', inside, Date.now()) };
      });
      response.end(Buffer.from(answer(...tiles)));
    } else if (pathname === '/api/config') {
      response.end(JSON.stringify({ style_url: null, points_max: drivers, edits_fences: false, version: '' }));
    } else if (pathname === '/api/stream') {
      response.writeHead(200, { 'content-type': 'text/event-stream' });
      const tick = () => response.write(`event: tick\ndata: ${JSON.stringify({ now: Date.now(), drivers, seen_1m: drivers, rate: moving, newest: Date.now(), state: 'ok', since: 0, generation })}\n\n`);
      const ticks = setInterval(tick, 1000);
      request.on('close', () => clearInterval(ticks));
      tick();
    } else if (pathname.startsWith('/api/')) {
      response.writeHead(404).end('{}');
    } else {
      const file = join(DIST, pathname === '/' ? 'index.html' : pathname);
      if (!file.startsWith(DIST + sep)) return void response.writeHead(404).end();
      response.writeHead(200, { 'content-type': TYPES[extname(file)] ?? 'application/octet-stream' }).end(readFileSync(file));
    }
  });
  server.on('close', () => clearInterval(timer));
  server.listen(0, '127.0.0.1');
  await once(server, 'listening');
  const address = server.address();
  return { server, url: `http://127.0.0.1:${typeof address === 'object' ? address?.port : 0}` };
}
