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
