// Names of drivers in lists: requested once, however many lists need them.
import { afterEach, expect, test, vi } from 'vitest';
import { Names } from '../src/names';

afterEach(() => void vi.unstubAllGlobals());

function server(known: Record<string, string>): { asked: string[] } {
  const asked: string[] = [];
  vi.stubGlobal('fetch', async (path: string) => {
    asked.push(path);
    const ids = path.split('=')[1].split(',').filter((id) => id in known);
    return new Response(JSON.stringify({ names: ids.map((id) => ({ driver_id: id, name: known[id], group: '' })) }));
  });
  return { asked };
}

test('a list’s unknown names are requested together, and then it is drawn again', async () => {
  const { asked } = server({ 'van-1': 'Anna', 'van-2': 'Ben' });
  const changed = vi.fn();
  const names = new Names(changed);
  expect([names.inList('van-1'), names.inList('van-2'), names.inList('hidden')]).toEqual(['van-1', 'van-2', 'hidden']);
  await vi.waitFor(() => expect(changed).toHaveBeenCalledOnce());
  expect(asked).toEqual(['api/names?of=van-1,van-2,hidden']);
  expect([names.inList('van-1'), names.inList('van-2'), names.inList('hidden')]).toEqual(['Anna', 'Ben', 'hidden']);
  await new Promise((later) => setTimeout(later, 10));
  expect(asked).toHaveLength(1);
});

test('a name that is needed during a request is requested next', async () => {
  const { asked } = server({ a: 'Anna', b: 'Ben' });
  const names = new Names(() => {});
  void names.want(['a']);
  names.inList('b');
  await vi.waitFor(() => expect(names.of('b')).toBe('Ben'));
  expect(asked).toEqual(['api/names?of=a', 'api/names?of=b']);
});
