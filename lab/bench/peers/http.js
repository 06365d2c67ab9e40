// Serves /metrics and /readyz. On Bun this module uses Bun.serve, which is faster on Bun than node:http.

import { createServer } from 'node:http';

export function serve(port, hostname, registry, isReady) {
  const answer = async (path) => {
    if (path === '/metrics') return [200, await registry.metrics()];
    if (path === '/readyz') return isReady() ? [200, 'ready\n'] : [503, 'not subscribed\n'];
    return [404, 'not found\n'];
  };
  if (globalThis.Bun) {
    const fetch = async (request) => {
      const [status, body] = await answer(new URL(request.url).pathname);
      return new Response(body, { status });
    };
    Bun.serve({ port, hostname, fetch });
    return;
  }
  createServer(async (request, response) => {
    const [status, body] = await answer(request.url);
    response.writeHead(status, { 'content-type': 'text/plain' }).end(body);
  }).listen(port, hostname);
}
