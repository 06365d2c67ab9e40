// MQTT → ClickHouse, for Node: the service that a good team would write with the well-known libraries.
//
// Guarantee: a PUBACK is sent after ClickHouse has confirmed the insert of its rows, so a crash loses nothing that the
// broker keeps. Rejected messages are counted, not stored.

import { createClient } from '@clickhouse/client';
import { connect } from 'mqtt';
import { collectDefaultMetrics, Counter, Histogram, Registry } from 'prom-client';

import { acknowledgeLater } from './acks.js';
import { Batcher } from './batcher.js';
import { decode, Refusal } from './decode.js';
import { serve } from './http.js';
import * as settings from './settings.js';

const registry = new Registry();
collectDefaultMetrics({ register: registry });
const counter = (name, help, labelNames = []) => new Counter({ name, help, labelNames, registers: [registry] });
const messages = counter('peer_messages_received_total', 'MQTT messages received from the broker.');
const inserted = counter('peer_positions_inserted_total', 'Positions whose insert ClickHouse has confirmed.');
const rejected = counter('peer_positions_rejected_total', 'Rejected points and messages.', ['reason']);
const insertSeconds = new Histogram({
  name: 'peer_insert_duration_seconds',
  help: 'Duration of one successful INSERT, measured by the client.',
  buckets: [0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10],
  registers: [registry],
});

const clickhouse = createClient(settings.clickhouse.options);
const batcher = new Batcher(async (rows, token) => {
  const end = insertSeconds.startTimer();
  await clickhouse.insert({
    table: `${settings.clickhouse.database}.positions`,
    columns: Object.keys(rows[0]),
    values: rows,
    format: 'JSONEachRow',
    clickhouse_settings: { insert_deduplication_token: token },
  });
  end();
  inserted.inc(rows.length);
}, settings.batch);

const client = connect(settings.mqtt.url, settings.mqtt.options);
const acknowledge = settings.mqtt.qos > 0 ? acknowledgeLater(client) : undefined;
const refuse = ({ reason }) => rejected.inc({ reason });
let subscribed = false;

client.on('message', (topic, payload, packet) => {
  messages.inc();
  try {
    decode(topic, payload, Date.now(), (row) => batcher.addRow(row), refuse);
  } catch (error) {
    if (!(error instanceof Refusal)) throw error;
    refuse(error);
  }
  batcher.addMessage(acknowledge?.(packet));
});
// mqtt.js reads the next packet when `callback` is called.
client.handleMessage = (packet, callback) => batcher.whenRoom(callback);
client.on('connect', async () => {
  try {
    await client.subscribeAsync(settings.mqtt.topic, { qos: settings.mqtt.qos });
    subscribed = true;
  } catch (error) {
    console.error(`cannot subscribe: ${error.message}`);
  }
});
client.on('close', () => { subscribed = false; });
client.on('error', (error) => console.error(`mqtt: ${error.message}`));

serve(settings.httpPort, '127.0.0.1', registry, () => subscribed);

async function shutDown() {
  await batcher.flush();
  await client.endAsync();
  await clickhouse.close();
  process.exit(0);
}
process.once('SIGTERM', shutDown);
process.once('SIGINT', shutDown);
