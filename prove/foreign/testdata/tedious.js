// Runs batches by tedious: each comes on the standard input and ends with a line GO, and is answered by a
// line ok. CHANQ_HOST, CHANQ_PORT, CHANQ_USER, CHANQ_PASSWORD and CHANQ_DATABASE say where.
'use strict';
const readline = require('readline');
const { Connection, Request } = require('tedious');

const env = process.env;
const connection = new Connection({
  server: env.CHANQ_HOST,
  authentication: { type: 'default', options: { userName: env.CHANQ_USER, password: env.CHANQ_PASSWORD } },
  options: { port: +env.CHANQ_PORT, database: env.CHANQ_DATABASE, encrypt: false },
});

const run = (batch) => new Promise((done, failed) => {
  connection.execSqlBatch(new Request(batch, (error) => error ? failed(error) : done()));
});

(async () => {
  await new Promise((done, failed) => connection.connect((error) => error ? failed(error) : done()));
  let lines = [];
  for await (const line of readline.createInterface({ input: process.stdin })) {
    if (line !== 'GO') {
      lines.push(line);
      continue;
    }
    await run(lines.join('\n'));
    lines = [];
    console.log('ok');
  }
  connection.close();
})().catch((error) => {
  console.error(error);
  process.exit(1);
});
