// The part of the map that no card covers.
import { describe, expect, test } from 'vitest';
import { paddingOf } from '../src/room';

const card = (left: number, top: number, right: number, bottom: number) => ({ left, top, right, bottom });
const hidden = card(0, 0, 0, 0);
/** Returns the part of the map that the padding leaves. */
function free(width: number, height: number, ...cards: ReturnType<typeof card>[]) {
  const { left, top, right, bottom } = paddingOf(cards, width, height);
  return card(left, top, width - right, height - bottom);
}

describe('the part of the map that no card covers', () => {
  test('is right of a box at the left and left of the panel', () => {
    const room = free(1280, 800, card(12, 12, 1268, 60), card(12, 72, 332, 500), card(12, 600, 228, 788), hidden, card(916, 72, 1268, 600));
    expect(room).toEqual(card(372, 100, 876, 720));
  });

  test('is below a box across the top of a tablet, beside the legend', () => {
    const room = free(768, 1024, card(8, 8, 760, 108), card(8, 116, 760, 600), card(12, 824, 228, 1012));
    expect(room).toEqual(card(252, 624, 720, 976));
  });

  test('is below a box across the top of a phone in landscape', () => {
    const room = free(844, 390, card(8, 8, 836, 108), card(8, 116, 836, 178), card(12, 190, 228, 378));
    expect([room.left, room.top]).toEqual([254.375, 204.375]);
    expect(room.bottom - room.top).toBeGreaterThan(100);
  });

  test('is between the header and a box at the bottom of a short phone', () => {
    const room = free(375, 553, card(8, 8, 367, 164), card(0, 332, 375, 553), hidden);
    expect([room.top, room.bottom]).toEqual([184, 312]);
  });

  test('keeps some room if the cards leave none', () => {
    const room = free(844, 390, card(8, 8, 836, 108), card(8, 116, 836, 350));
    expect([room.right - room.left, room.bottom - room.top].every((size) => size >= 60)).toBe(true);
  });
});
