// Names of drivers in lists are requested once, however many lists need them.
import { afterEach, expect, test, vi } from 'vitest';
import { Names } from '../src/names';

afterEach(() => void vi.unstubAllGlobals());

function server(known: Record<string, string>): { requests: string[] } {
  const requests: string[] = [];
  vi.stubGlobal('fetch', async (path: string) => {
    requests.push(path);
    const ids = path.split('=')[1].split(',').filter((id) => id in known);
    return new Response(JSON.stringify({ names: ids.map((id) => ({ driver_id: id, name: known[id], group: '' })) }));
  });
  return { requests };
}

test('unknown names are requested together and then drawn', async () => {
  const { requests } = server({ 'van-1': 'Anna', 'van-2': 'Ben' });
  const changed = vi.fn();
  const names = new Names(changed);
  expect([names.getOrRequest('van-1'), names.getOrRequest('van-2'), names.getOrRequest('hidden')]).toEqual(['van-1', 'van-2', 'hidden']);
  await vi.waitFor(() => expect(changed).toHaveBeenCalledOnce());
  expect(requests).toEqual(['api/names?of=van-1,van-2,hidden']);
  expect([names.getOrRequest('van-1'), names.getOrRequest('van-2'), names.getOrRequest('hidden')]).toEqual(['Anna', 'Ben', 'hidden']);
  await new Promise((later) => setTimeout(later, 10));
  expect(requests).toHaveLength(1);
});

test('a name that is needed during a request is requested next', async () => {
  const { requests } = server({ a: 'Anna', b: 'Ben' });
  const names = new Names(() => {});
  void names.load(['a']);
  names.getOrRequest('b');
  await vi.waitFor(() => expect(names.get('b')).toBe('Ben'));
  expect(requests).toEqual(['api/names?of=a', 'api/names?of=b']);
});

test('old names and groups stay until the new ones arrive', async () => {
  const known = { a: 'Anna', b: 'Ben' };
  const { requests } = server(known);
  const names = new Names(() => {});
  names.tick(1);
  await names.load(['a', 'b']);
  names.tick(2);
  expect([names.get('a'), names.getOrRequest('b')]).toEqual(['Anna', 'Ben']);
  Object.assign(known, { b: 'Berta' });
  await vi.waitFor(() => expect(names.get('b')).toBe('Berta'));
  expect(requests).toEqual(['api/names?of=a,b', 'api/names?of=b']);
  // Nobody sees b any more.
  Reflect.deleteProperty(known, 'b');
  names.tick(3);
  await names.load(['b']);
  expect(names.get('b')).toBe('b');
});

test('old names and groups stay if the request for new ones fails', async () => {
  server({ a: 'Anna' });
  const names = new Names(() => {});
  await names.load(['a']);
  names.tick(1);
  vi.stubGlobal('fetch', () => Promise.reject(new TypeError('fetch failed')));
  await names.load(['a']);
  expect(names.get('a')).toBe('Anna');
  const { requests } = server({ a: 'Ada' });
  await names.load(['a']);
  expect([names.get('a'), requests.length]).toEqual(['Ada', 1]);
});

test('an answer during which names have changed is requested again', async () => {
  const known = { a: 'Anna' };
  const { requests } = server(known);
  const names = new Names(() => names.getOrRequest('a'));
  names.tick(1);
  await vi.waitFor(() => expect(names.get('a')).toBe('Anna'));
  names.tick(2);
  void names.load(['a']);
  names.tick(3);
  Object.assign(known, { a: 'Ada' });
  await vi.waitFor(() => expect(requests.length).toBe(3));
  await vi.waitFor(() => expect(names.get('a')).toBe('Ada'));
});

test('names are requested again from a server that has started again and counts from the beginning', async () => {
  const known = { a: 'Anna' };
  const { requests } = server(known);
  const names = new Names(() => {});
  names.tick(1, true);
  await names.load(['a']);
  Object.assign(known, { a: 'Ada' });
  names.tick(1);
  await names.load(['a']);
  expect([names.get('a'), requests.length]).toEqual(['Anna', 1]);
  names.tick(1, true);
  await names.load(['a']);
  expect([names.get('a'), requests.length]).toEqual(['Ada', 2]);
});
