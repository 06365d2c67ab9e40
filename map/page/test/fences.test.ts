// The fences of the map, in a simulated page.
import { afterEach, beforeEach, describe, expect, test, vi } from 'vitest';
import { Fences, type Fence } from '../src/fences';
import { setUnit } from '../src/words';
import { page, type Page } from './page';

const SQUARE = [[0, 0], [0, 1], [1, 1], [0, 0]];
const fence = (name: string, rings: number): Fence => ({ type: 'Feature', properties: { name, valid_from: 0 }, geometry: { type: 'MultiPolygon', coordinates: Array.from({ length: rings }, () => [SQUARE]) } });
let shown: Page;
let fences: Fences;
/** What the banner says about fences. */
let warning: string;
/** The padding with which the map was moved to a fence. */
let fits: { top: number; bottom: number; left: number; right: number }[];
/** How often a move of the map was announced. */
let moves: number;

beforeEach(async () => {
  [warning, fits, moves] = ['', [], 0];
  shown = page();
  Object.assign(shown.element('map'), { clientWidth: 768, clientHeight: 1024 });
  shown.element('fence-form').hidden = true;
  vi.stubGlobal('fetch', (url: string) => (url === 'api/fences' ? Promise.resolve(Response.json({ features: [fence('Islands', 2)] })) : new Promise(() => {})));
  const map = { on() {}, getLayer: () => ({}), setPaintProperty() {}, getSource: () => ({ setData() {} }), getZoom: () => 10, getContainer: () => shown.element('map'), fitBounds: (_: unknown, { padding }: { padding: (typeof fits)[number] }) => fits.push(padding), queryRenderedFeatures: () => [{ properties: { name: 'Islands', width: 0.001 } }] };
  fences = new Fences(map as never, 'dark', true, { opening() {}, changed() {}, name: String, choose() {}, moving: () => moves++, warn: (text) => (warning = text), seesAll: true });
  await vi.waitUntil(() => fences.all.length > 0);
});
afterEach(() => {
  setUnit('');
  vi.unstubAllGlobals();
});

test('while a fence is edited, a click on the map does not find another one', async () => {
  expect([fences.isEditing, fences.at([0, 0], 100)?.properties.name]).toEqual([false, 'Islands']);
  fences.show(fences.all[0]);
  // Opening the card has loaded them again.
  await fences.load();
  shown.element('fence-shown-edit').dispatch('click');
  // An outline of several rings is not drawn, but its form is open.
  expect([fences.isDrawing, fences.isEditing, fences.at([0, 0], 100)]).toEqual([false, true, null]);
  shown.element('fence-cancel').dispatch('click');
  expect([fences.isEditing, fences.at([0, 0], 100)?.properties.name]).toEqual([false, 'Islands']);
});

test('a late list of fences does not replace a newer one', async () => {
  const waiting: ((...names: string[]) => void)[] = [];
  vi.stubGlobal('fetch', () => new Promise((resolve) => waiting.push((...names) => resolve(Response.json({ features: names.map((name) => fence(name, 1)) })))));
  const [old, next] = [fences.load(), fences.load()];
  waiting[1]('Depot');
  await next;
  waiting[0]('Depot', 'Removed');
  await old;
  expect(fences.all.map(({ properties }) => properties.name)).toEqual(['Depot']);
});

test('an older list of fences is shown if a newer request for it fails', async () => {
  const waiting: { answer(): void; fail(): void }[] = [];
  vi.stubGlobal('fetch', () => new Promise((resolve, reject) => waiting.push({ answer: () => resolve(Response.json({ features: [fence('Depot', 1)] })), fail: () => reject(new TypeError('fetch failed')) })));
  const [old, next] = [fences.load(), fences.load()];
  waiting[1].fail();
  await next;
  expect(shown.element('fences-said').textContent).toBe('The server does not answer.');
  waiting[0].answer();
  await old;
  expect([fences.all.map(({ properties }) => properties.name), shown.element('fences-said').textContent]).toEqual([['Depot'], '']);
});

describe('a save without an answer yet', () => {
  let saves: { body: { properties: Record<string, unknown> }; answer(status?: number): void }[];
  /** The fences that the server sends. */
  let listed: Fence[];
  const edit = async (name: string) => {
    fences.show(fences.all.find(({ properties }) => properties.name === name)!);
    await fences.load();
    shown.element('fence-shown-edit').dispatch('click');
  };
  const save = () => shown.element('fence-form').dispatch('submit');
  const settled = () => new Promise((later) => setTimeout(later, 10));

  beforeEach(async () => {
    saves = [];
    listed = [fence('Islands', 2), fence('Lakes', 2)];
    vi.stubGlobal('fetch', (url: string, init?: RequestInit) =>
      init?.method === 'POST'
        ? new Promise((resolve) => saves.push({ body: JSON.parse(init.body as string), answer: (status = 200) => resolve(status === 200 ? Response.json({}) : Response.json({ error: 'another user' }, { status })) }))
        : url === 'api/fences'
          ? Promise.resolve(Response.json({ features: listed }))
          : new Promise(() => {}),
    );
    await fences.load();
    await edit('Islands');
    save();
  });

  test('is not sent again', async () => {
    save();
    expect(saves.map(({ body }) => body.properties.name)).toEqual(['Islands']);
    // After a refusal it may be.
    saves[0].answer(503);
    await settled();
    save();
    expect(saves.length).toBe(2);
  });

  const said = () => shown.element('fences-said').textContent;
  const FAILURE = 'Islands was not saved: another user.';
  const disabled = () => ['fence-submit', 'fence-remove'].map((id) => shown.element(id).attributes['aria-disabled']);

  test('is announced, and disables Save and Remove', async () => {
    expect([said(), ...disabled()]).toEqual(['Saving …', 'true', 'true']);
    shown.element('fence-remove').dispatch('click');
    expect(saves.length).toBe(1);
    saves[0].answer(503);
    await settled();
    expect([said(), ...disabled()]).toEqual(['another user', 'false', 'false']);
  });

  test('leaves the form open if the viewer changes it meanwhile', async () => {
    shown.element('fence-stay').value = '30';
    shown.element('fence-name').value = 'Isles';
    listed = [{ ...fence('Islands', 2), properties: { name: 'Islands', valid_from: 7, outline: 'b' } }];
    saves[0].answer();
    await settled();
    expect([fences.isEditing, shown.element('fence-name').value, shown.element('fence-stay').value]).toEqual([true, 'Isles', '30']);
    expect([said(), ...disabled()]).toEqual(['Islands was saved. Your changes since then are not saved yet.', 'false', 'false']);
    // They are saved against the new version, and what the first save stored is not sent again.
    save();
    expect(saves[1].body.properties).toEqual({ name: 'Isles', was: 'Islands', valid_from: 7, stay_max_s: 1800, rewrite_past: false });
    saves[1].answer();
    await settled();
    expect(fences.isEditing).toBe(false);
  });

  test('of other rules is the base of the next one', async () => {
    saves[0].answer(503);
    await settled();
    shown.element('fence-stay').value = '30';
    save();
    shown.element('fence-silent').value = '5';
    saves[1].answer();
    await settled();
    save();
    expect(saves[2].body.properties).toMatchObject({ name: 'Islands', silent_for_s: 300 });
    expect(saves[2].body.properties).not.toHaveProperty('stay_max_s');
  });

  test('of a removal closes the form', async () => {
    saves[0].answer(503);
    await settled();
    shown.element('fence-remove').dispatch('click');
    shown.element('fence-stay').value = '30';
    saves[1].answer();
    await settled();
    expect(fences.isEditing).toBe(false);
  });

  test.each([200, 409, 503])('leaves the form of another fence open, and is told after it (%i)', async (status) => {
    shown.element('fence-cancel').dispatch('click');
    await edit('Lakes');
    const message = said();
    saves[0].answer(status);
    await settled();
    const failure = status === 200 ? '' : FAILURE;
    expect([fences.isEditing, shown.element('fence-name').value, said()]).toEqual([true, 'Lakes', [failure, message].filter(Boolean).join(' ')]);
    save();
    expect(saves.at(-1)!.body.properties.name).toBe('Lakes');
    saves.at(-1)!.answer();
    await settled();
    expect([fences.isEditing, said()]).toEqual([false, failure]);
    // A list that is read again keeps it until the viewer opens a form.
    await fences.load();
    expect(said()).toBe(failure);
    await edit('Lakes');
    shown.element('fence-cancel').dispatch('click');
    expect(said()).toBe('');
  });

  test('that fails while the box is closed is told in the banner until the box opens', async () => {
    fences.toggle();
    saves[0].answer(503);
    await settled();
    expect(warning).toBe(`${FAILURE} Make the change again in Fences.`);
    fences.toggle();
    await settled();
    expect([warning, said()]).toEqual(['', FAILURE]);
    fences.toggle();
    fences.toggle();
    await settled();
    expect([warning, said()]).toEqual(['', '']);
  });

  test('that fails while another form is open is told in that form', async () => {
    shown.element('fence-cancel').dispatch('click');
    await edit('Lakes');
    const message = said();
    saves[0].answer(503);
    await settled();
    expect([warning, said()]).toEqual(['', `${FAILURE} ${message}`]);
    // The message may be out of view below the form, so it is told again.
    fences.toggle();
    expect(warning).toBe(`${FAILURE} Make the change again in Fences.`);
    fences.toggle();
    await settled();
    expect([warning, said()]).toEqual(['', FAILURE]);
  });

  test('that fails while the list is scrolled scrolls to the message', async () => {
    shown.element('fence-cancel').dispatch('click');
    const { scrolls } = shown.element('fences-said');
    saves[0].answer(503);
    await settled();
    expect([said(), shown.element('fences-said').scrolls > scrolls]).toEqual([FAILURE, true]);
  });

  test('that succeeds keeps the failure of another save of its fence', async () => {
    const closed = async (name: string) => {
      fences.toggle();
      await edit(name);
      save();
    };
    await closed('Lakes');
    await closed('Islands');
    fences.toggle();
    for (const late of saves.slice(0, 2)) late.answer(503);
    await settled();
    expect(warning).toBe(`${FAILURE} Lakes was not saved: another user. Make the change again in Fences.`);
    saves[2].answer();
    await settled();
    expect(warning).toBe(`${FAILURE} Lakes was not saved: another user. Make the change again in Fences.`);
  });

  test('with a conflict is followed by one against the newest version', async () => {
    const lists: { answer(): void; fail(): void }[] = [];
    const { fetch: other } = globalThis;
    vi.stubGlobal('fetch', (url: string, init?: RequestInit) => {
      if (init?.method) return other(url, init);
      const features = [{ ...fence('Islands', 2), properties: { name: 'Islands', valid_from: 10 + lists.length } }];
      return new Promise((resolve, reject) => lists.push({ answer: () => resolve(Response.json({ features })), fail: () => reject(new TypeError('fetch failed')) }));
    });
    saves[0].answer(409);
    await settled();
    // The page reads the list again meanwhile, for example because the stream has reconnected.
    void fences.load();
    lists[0].fail();
    await settled();
    expect(said()).toBe('Saving …');
    lists[1].answer();
    await settled();
    expect(said()).toBe('Another user. Both are on the map: save again to replace theirs, or cancel to keep it.');
    save();
    expect(saves[1].body.properties.valid_from).toBe(11);
    // If their version is not known, the page does not say that it is on the map.
    saves[1].answer(409);
    await settled();
    lists[2].fail();
    await settled();
    expect(said()).toBe('Another user. Their version could not be loaded: save again to try that again, or cancel.');
  });

  test('and its conflict leave the form of another fence open', async () => {
    let answer = () => {};
    const { fetch: other } = globalThis;
    vi.stubGlobal('fetch', (url: string, init?: RequestInit) => (url === 'api/fences' && !init?.method ? new Promise((resolve) => (answer = () => resolve(Response.json({ features: [fence('Islands', 2)] })))) : other(url, init)));
    saves[0].answer(409);
    await settled();
    shown.element('fence-cancel').dispatch('click');
    fences.show(fences.all.find(({ properties }) => properties.name === 'Lakes')!);
    shown.element('fence-shown-edit').dispatch('click');
    answer();
    await settled();
    expect(said()).toMatch(FAILURE);
    save();
    expect(saves.at(-1)!.body.properties).toMatchObject({ name: 'Lakes', rewrite_past: false });
    expect(saves.at(-1)!.body.properties).not.toHaveProperty('was');
  });

  test('with a conflict is told if its form closes while the newest version loads', async () => {
    let answer = () => {};
    const { fetch: other } = globalThis;
    vi.stubGlobal('fetch', (url: string, init?: RequestInit) => (init?.method ? other(url, init) : new Promise((resolve) => (answer = () => resolve(Response.json({ features: listed }))))));
    saves[0].answer(409);
    await settled();
    fences.toggle();
    answer();
    await settled();
    expect(warning).toBe(`${FAILURE} Make the change again in Fences.`);
  });
});

test('a form that closes gives the focus to New if its fence has no row', () => {
  const form = shown.element('fence-form');
  form.append(...['fence-name', 'fence-cancel'].map((id) => shown.element(id)));
  fences.toggle();
  shown.element('fence-new').dispatch('click');
  shown.element('fence-cancel').focus();
  shown.element('fence-cancel').dispatch('click');
  expect([fences.isEditing, shown.focused()]).toEqual([false, 'fence-new']);
  // A focus elsewhere stays there.
  shown.element('fence-new').dispatch('click');
  shown.element('find').focus();
  shown.element('fence-cancel').dispatch('click');
  expect(shown.focused()).toBe('find');
});

test('the list of fences has the unit that the viewer chooses', async () => {
  const slow = fence('School', 1);
  vi.stubGlobal('fetch', () => Promise.resolve(Response.json({ features: [{ ...slow, properties: { ...slow.properties, speed_limit_kmh: 50 } }] })));
  await fences.load();
  const rules = () => (shown.element('fences-list').children as { children: { children: { textContent: string }[] }[] }[]).map((row) => row.children[0].children[1].textContent);
  expect(rules()).toEqual(['50 km/h']);
  setUnit('mph');
  fences.redraw();
  expect(rules()).toEqual(['31 mph']);
});

test('a fence that is chosen in the list is shown below a card across a tablet', () => {
  shown.element('fences-box').rect = { left: 8, top: 116, right: 760, bottom: 500 };
  fences.redraw();
  shown.element('fences-list').querySelectorAll('button')[0].dispatch('click');
  expect([fits.length, moves]).toEqual([1, 1]);
  expect(fits[0].top).toBeGreaterThan(500);
  expect(fits[0].left + fits[0].right).toBeLessThan(768 / 2);
});

test('a row that gets the focus is scrolled into view', () => {
  shown.element('fence-form').append(shown.element('fence-cancel'));
  fences.toggle();
  shown.element('fence-new').dispatch('click');
  shown.element('fence-cancel').focus();
  shown.element('fence-cancel').dispatch('click');
  expect([shown.focused(), shown.element('fence-new').scrolls]).toEqual(['fence-new', 1]);
});
