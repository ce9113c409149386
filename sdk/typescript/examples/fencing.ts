/** A store refuses what an older attempt writes: the token of a job only grows, so a handler whose lease was lost, and
 * that does not know it yet, cannot overwrite the result of its successor. */
import { Permanent, Worker } from "@fermata-io/fermata/worker";

/** Store stands for a table with a column `token`: UPDATE ... SET token = $1 WHERE key = $2 AND token < $1. */
class Store {
  readonly #rows = new Map<string, { token: bigint; value: string }>();

  write(key: string, value: string, token: bigint): void {
    const row = this.#rows.get(key);
    if (row && row.token >= token) throw new Permanent(`a later attempt has written ${key}`);
    this.#rows.set(key, { token, value });
  }
}

const store = new Store();
const worker = new Worker({ addresses: process.env["FERMATA_ADDRESS"] ?? "127.0.0.1:7070", queues: ["balances"] });

worker.handle("close-month", (task) => {
  store.write(task.job, `closed by run ${task.run}`, task.token);
  console.log(`wrote ${task.job} with token ${task.token}`);
  return "written";
});

await worker.runUntilShutdown();
