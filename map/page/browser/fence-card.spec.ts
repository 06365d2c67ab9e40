// The card of the fences: a click into a fence shows who is inside, and nothing jumps.
import { publish } from './mqtt';
import { expect, jumpTo, open, test, violations } from './world';

const MINUTE_MS = 60_000;

test('a click into a fence shows its name, who is inside since when, and Edit', async ({ page, stack }) => {
  const now = Date.now();
  const square = (half: number) => `[[[${[[-1, -1], [1, -1], [1, 1], [-1, 1]].map(([x, y]) => `(${14.5 + x * half}, ${46.6 + y * half})`).join(', ')}]]]`;
  await stack.query(`INSERT INTO fleet.fences (name, polygons, speed_limit_kmh) VALUES ('clicked yard', ${square(0.01)}, 30), ('clicked region', ${square(0.02)}, NULL), ('clicked country', ${square(3)}, NULL)`);
  await publish(stack.mqttPort, 'drivers/in-yard/gps', Array.from({ length: 50 }, (_, i) => ({ lat: 46.6, lng: 14.505, speed: 0, ts: now - (50 - i) * MINUTE_MS })));
  await expect.poll(async () => stack.query("SELECT count() FROM fleet.fixes WHERE driver_id = 'in-yard'")).toBe('50');
  await open(page, stack, '#at=13/46.6/14.5');
  await expect.poll(() => page.evaluate(() => { const { map } = window.milepost!; return map.getLayer('fences-area') ? map.queryRenderedFeatures({ layers: ['fences-area'] }).length : 0; })).toBeGreaterThan(1);
  const click = async (lng: number, lat: number) => {
    const { x, y } = await page.evaluate((place) => window.milepost!.map.project(place as [number, number]), [lng, lat]);
    await page.mouse.move(x, y);
    await expect.poll(() => page.evaluate(() => window.milepost!.map.getCanvas().style.cursor)).toBe('pointer');
    await page.mouse.click(x, y);
  };
  await click(14.503, 46.606);
  const box = page.getByRole('region', { name: 'Fences' });
  const title = page.locator('#visits-title');
  await expect(title).toHaveText('clicked yard: 1 inside, 0 left today');
  await expect(title).toBeFocused();
  await expect(box).toContainText('30 km/h');
  await expect(box.getByRole('list', { name: 'Visits' })).toContainText(/in-yardinside since (\d+ \w+, )?\d\d:\d\d · (49|50|51) min/);
  await expect(box.getByRole('list', { name: 'Fences that are valid now' })).toBeHidden();
  const line = (name: string) => page.evaluate((fence) => JSON.stringify(window.milepost!.map.getPaintProperty('fences-line', 'line-width')).includes(fence), name);
  expect(await line('clicked yard')).toBe(true);
  // The larger fence around it; the country's outline is out of view.
  await click(14.503, 46.613);
  await expect(title).toHaveText(/^clicked region: 1 inside/);
  await box.getByRole('button', { name: 'Edit clicked region' }).click();
  await expect(page.locator('.corner')).toHaveCount(4);
  await expect(box.getByLabel('Name')).toHaveValue('clicked region');
  await box.getByRole('button', { name: 'Cancel' }).click();
  // With many visits the card ends above the legend, on a phone too.
  await page.setViewportSize({ width: 390, height: 844 });
  await page.locator('#visits').evaluate((list) => { for (let i = 0; i < 30; i++) list.append(Object.assign(document.createElement('li'), { textContent: `visit ${i}` })); });
  const [card, legend] = [(await box.boundingBox())!, (await page.locator('#legend').boundingBox())!];
  expect(card.y + card.height).toBeLessThanOrEqual(legend.y);
  await page.setViewportSize({ width: 1280, height: 800 });
  for (const colorScheme of ['light', 'dark'] as const) {
    await page.emulateMedia({ colorScheme });
    await click(14.503, 46.606);
    await expect(title).toHaveText(/inside/);
    expect(await violations(page), colorScheme).toEqual([]);
  }
  await box.getByRole('button', { name: 'All fences' }).click();
  // With the keyboard: from the list, and back to where it was.
  await box.getByRole('button', { name: 'clicked yard 30 km/h' }).press('Enter');
  await expect(title).toHaveText(/^clicked yard: 1 inside/);
  await box.getByRole('button', { name: 'All fences' }).press('Enter');
  await expect(box.getByRole('button', { name: 'clicked yard 30 km/h' })).toBeFocused();
  expect(await line('clicked yard')).toBe(false);
  await page.waitForFunction(() => !window.milepost!.map.isMoving());
  await page.keyboard.press('Escape');
  await jumpTo(page, [14.5, 46.65], 13);
  const { x, y } = await page.evaluate(() => window.milepost!.map.project([14.5, 46.65]));
  await page.mouse.click(x, y);
  await expect(box).toBeHidden();
  // Stops of other tests are in this country.
  for (const name of ['yard', 'region', 'country']) await stack.query(`ALTER TABLE fleet.fences DELETE WHERE name = 'clicked ${name}' SETTINGS mutations_sync = 1`);
});

test('“Change the past too” moves no button', async ({ page, stack }) => {
  await stack.query("INSERT INTO fleet.fences (name, polygons, stay_max_s) VALUES ('steady yard', [[[(14.1, 46.6), (14.11, 46.6), (14.11, 46.61), (14.1, 46.61)]]], 60)");
  for (const viewport of [{ width: 1280, height: 720 }, { width: 390, height: 844 }]) {
    await page.setViewportSize(viewport);
    await page.goto('about:blank');
    await open(page, stack, '#at=13/46.6/14.1');
    await page.keyboard.press('g');
    const box = page.getByRole('region', { name: 'Fences' });
    await box.getByRole('button', { name: 'Edit steady yard' }).click();
    const past = box.getByLabel('Change the past too');
    // With its rules open the form is longer than the card, and Save is in view all the same.
    const save = box.getByRole('button', { name: 'Save' });
    const bottom = async () => { const { y, height } = (await save.boundingBox())!; return y + height; };
    const card = (await box.boundingBox())!;
    expect(await bottom()).toBeLessThan(card.y + card.height);
    await past.evaluate((field) => field.scrollIntoView({ block: 'nearest' }));
    expect(await bottom()).toBeLessThan(card.y + card.height);
    const places = () => box.locator('#fence-form button:visible, #fence-form input:visible').evaluateAll((all) => all.map((one) => { const { x, y, width, height } = one.getBoundingClientRect(); return [x, y, width, height].map(Math.round).join(); }));
    const before = await places();
    await past.click();
    await expect(past).toBeChecked();
    expect(await places()).toEqual(before);
    await past.click();
    expect(await places()).toEqual(before);
  }
});

test('Undo undoes the last change of an outline, and a new corner is set on the nearest side', async ({ page, stack }) => {
  await stack.query("INSERT INTO fleet.fences (name, polygons) VALUES ('edited yard', [[[(13.1, 45.1), (13.11, 45.1), (13.11, 45.11), (13.1, 45.11)]]])");
  await open(page, stack, '#at=14.5/45.105/13.105');
  const fences = page.getByRole('region', { name: 'Fences' });
  await page.keyboard.press('g');
  await fences.getByRole('button', { name: 'Edit edited yard' }).click();
  const draft = () => page.evaluate(() => window.milepost!.fences['draft'].ring().map((point) => point.map((degrees) => Number(degrees.toFixed(4))).join(' ')));
  const square = ['13.1 45.1', '13.11 45.1', '13.11 45.11', '13.1 45.11', '13.1 45.1'];
  const undo = fences.getByRole('button', { name: 'Undo' });
  expect(await draft()).toEqual(square);
  await expect(undo).toBeDisabled();
  const at = (lng: number, lat: number) => page.evaluate(([x, y]) => { const point = window.milepost!.map.project([x, y]); return { x: point.x, y: point.y }; }, [lng, lat]);
  const [corner, to] = [await at(13.11, 45.11), await at(13.114, 45.113)];
  await page.mouse.move(corner.x, corner.y);
  await page.mouse.down();
  await page.mouse.move(to.x, to.y, { steps: 5 });
  await page.mouse.up();
  expect((await draft())[2]).not.toBe(square[2]);
  await undo.click();
  expect(await draft()).toEqual(square);
  // To the right of the eastern side.
  const east = await at(13.113, 45.105);
  await page.mouse.click(east.x, east.y);
  const five = await draft();
  expect([five.length, five[1], five[3]]).toEqual([6, square[1], square[2]]);
  await page.mouse.dblclick(corner.x, corner.y);
  const four = await draft();
  expect([four.length, four.includes(square[2])]).toEqual([5, false]);
  // A double click on the map would zoom it for 300 ms.
  await page.waitForTimeout(500);
  expect(await page.evaluate(() => window.milepost!.map.getZoom())).toBe(14.5);
  await undo.click();
  expect(await draft()).toEqual(five);
  // With the keyboard, from one corner to the next.
  await page.getByRole('application', { name: 'Corner 4 of 5' }).press('Delete');
  expect(await draft()).toEqual(four);
  await expect(page.getByRole('application', { name: 'Corner 4 of 4' })).toBeFocused();
  await undo.click();
  expect(await draft()).toEqual(five);
  await undo.click();
  await expect(undo).toBeDisabled();
  expect(await draft()).toEqual(square);
  await fences.getByRole('button', { name: 'Cancel' }).click();
  await stack.query("ALTER TABLE fleet.fences DELETE WHERE name = 'edited yard' SETTINGS mutations_sync = 1");
});

test('arrow keys move the corner that has the focus, by more with Shift', async ({ page, stack }) => {
  await stack.query("INSERT INTO fleet.fences (name, polygons) VALUES ('keyed yard', [[[(13.1, 45.1), (13.11, 45.1), (13.11, 45.11), (13.1, 45.11)]]])");
  await open(page, stack, '#at=14.5/45.105/13.105');
  const fences = page.getByRole('region', { name: 'Fences' });
  await page.keyboard.press('g');
  await fences.getByRole('button', { name: 'Edit keyed yard' }).click();
  const corner = page.locator('.corner').nth(2);
  const draft = () => page.evaluate(() => window.milepost!.fences['draft'].ring().map((point) => point.map((degrees) => Number(degrees.toFixed(6))).join(' ')));
  const pixels = () => page.evaluate(() => { const { map, fences: all } = window.milepost!; const [lng, lat] = all['draft'].ring()[2]; const { x, y } = map.project([lng, lat]); return [x, y]; });
  const view = () => page.evaluate(() => window.milepost!.map.getCenter().toArray().join());
  const square = await draft();
  const [x, y] = await pixels();
  const center = await view();
  const moved = async () => { const [left, top] = await pixels(); return [left - x, top - y].map((by) => Math.round(by) + 0); };
  const drawn = () => page.evaluate(([left, top]) => window.milepost!.map.queryRenderedFeatures([left, top], { layers: ['fence-draft-area'] }).length, [x - 8, y + 4]);
  await expect.poll(drawn).toBeGreaterThan(0);
  // A click chooses a corner, as Tab does.
  await corner.click();
  await expect(corner).toBeFocused();
  await page.keyboard.press('ArrowRight');
  expect(await moved()).toEqual([2, 0]);
  const said = page.locator('#fence-corner-said');
  await expect(said).toHaveText(/^Corner 3 of 4: 45\.11\d*, 13\.11\d*$/);
  const before = await said.textContent();
  await page.keyboard.press('Shift+ArrowDown');
  expect(await moved()).toEqual([2, 20]);
  expect(await said.textContent()).not.toBe(before);
  await page.keyboard.press('Shift+ArrowLeft');
  await page.keyboard.press('ArrowUp');
  expect(await moved()).toEqual([-18, 18]);
  // The drawn outline has followed.
  await expect.poll(drawn).toBe(0);
  // The map stays, the marker is where the outline is, and the form keeps its explanation.
  expect(await view()).toBe(center);
  const box = (await corner.boundingBox())!;
  expect([box.x + box.width / 2, box.y + box.height / 2].map(Math.round)).toEqual((await pixels()).map(Math.round));
  await expect(fences).toContainText('arrow keys');
  for (const colorScheme of ['light', 'dark'] as const) {
    await page.emulateMedia({ colorScheme });
    expect(await violations(page), colorScheme).toEqual([]);
  }
  // As a drag, all moves of a corner until it loses the focus are one change. Undo keeps the focus.
  const undo = fences.getByRole('button', { name: 'Undo' });
  await undo.press('Enter');
  expect(await draft()).toEqual(square);
  await expect(undo).toBeDisabled();
  await expect(undo).toBeFocused();
  // At the edge of the map the view follows.
  await jumpTo(page, await page.evaluate(() => { const { map } = window.milepost!; const { x: right, y: top } = map.project([13.11, 45.11]); return map.unproject([right - map.getContainer().clientWidth / 2 + 30, top]).toArray() as [number, number]; }), 14.5);
  await corner.focus();
  for (let i = 0; i < 5; i++) await page.keyboard.press('Shift+ArrowRight');
  expect((await pixels())[0]).toBeLessThan(1280);
  expect((await draft())[2]).not.toBe(square[2]);
  // Escape drops the changes, as after a drag, and the focus goes to the button of the box.
  await page.keyboard.press('Escape');
  await expect(fences).toBeHidden();
  await expect(page.getByRole('button', { name: 'Fences', exact: true })).toBeFocused();
  await page.keyboard.press('g');
  await fences.getByRole('button', { name: 'Edit keyed yard' }).click();
  expect(await draft()).toEqual(square);
  await fences.getByRole('button', { name: 'Cancel' }).click();
  await stack.query("ALTER TABLE fleet.fences DELETE WHERE name = 'keyed yard' SETTINGS mutations_sync = 1");
});

test('a save that fails after the box was closed is told above the map', async ({ page, stack, faults }) => {
  faults.mayFail = true;
  await stack.query("INSERT INTO fleet.fences (name, polygons) VALUES ('lost yard', [[[(13.1, 45.1), (13.11, 45.1), (13.11, 45.11), (13.1, 45.11)]]])");
  await open(page, stack, '#at=14.5/45.105/13.105');
  const fences = page.getByRole('region', { name: 'Fences' });
  await page.keyboard.press('g');
  await fences.getByRole('button', { name: 'Edit lost yard' }).click();
  let refuse = () => {};
  await page.route('**/api/fences', async (route) => {
    if (route.request().method() !== 'POST') return route.fallback();
    await new Promise<void>((answered) => (refuse = answered));
    await route.fulfill({ status: 503, json: { error: 'ClickHouse does not answer' } });
  });
  await fences.getByLabel('Name').fill('found yard');
  await fences.getByRole('button', { name: 'Save' }).click();
  await expect(fences).toContainText('Saving …');
  await page.keyboard.press('Escape');
  await expect(fences).toBeHidden();
  const banner = page.locator('#banner');
  refuse();
  const failure = 'lost yard was not saved: ClickHouse does not answer.';
  await expect(banner).toHaveText(`${failure} Make the change again in Fences.`);
  for (const colorScheme of ['light', 'dark'] as const) {
    await page.emulateMedia({ colorScheme });
    expect(await violations(page), colorScheme).toEqual([]);
  }
  await page.keyboard.press('g');
  await expect(banner).toBeHidden();
  await expect(fences).toContainText(failure);
  await stack.query("ALTER TABLE fleet.fences DELETE WHERE name = 'lost yard' SETTINGS mutations_sync = 1");
});

test('Edit in the list shows the outline, and the end of the form keeps the focus', async ({ page, stack }) => {
  await stack.query("INSERT INTO fleet.fences (name, polygons) VALUES ('remote yard', [[[(12.1, 44.1), (12.11, 44.1), (12.11, 44.11), (12.1, 44.11)]]])");
  const fences = page.getByRole('region', { name: 'Fences' });
  const row = fences.getByRole('button', { name: 'remote yard', exact: true });
  for (const [width, height] of [[1280, 800], [390, 844], [375, 553], [768, 1024], [844, 390]]) {
    await page.setViewportSize({ width, height });
    await page.goto('about:blank');
    // At first far away; then its middle is in view, and its corners are not.
    for (const place of ['4/20/10', '17/44.105/12.105']) {
      await open(page, stack, `#at=${place}`);
      await page.keyboard.press('g');
      await fences.getByRole('button', { name: 'Edit remote yard' }).click();
      await page.waitForTimeout(1_000);
      await page.waitForFunction(() => !window.milepost!.map.isMoving());
      const reached = await page.locator('.corner').evaluateAll((all) => all.filter((one) => { const { x, y, width, height } = one.getBoundingClientRect(); return document.elementFromPoint(x + width / 2, y + height / 2) === one; }).length);
      expect(reached, `${width} ${place}`).toBe(4);
      await fences.getByRole('button', { name: 'Cancel' }).press('Enter');
      expect(await row.evaluate((button) => button === document.activeElement)).toBe(true);
      await expect(row).toBeInViewport();
      await page.goto('about:blank');
    }
  }
  await page.setViewportSize({ width: 1280, height: 800 });
  await open(page, stack, '#at=14.5/44.105/12.105');
  await page.keyboard.press('g');
  await fences.getByRole('button', { name: 'Edit remote yard' }).click();
  await page.waitForTimeout(500);
  expect(await page.evaluate(() => window.milepost!.map.getZoom())).toBe(14.5);
  // Arrow keys also move the corner that was dragged.
  const corner = page.locator('.corner').nth(2);
  const { x, y, width, height } = (await corner.boundingBox())!;
  await page.mouse.move(x + width / 2, y + height / 2);
  await page.mouse.down();
  await page.mouse.move(x + 30, y + 30, { steps: 4 });
  await page.mouse.up();
  await page.keyboard.press('Shift+ArrowRight');
  expect(await corner.evaluate((one) => one === document.activeElement)).toBe(true);
  const centre = (await corner.boundingBox())!;
  const drawn = () => page.evaluate(([left, top]) => window.milepost!.map.queryRenderedFeatures([left, top], { layers: ['fence-draft-area'] }).length, [centre.x + centre.width / 2 - 6, centre.y + centre.height / 2 + 6]);
  await expect.poll(drawn, { timeout: 30_000 }).toBeGreaterThan(0);
  await fences.getByLabel('Name').fill('renamed yard');
  await page.keyboard.press('Enter');
  await expect(fences.getByRole('button', { name: 'renamed yard', exact: true })).toBeFocused();
  await stack.query("ALTER TABLE fleet.fences DELETE WHERE name IN ('remote yard', 'renamed yard') SETTINGS mutations_sync = 1");
});

test('on a phone fences, list and driver do not cover each other', async ({ page, stack }) => {
  await page.setViewportSize({ width: 390, height: 844 });
  await stack.query("INSERT INTO fleet.fences (name, polygons) VALUES ('phone yard', [[[(13.3, 45.3), (13.31, 45.3), (13.31, 45.31), (13.3, 45.31)]]])");
  await publish(stack.mqttPort, 'drivers/phone-1/gps', { lat: 45.305, lng: 13.305, speed: 0, ts: Date.now() });
  await expect.poll(async () => (await fetch(`${stack.url}/api/drivers/phone-1`)).status).toBe(200);
  await open(page, stack, '#at=13/45.3/13.3&driver=phone-1');
  const panel = page.getByRole('complementary', { name: 'Driver' });
  const fences = page.getByRole('region', { name: 'Fences' });
  await expect(panel).toBeVisible();
  await page.getByRole('button', { name: 'Fences', exact: true }).click();
  await expect(panel).toBeHidden();
  await fences.getByRole('button', { name: 'phone yard', exact: true }).click();
  await fences.getByRole('list', { name: 'Visits' }).getByRole('button', { name: /^phone-1/ }).click();
  await expect(panel.getByRole('heading', { name: 'phone-1' })).toBeVisible();
  await expect(fences).toBeHidden();
  const list = page.getByRole('region', { name: 'List of drivers' });
  await page.getByRole('button', { name: 'List of drivers', exact: true }).click();
  await expect(list).toBeVisible();
  await expect(panel).toBeHidden();
  await page.getByRole('button', { name: 'Fences', exact: true }).click();
  await expect(fences).toBeVisible();
  await expect(list).toBeHidden();
  // A driver that is found in another way than in the card.
  const search = page.getByRole('combobox', { name: 'Find a driver' });
  await search.fill('phone-1');
  await search.press('Enter');
  await expect(panel.getByRole('heading', { name: 'phone-1' })).toBeVisible();
  await expect(fences).toBeHidden();
  await stack.query("ALTER TABLE fleet.fences DELETE WHERE name = 'phone yard' SETTINGS mutations_sync = 1");
});
