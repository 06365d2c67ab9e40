// Collects rows into batches by count and age. Retries a batch until ClickHouse has stored it, then settles it.

import { randomUUID } from 'node:crypto';
import { setTimeout as sleep } from 'node:timers/promises';

const RETRY_MS = 1_000;

export class Batcher {
  #insert;
  #settings;
  #open = newBatch();
  #waiting = [];
  #inFlight = new Set();
  #timer;
  #roomCallback;

  /** `insert(rows, token)` resolves when the rows are durable. */
  constructor(insert, settings) {
    this.#insert = insert;
    this.#settings = settings;
  }

  /** Call addRow for each row of a message, then addMessage: `settle` is called when the last row's batch is stored. */
  addRow(row) {
    this.#open.rows.push(row);
  }

  addMessage(settle) {
    this.#timer ??= setTimeout(() => this.#close(), this.#settings.ageMaxMs);
    if (settle) this.#open.settles.push(settle);
    if (this.#open.rows.length >= this.#settings.rowsMax) this.#close();
  }

  /** Calls `callback` when fewer than `insertsInFlight` batches wait, possibly at once. This bounds the messages in memory. */
  whenRoom(callback) {
    if (this.#waiting.length < this.#settings.insertsInFlight) callback();
    else this.#roomCallback = callback;
  }

  /** Resolves when all rows added so far are durable. */
  async flush() {
    this.#close();
    while (this.#inFlight.size > 0) await Promise.race(this.#inFlight);
  }

  #close() {
    clearTimeout(this.#timer);
    this.#timer = undefined;
    if (this.#open.rows.length === 0 && this.#open.settles.length === 0) return;
    this.#waiting.push(this.#open);
    this.#open = newBatch();
    this.#start();
  }

  #start() {
    while (this.#waiting.length > 0 && this.#inFlight.size < this.#settings.insertsInFlight) {
      const running = this.#run(this.#waiting.shift()).then(() => {
        this.#inFlight.delete(running);
        this.#start();
      });
      this.#inFlight.add(running);
    }
    if (this.#roomCallback && this.#waiting.length < this.#settings.insertsInFlight) {
      const callback = this.#roomCallback;
      this.#roomCallback = undefined;
      callback();
    }
  }

  async #run({ rows, settles }) {
    // Every attempt uses the same token, so ClickHouse drops a retry of rows that it has already stored.
    const token = randomUUID();
    while (rows.length > 0) {
      try {
        await this.#insert(rows, token);
        break;
      } catch (error) {
        console.error(`insert of ${rows.length} rows failed, retrying: ${error.message}`);
        await sleep(RETRY_MS);
      }
    }
    for (const settle of settles) settle();
  }
}

function newBatch() {
  return { rows: [], settles: [] };
}
