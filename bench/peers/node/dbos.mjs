// DBOS: a queue may limit how many workflows of a partition run in all processes, so a tenant is a partition.
import { DBOS, DBOSClient } from "@dbos-inc/dbos-sdk";
import pg from "pg";
import { filled, main, options, paced, perform, say, url, versionOf } from "./peer.mjs";

const [queueName, workflowName, applicationName] = ["jobs", "job", "peer"];
const silent = { debug() {}, info() {}, warn() {}, error(text) { process.stderr.write(`dbos: ${text}\n`); } };
// DBOS wants a user and a host in their usual places, although the parameters of the address name them.
const systemDatabaseUrl = url.replace(":///", `://${new URL(url).searchParams.get("user")}@localhost/`);
const client = () => DBOSClient.create({ systemDatabaseUrl, applicationName, logger: silent });
const order = ({ tenant }) =>
  ({ queueName, workflowName, ...(options.limit > 0 ? { queuePartitionKey: tenant } : {}) });

async function launch() {
  const config = { name: applicationName, systemDatabaseUrl, applicationVersion: "1", logger: silent };
  DBOS.setConfig({ ...config, systemDatabasePoolSize: 20, executorID: `${process.pid}` });
  DBOS.registerWorkflow(perform, { name: workflowName });
  await DBOS.launch();
  await DBOS.registerQueue(queueName, {
    minPollingIntervalMs: options.batches ? 10 : 2,
    workerConcurrency: options.concurrency,
    ...(options.limit > 0 ? { partitionConcurrency: options.limit } : {}),
    ...(options.x ?? {}),
    onConflict: "always_update",
  });
}

await main({
  async setup() {
    await launch();
    say({ event: "ready", version: versionOf("@dbos-inc/dbos-sdk") });
  },
  async fill() {
    const jobs = await client();
    const connection = new pg.Client({ connectionString: url });
    await connection.connect();
    await filled(500, async (batch) => {
      await connection.query("BEGIN");
      for (const job of batch) {
        await jobs.enqueueInTransaction(connection, order(job), job);
      }
      await connection.query("COMMIT");
    });
  },
  async send() {
    const jobs = await client();
    await paced((job) => jobs.enqueue(order(job), job));
  },
  work: launch,
});
