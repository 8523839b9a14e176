// graphile-worker: a queue name serializes the jobs of a tenant, so a limit can only be one.
import { Logger, makeWorkerUtils, run, WorkerPreset } from "graphile-worker";
import { filled, main, options, paced, perform, say, url, versionOf } from "./peer.mjs";

const quiet = new Logger(() => () => {});
const utils = () => makeWorkerUtils({ connectionString: url, logger: quiet });
const spec = (job) => ({ identifier: "job", payload: job, queueName: options.limit > 0 ? job.tenant : undefined });

// Batches of jobs for speed; without them a job begins sooner.
const batches = options.batches ? { completeJobBatchDelay: 5, localQueue: { size: 1_000 } } : {};
const settings = { concurrentJobs: options.concurrency, maxPoolSize: 12, ...batches, ...(options.x ?? {}) };

await main({
  async setup() {
    await (await utils()).migrate();
    say({ event: "ready", version: versionOf("graphile-worker") });
  },
  async fill() {
    const jobs = await utils();
    await filled(1_000, (batch) => jobs.addJobs(batch.map(spec)));
  },
  async send() {
    const jobs = await utils();
    await paced(({ at, tenant, hold }) => jobs.addJob("job", { at, tenant, hold }));
  },
  async work() {
    const worker = { connectionString: url, logger: quiet, ...settings };
    await run({ preset: { extends: [WorkerPreset], worker }, taskList: { job: perform }, noHandleSignals: true });
  },
});
