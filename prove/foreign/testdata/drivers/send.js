// Sends CHANQ_COUNT messages by INSERT and as many by the procedure, with parameters, as an application with tedious does:
// the first half one by one, the second half in one transaction.
'use strict';
const { Connection, Request, TYPES } = require('tedious');

const env = process.env;
const count = +env.CHANQ_COUNT;
const c = new Connection({
  server: env.CHANQ_HOST,
  authentication: { type: 'default', options: { userName: env.CHANQ_USER, password: env.CHANQ_PASSWORD } },
  options: { port: +env.CHANQ_PORT, database: env.CHANQ_DATABASE, encrypt: false },
});
const later = (start) => new Promise((done, failed) => start((error) => error ? failed(error) : done()));
const body = (n, by) => JSON.stringify({ n, name: `Łódź by ${by}` });

const insert = (n) => later((end) => {
  const request = new Request('INSERT INTO dbo.chanq_orders (body) VALUES (CONVERT(varbinary(max), @body))', end);
  request.addParameter('body', TYPES.NVarChar, body(n, 'insert'));
  c.execSql(request);
});

const call = (n) => later((end) => {
  const request = new Request('dbo.chanq_orders__send', end);
  request.addParameter('text', TYPES.NVarChar, body(n, 'procedure'));
  request.addOutputParameter('id', TYPES.VarBinary, null, { length: 16 });
  c.callProcedure(request);
});

(async () => {
  await later((end) => c.connect(end));
  for (const send of [insert, call]) {
    for (let n = 0; n < count; n++) {
      if (n === count / 2) {
        await later((end) => c.beginTransaction(end));
      }
      await send(n);
    }
    await later((end) => c.commitTransaction(end));
  }
  c.close();
})().catch((error) => {
  console.error(error);
  process.exit(1);
});
