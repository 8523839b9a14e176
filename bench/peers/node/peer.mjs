// What every peer written in JavaScript shares: its order, the events it reports, and the handler of a job.
//
//     node PEER.mjs MODE DATABASE_URL OPTIONS
//
// A mode is one of setup, fill, send and work. Each event is one line of JSON on standard output. A worker works until
// its standard input closes, then it reports what it measured and ends immediately.
import { readFileSync } from "node:fs";
import { setTimeout as sleep } from "node:timers/promises";

const [mode, url, text] = process.argv.slice(2);
export const options = JSON.parse(text ?? "{}");
export { mode, url };

export function say(event) {
  process.stdout.write(`${JSON.stringify(event)}\n`);
}

// Microseconds of a clock that all processes of a machine share.
function now() {
  return Number(process.hrtime.bigint() / 1000n);
}

const latencies = [];
let begun = 0;

// The handler of every peer. `expect` counts all jobs, or those with a time of sending if only these are measured.
export async function perform(job) {
  if (job.at > 0) {
    latencies.push((now() - job.at) / 1000);
  }
  if (job.at > 0 || !options.timed) {
    begun += 1;
    if (begun === 1) {
      say({ event: "first" });
    }
    if (begun === options.expect) {
      say({ event: "all" });
    }
  }
  if (options.trace) {
    const id = `${process.pid}-${begun}`;
    say({ event: "begins", id, at: Date.now() * 1000 });
    await sleep(job.hold);
    say({ event: "ends", id, at: Date.now() * 1000 });
  } else if (job.hold > 0) {
    await sleep(job.hold);
  }
}

// Sends `options.rate` jobs a second, each without waiting for those before it.
export async function paced(send) {
  const sent = [];
  const from = now();
  for (let n = 0; n < options.count; n += 1) {
    const wait = (from + (n * 1e6) / options.rate - now()) / 1000;
    if (wait > 0) {
      await sleep(wait);
    }
    sent.push(send({ at: now(), tenant: options.tenant, hold: 0 }));
  }
  await Promise.all(sent);
  say({ event: "sent", count: sent.length });
}

// Stores `options.count` jobs in batches, or as many as the seconds allow.
export async function filled(batch, store) {
  const from = now();
  let count = 0;
  while (count < options.count && now() - from < options.seconds * 1e6) {
    const size = Math.min(batch, options.count - count);
    await store(Array.from({ length: size }, () => ({ at: 0, tenant: options.tenant, hold: options.hold })));
    count += size;
  }
  say({ event: "filled", count });
}

export function versionOf(name) {
  return JSON.parse(readFileSync(new URL(`node_modules/${name}/package.json`, import.meta.url))).version;
}

// Runs the mode. A peer that must keep something alive returns from `work` and is ended here.
export async function main(modes) {
  await modes[mode]();
  if (mode !== "work") {
    process.exit(0);
  }
  say({ event: "ready" });
  process.stdin.on("data", () => {});
  process.stdin.on("end", () => {
    process.stdout.write(`${JSON.stringify({ event: "end", begun, latencies })}\n`, () => process.exit(0));
  });
}
