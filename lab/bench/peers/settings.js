// All settings. Where no reason is given, the value is the same as in milepost.

const { env } = process;

export const httpPort = Number(env.HTTP_PORT ?? 9464);

export const batch = {
  rowsMax: 5_000,
  ageMaxMs: 1_000,
  // Two, as in milepost, so that the next batch is inserted during a slow insert.
  insertsInFlight: 2,
};

export const mqtt = {
  url: env.MQTT_URL ?? 'mqtt://127.0.0.1:1883',
  topic: `$share/${env.MQTT_GROUP ?? 'milepost'}/drivers/+/gps`,
  qos: Number(env.MQTT_QOS ?? 1),
  options: {
    clientId: env.MQTT_CLIENT_ID ?? 'peer',
    protocolVersion: 5, // the first version whose standard has shared subscriptions
    clean: false, // the broker keeps unacknowledged messages across a reconnect
    keepalive: 10,
    reconnectPeriod: 1_000,
    properties: {
      sessionExpiryInterval: 60, // longer than a restart takes
      receiveMaximum: 32_000, // acknowledging after the insert needs a window of several batches
    },
  },
};

export const clickhouse = {
  database: env.CLICKHOUSE_DATABASE ?? 'fleet',
  options: {
    url: env.CLICKHOUSE_URL ?? 'http://127.0.0.1:8123',
    max_open_connections: batch.insertsInFlight,
    request_timeout: 60_000,
    // The client's default is no compression: right on a local network, where gzip costs more than it saves.
    clickhouse_settings: { async_insert: 0 }, // each batch is one block already
  },
};
