// Starts real servers on free ports: broker, ClickHouse engine, milepost, a fleet, the map. `stop`
// kills all of them.
import { spawn, spawnSync, type ChildProcess } from 'node:child_process';
import { once } from 'node:events';
import { closeSync, mkdtempSync, openSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { createServer } from 'node:net';
import { tmpdir } from 'node:os';
import { join, resolve } from 'node:path';

const ROOT = resolve(import.meta.dirname, '../../..');
const BINARIES = resolve(ROOT, process.env.MAP_TARGET ?? 'target/debug');
const READY_MS = 300_000;

export interface Options {
  drivers: number;
  /** Positions per second, of the whole fleet. */
  rate: number;
  /** `map.points_max`: a view with more drivers has cells. */
  pointsMax: number;
}

export class Stack {
  url = '';
  mqttPort = 0;
  private enginePort = 0;
  private engine: ChildProcess | undefined;
  private readonly folder = mkdtempSync(join(tmpdir(), 'milepost-map-test-'));
  private readonly started: ChildProcess[] = [];

  static async start(options: Options): Promise<Stack> {
    const stack = new Stack();
    try {
      await stack.startAll(options);
    } catch (error) {
      await stack.stop();
      throw error;
    }
    return stack;
  }

  private async startAll({ drivers, rate, pointsMax }: Options): Promise<void> {
    const [mqtt, engine, metrics, map] = await Promise.all([1, 2, 3, 4].map(freePort));
    this.mqttPort = mqtt;
    this.enginePort = engine;
    this.url = `http://127.0.0.1:${map}`;
    this.run('broker', join(ROOT, 'lab/local/broker'), [], { MQTT_PORT: String(mqtt), STATE_DIR: this.folder });
    await this.startEngine();
    const servers = {
      MILEPOST__MQTT__URL: `mqtt://127.0.0.1:${mqtt}`,
      MILEPOST__CLICKHOUSE__URL: `http://127.0.0.1:${engine}`,
      MILEPOST__HTTP__LISTEN: `127.0.0.1:${metrics}`,
      MILEPOST__SPOOL__DIR: join(this.folder, 'spool'),
      MILEPOST__SOURCE__TOPIC: 'drivers/+/gps',
      MILEPOST__SOURCE__KEEP: 'ignition',
      MILEPOST__FIELDS__BATTERY__FROM: 'batt',
      MILEPOST__FIELDS__BATTERY__TYPE: 'UInt8',
      MILEPOST__FIELDS__BATTERY__UNIT: 'per cent',
      MILEPOST__FIELDS__BATTERY__COMMENT: 'Charge of the phone',
    };
    const migrated = spawnSync(join(BINARIES, 'milepost'), ['migrate'], { cwd: this.folder, env: { ...process.env, ...servers }, encoding: 'utf8' });
    if (migrated.status !== 0) throw new Error(`milepost migrate: ${migrated.stderr}`);
    const milepost = this.run('milepost', join(BINARIES, 'milepost'), ['run'], servers);
    const server = this.run('map', join(BINARIES, 'milepost-map'), ['run'], {
      MILEPOST_MAP__CLICKHOUSE__URL: `http://127.0.0.1:${engine}`,
      MILEPOST_MAP__HTTP__LISTEN: `127.0.0.1:${map}`,
      MILEPOST_MAP__MAP__POINTS_MAX: String(pointsMax),
      MILEPOST_MAP__FENCES__USER: 'default',
      // A query may take long on a busy machine.
      MILEPOST_MAP__CLICKHOUSE__QUERY_TIMEOUT: '2m',
    });
    await waitForAnswer(`http://127.0.0.1:${metrics}/readyz`, milepost);
    const fleet = ['fleet', '--broker', `127.0.0.1:${mqtt}`, '--run', 'test', '--drivers', String(drivers), '--rate', String(rate), '--qos', '0', '--duration', '90m'];
    this.run('fleet', join(BINARIES, 'loadgen'), fleet, {});
    await waitForAnswer(`${this.url}/readyz`, server);
  }

  async startEngine(): Promise<void> {
    this.engine = this.run('clickhouse', join(ROOT, 'lab/local/clickhouse'), [], {
      CLICKHOUSE_PORT: String(this.enginePort),
      CLICKHOUSE_USER: 'default',
      CLICKHOUSE_PASSWORD: '',
      STATE_DIR: this.folder,
    });
    await waitForAnswer(`http://127.0.0.1:${this.enginePort}/ping`, this.engine);
  }

  /**
   * Computes trips and stops of all stored fixes at once; on its own ClickHouse does it every five
   * minutes.
   */
  async refresh(): Promise<void> {
    // The second view computes the days that the first one lists.
    for (const view of ['touched_mv', 'driver_days_mv']) {
      for (const what of ['REFRESH', 'WAIT']) await this.query(`SYSTEM ${what} VIEW fleet.${view}`);
    }
  }

  /** Runs SQL; returns the result as text. */
  async query(sql: string): Promise<string> {
    const answer = await fetch(`http://127.0.0.1:${this.enginePort}/`, { method: 'POST', body: sql });
    const text = await answer.text();
    if (!answer.ok) throw new Error(text);
    return text.trim();
  }

  /** Starts another map of the same fleet; returns its URL. */
  async startMap(name: string, env: Record<string, string>): Promise<string> {
    const port = await freePort();
    const child = this.run(name, join(BINARIES, 'milepost-map'), ['run'], {
      MILEPOST_MAP__CLICKHOUSE__URL: `http://127.0.0.1:${this.enginePort}`,
      MILEPOST_MAP__HTTP__LISTEN: `127.0.0.1:${port}`,
      MILEPOST_MAP__CLICKHOUSE__QUERY_TIMEOUT: '2m',
      ...env,
    });
    const url = `http://127.0.0.1:${port}`;
    await waitForAnswer(`${url}/livez`, child);
    return url;
  }

  /** Writes a file for a server, in the folder that is removed with the stack; returns its path. */
  writeFile(name: string, bytes: Uint8Array): string {
    const path = join(this.folder, name);
    writeFileSync(path, bytes);
    return path;
  }

  /** Kills the engine with SIGKILL. */
  async killEngine(): Promise<void> {
    if (this.engine) await kill(this.engine, 'SIGKILL');
  }

  async stop(): Promise<void> {
    await Promise.all(this.started.reverse().map((child) => kill(child, 'SIGKILL')));
    rmSync(this.folder, { recursive: true, force: true });
  }

  /** Returns the end of a server's log, to explain a failure. */
  log(name: string): string {
    return readFileSync(join(this.folder, `${name}.log`), 'utf8').slice(-4000);
  }

  private run(name: string, program: string, args: string[], env: Record<string, string>): ChildProcess {
    const log = openSync(join(this.folder, `${name}.log`), 'a');
    const child = spawn(program, args, { cwd: this.folder, env: { ...process.env, ...env }, stdio: ['ignore', log, log] });
    closeSync(log);
    child.on('error', (error) => console.error(`${name}: ${error.message}; \`make test ARGS=browser\` builds it`));
    this.started.push(child);
    return child;
  }
}

const ended = ({ pid, exitCode, signalCode }: ChildProcess) => pid === undefined || exitCode !== null || signalCode !== null;

async function kill(child: ChildProcess, signal: NodeJS.Signals): Promise<void> {
  if (ended(child)) return;
  const exit = once(child, 'exit');
  child.kill(signal);
  await exit;
}

/** Waits until the URL answers with a success. Throws if `server`, which serves it, ends before. */
async function waitForAnswer(url: string, server: ChildProcess): Promise<void> {
  const begin = Date.now();
  for (;;) {
    const ok = await fetch(url).then((response) => response.ok, () => false);
    if (ok) return;
    if (ended(server)) throw new Error(`${server.spawnfile} ended`);
    if (Date.now() - begin > READY_MS) throw new Error(`${url} does not answer`);
    await new Promise((later) => setTimeout(later, 100));
  }
}

async function freePort(): Promise<number> {
  const server = createServer().listen(0, '127.0.0.1');
  await once(server, 'listening');
  const address = server.address();
  server.close();
  await once(server, 'close');
  if (address === null || typeof address === 'string') throw new Error('no port');
  return address.port;
}
