// pg-boss: a job may belong to a group, and a worker limits how many jobs of a group run on all nodes together.
import { PgBoss } from "pg-boss";
import { filled, main, options, paced, perform, say, url, versionOf } from "./peer.mjs";

const queue = "jobs";
const boss = new PgBoss({ connectionString: url, max: 10, useListenNotify: true });
boss.on("error", (error) => process.stderr.write(`pg-boss: ${error.message}\n`));
const group = (job) => (options.limit > 0 ? { group: { id: job.tenant } } : {});

// Batches of jobs for speed; without them a job begins sooner.
const settings = {
  pollingIntervalSeconds: 0.5,
  notifyPollingIntervalSeconds: 0.5,
  localConcurrency: options.concurrency,
  ...(options.limit > 0 ? { groupConcurrency: options.limit } : {}),
  ...(options.batches ? { batchSize: 2_000, burstWhenBatchFull: true } : {}),
  ...(options.x ?? {}),
};

await main({
  async setup() {
    await boss.start();
    await boss.createQueue(queue, { notify: true });
    say({ event: "ready", version: versionOf("pg-boss") });
  },
  async fill() {
    await boss.start();
    await filled(1_000, (batch) => boss.insert(queue, batch.map((data) => ({ data, ...group(data) }))));
  },
  async send() {
    await boss.start();
    await paced((data) => boss.send(queue, data, group(data)));
  },
  async work() {
    await boss.start();
    await boss.work(queue, settings, (jobs) =>
      Promise.all(jobs.map((job) => perform(job.data))),
    );
  },
});
