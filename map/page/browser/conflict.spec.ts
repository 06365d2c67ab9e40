// Two pages edit one fence: the page that saves later is warned before it replaces anything.
import { expect, open, test } from './world';

test('a page is warned before it overwrites the outline of another page', async ({ page, stack, faults, browser }) => {
  // Allow errors: the browser itself logs the refusal.
  faults.mayFail = true;
  await stack.query("INSERT INTO fleet.fences (name, polygons) VALUES ('shared yard', [[[(15.40, 47.00), (15.41, 47.00), (15.41, 47.01), (15.40, 47.01)]]])");
  const other = await (await browser.newContext({ viewport: { width: 1280, height: 800 }, timezoneId: 'UTC' })).newPage();
  for (const one of [page, other]) {
    await open(one, stack, '#at=13.5/47.005/15.405');
    await one.keyboard.press('g');
    await one.getByRole('button', { name: 'Edit shared yard' }).click();
    await expect(one.locator('.corner')).toHaveCount(4);
  }
  const drag = async (one: typeof page, right: number) => {
    const corner = (await one.locator('.corner').nth(2).boundingBox())!;
    await one.mouse.move(corner.x + corner.width / 2, corner.y + corner.height / 2);
    await one.mouse.down();
    await one.mouse.move(corner.x + right, corner.y - 30, { steps: 4 });
    await one.mouse.up();
  };
  await drag(other, 60);
  // The worst case is a change in place, which leaves no earlier version.
  await other.getByLabel('Change the past too').check();
  await other.getByRole('button', { name: 'Save' }).click();
  await expect(other.locator('.corner')).toHaveCount(0);
  const stored = () => stack.query("SELECT polygons FROM fleet.fences FINAL WHERE name = 'shared yard' AND valid_until > now64(3)");
  const theirs = await stored();

  await drag(page, 90);
  const box = page.getByRole('region', { name: 'Fences' });
  await box.getByRole('button', { name: 'Save' }).click();
  await expect(box).toContainText('Another user changed this outline after you opened it. Both are on the map');
  expect(await stored()).toBe(theirs);
  await expect(page.locator('.corner')).toHaveCount(4);
  if (process.env.PICTURES) await page.screenshot({ path: `${process.env.PICTURES}/conflict.png` });
  await box.getByRole('button', { name: 'Save' }).click();
  await expect(page.locator('.corner')).toHaveCount(0);
  expect(await stored()).not.toBe(theirs);

  // A fence that was removed meanwhile does not come back without a warning.
  await page.getByRole('button', { name: 'Edit shared yard' }).click();
  await drag(page, 20);
  await other.keyboard.press('g');
  await other.keyboard.press('g');
  await other.getByRole('button', { name: 'Edit shared yard' }).click();
  await other.getByRole('button', { name: 'Remove', exact: true }).click();
  await expect(other.getByRole('button', { name: 'Edit shared yard' })).toHaveCount(0);
  await box.getByRole('button', { name: 'Save' }).click();
  await expect(box).toContainText('Another user removed or renamed this fence after you opened it. Save again to store yours as a new fence');
  expect(await stored()).toBe('');
  await box.getByRole('button', { name: 'Cancel' }).click();
  await other.context().close();
});

test('an outline that changes during a save stays in the form', async ({ page, stack }) => {
  await stack.query("INSERT INTO fleet.fences (name, polygons) VALUES ('slow yard', [[[(15.50, 47.00), (15.51, 47.00), (15.51, 47.01), (15.50, 47.01)]]])");
  await open(page, stack, '#at=13.5/47.005/15.505');
  await page.keyboard.press('g');
  const box = page.getByRole('region', { name: 'Fences' });
  await box.getByRole('button', { name: 'Edit slow yard' }).click();
  const corners = page.locator('.corner');
  await expect(corners).toHaveCount(4);
  const held: (() => Promise<void>)[] = [];
  await page.route(/api\/fences$/, async (route) => {
    if (route.request().method() !== 'POST') return route.continue();
    held.push(() => route.continue());
  });
  const answer = async (posts: number) => {
    await expect.poll(() => held.length).toBe(posts);
    await held[posts - 1]();
  };
  await box.getByRole('button', { name: 'Corner here' }).click();
  const save = box.getByRole('button', { name: 'Save' });
  await save.click();
  await expect(box).toContainText('Saving …');
  await expect(save).toBeDisabled();
  await box.getByRole('button', { name: 'Undo' }).click();
  await expect(corners).toHaveCount(4);
  await answer(1);
  await expect(box).toContainText('slow yard was saved. Your changes since then are not saved yet.');
  const stored = () => stack.query("SELECT arraySum(ring -> length(ring), polygons[1]) FROM fleet.fences FINAL WHERE name = 'slow yard' AND valid_until > now64(3)");
  // A stored ring ends with its first corner.
  expect(Number(await stored())).toBe(6);
  await save.click();
  await answer(2);
  await expect(corners).toHaveCount(0);
  expect(Number(await stored())).toBe(5);
  await stack.query("ALTER TABLE fleet.fences DELETE WHERE name = 'slow yard' SETTINGS mutations_sync = 1");
});
