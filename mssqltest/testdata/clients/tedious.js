// What tedious (node-mssql's driver) does against the emulator. Each check prints "ok name"
// or "not ok name: why", and the end "ok all" with their number; CHANQ_HOST, CHANQ_PORT, CHANQ_PASSWORD and CHANQ_ENCRYPT say where.
'use strict';
const assert = require('assert');
const { Connection, Request, TYPES, ISOLATION_LEVEL } = require('tedious');

const env = process.env;

const connect = (options = {}) => new Promise((done, failed) => {
  const connection = new Connection({
    server: env.CHANQ_HOST,
    authentication: { type: 'default', options: { userName: 'sa', password: env.CHANQ_PASSWORD } },
    options: { port: +env.CHANQ_PORT, database: 'test', encrypt: env.CHANQ_ENCRYPT === 'true', trustServerCertificate: true, ...options },
  });
  connection.on('error', () => {});
  connection.connect((error) => error ? failed(error) : done(connection));
});

// ask runs one request and returns its rows, their count and what it returned besides.
const ask = (c, text, parameters = [], how = 'execSql', { before = () => {}, begun = () => {} } = {}) => new Promise((done, failed) => {
  const rows = [], returned = {};
  const request = new Request(text, (error, count) => error ? failed(error) : done({ rows, count, returned }));
  for (const [name, type, value, options, output] of parameters) {
    output ? request.addOutputParameter(name, type, value, options) : request.addParameter(name, type, value, options);
  }
  request.on('error', () => {}); // it calls back, too
  request.on('row', (columns) => rows.push(columns.map((column) => column.value)));
  request.on('returnValue', (name, value) => { returned[name] = value; });
  before(request);
  c[how](request);
  begun(request);
});

const fails = async (number, promise) => {
  const error = await promise.then(() => assert.fail('no error'), (e) => e);
  assert.strictEqual(error.number, number, error.message);
};

// later turns a method that calls back into a promise.
const later = (c, method, ...args) => new Promise((done, failed) => c[method]((error, ...rest) => error ? failed(error) : done(...rest), ...args));

const one = async (c, text) => (await ask(c, text)).rows[0][0];

const checks = {
  async 'a batch and its counts'(c) {
    await ask(c, 'CREATE TABLE dbo.js (id int NOT NULL PRIMARY KEY, note nvarchar(50) NULL)', [], 'execSqlBatch');
    assert.strictEqual((await ask(c, "INSERT dbo.js VALUES (1, N'a'), (2, N'b')", [], 'execSqlBatch')).count, 2);
    assert.strictEqual((await ask(c, 'UPDATE dbo.js SET note = @n', [['n', TYPES.NVarChar, 'å€😀']])).count, 2);
    assert.deepStrictEqual((await ask(c, 'SELECT id, note FROM dbo.js')).rows, [[1, 'å€😀'], [2, 'å€😀']]);
    assert.strictEqual((await ask(c, 'DELETE dbo.js WHERE id = 2')).count, 1);
  },
  async 'values of every type'(c) {
    const values = [
      [TYPES.Int, -7], [TYPES.BigInt, '9007199254740993'], [TYPES.SmallInt, 300], [TYPES.TinyInt, 255], [TYPES.Bit, true],
      [TYPES.Float, 2.5], [TYPES.Decimal, 12.25, { precision: 10, scale: 2 }],
      [TYPES.NVarChar, 'x'.repeat(5000)], [TYPES.VarChar, 'plain'], [TYPES.NVarChar, ''],
      [TYPES.VarBinary, Buffer.alloc(70000, 7)], [TYPES.VarBinary, Buffer.from([1, 2])],
      [TYPES.DateTime2, new Date('2026-01-02T03:04:05.678Z')], [TYPES.DateTime, new Date('2026-01-02T03:04:05.000Z')],
      [TYPES.DateTimeOffset, new Date('2026-01-02T03:04:05.678Z')], [TYPES.Date, new Date('2026-01-02T00:00:00.000Z')],
      [TYPES.UniqueIdentifier, '6F9619FF-8B86-D011-B42D-00C04FC964FF'],
    ];
    for (const type of [TYPES.Int, TYPES.NVarChar, TYPES.VarBinary, TYPES.DateTime2, TYPES.Bit, TYPES.Decimal, TYPES.UniqueIdentifier]) {
      values.push([type, null]);
    }
    const parameters = values.map(([type, value, options], i) => ['p' + i, type, value, options]);
    const { rows } = await ask(c, 'SELECT ' + parameters.map(([name]) => '@' + name).join(', '), parameters);
    assert.deepStrictEqual(rows[0], values.map(([, value]) => value));
  },
  async 'text, ntext and image, as parameters'(c) {
    const { rows } = await ask(c, 'SELECT @t, @n, @i, @none', [['t', TYPES.Text, 'plain'], ['n', TYPES.NText, 'å😀'], ['i', TYPES.Image, Buffer.alloc(9000, 1)], ['none', TYPES.NText, null]]);
    assert.deepStrictEqual(rows[0], ['plain', 'å😀', Buffer.alloc(9000, 1), null]);
  },
  async 'a prepared statement, many times'(c) {
    const rows = [];
    let finished;
    const request = new Request('SELECT @a + 1', (error) => finished(error));
    request.addParameter('a', TYPES.Int);
    request.on('row', (columns) => rows.push(columns[0].value));
    const next = () => new Promise((done, failed) => { finished = (error) => error ? failed(error) : done(); });
    const prepared = new Promise((done) => request.on('prepared', done));
    c.prepare(request);
    await prepared;
    for (let a = 0; a < 3; a++) {
      const ran = next();
      c.execute(request, { a });
      await ran;
    }
    const gone = next();
    c.unprepare(request);
    await gone;
    assert.deepStrictEqual(rows, [1, 2, 3]);
  },
  async 'a transaction with a savepoint'(c) {
    await later(c, 'beginTransaction', 'whole', ISOLATION_LEVEL.SERIALIZABLE);
    await ask(c, "INSERT dbo.js VALUES (10, N'kept')");
    await later(c, 'saveTransaction', 'here');
    await ask(c, "INSERT dbo.js VALUES (11, N'undone')");
    await later(c, 'rollbackTransaction', 'here');
    await later(c, 'commitTransaction');
    assert.deepStrictEqual((await ask(c, 'SELECT id FROM dbo.js WHERE id >= 10')).rows, [[10]]);
    await later(c, 'beginTransaction');
    await ask(c, 'DELETE dbo.js');
    await later(c, 'rollbackTransaction');
    assert.strictEqual(await one(c, 'SELECT COUNT(*) FROM dbo.js'), 2);
  },
  async 'a request that is cancelled'(c) {
    const cancelled = ask(c, "WAITFOR DELAY '1:00'", [], 'execSqlBatch', { begun: (request) => setImmediate(() => request.cancel()) });
    const error = await cancelled.then(() => assert.fail('no error'), (e) => e);
    assert.strictEqual(error.code, 'ECANCEL', error.message);
    assert.strictEqual(await one(c, 'SELECT 1'), 1);
  },
  async 'a request that is cancelled after its first row'(c) {
    const cancelled = ask(c, "SELECT id FROM dbo.js; WAITFOR DELAY '1:00'", [], 'execSql', { before: (request) => request.once('row', () => request.cancel()) });
    const error = await cancelled.then(() => assert.fail('no error'), (e) => e);
    assert.strictEqual(error.code, 'ECANCEL', error.message);
    assert.strictEqual(await one(c, 'SELECT 1'), 1);
  },
  async 'a request that takes too long'(c) {
    const late = ask(c, "WAITFOR DELAY '1:00'", [], 'execSql', { before: (request) => request.setTimeout(50) });
    const error = await late.then(() => assert.fail('no error'), (e) => e);
    assert.strictEqual(error.code, 'ETIMEOUT', error.message);
    assert.strictEqual(await one(c, 'SELECT 1'), 1);
  },
  async 'errors by their numbers'(c) {
    await fails(208, ask(c, 'SELECT id FROM dbo.nowhere'));
    await fails(2627, ask(c, "INSERT dbo.js VALUES (1, N'again')"));
    await fails(515, ask(c, 'INSERT dbo.js (id) VALUES (NULL)'));
    await fails(8134, ask(c, 'SELECT 1 / 0'));
    await fails(102, ask(c, 'SELECT FROM', [], 'execSqlBatch'));
    await fails(50123, ask(c, "THROW 50123, N'own', 1", [], 'execSqlBatch'));
    assert.strictEqual(await one(c, 'SELECT 1'), 1);
  },
  async 'a procedure and what it returns'(c) {
    await ask(c, 'CREATE PROCEDURE dbo.twice @n int, @out int OUTPUT, @text nvarchar(20) OUTPUT AS BEGIN SET @out = @n * 2; SET @text = @text + N\'!\'; SELECT @n; END', [], 'execSqlBatch');
    const { rows, returned } = await ask(c, 'dbo.twice', [['n', TYPES.Int, 21], ['out', TYPES.Int, null, {}, true], ['text', TYPES.NVarChar, 'hej', {}, true]], 'callProcedure');
    assert.deepStrictEqual([rows, returned], [[[21]], { out: 42, text: 'hej!' }]);
  },
  async 'a reset'(c) {
    await ask(c, 'BEGIN TRAN; DELETE dbo.js', [], 'execSqlBatch');
    await later(c, 'reset');
    assert.deepStrictEqual((await ask(c, 'SELECT COUNT(*), @@TRANCOUNT FROM dbo.js')).rows, [[2, 0]]);
  },
  async 'another database'(c) {
    const told = [];
    c.on('databaseChange', (name) => told.push(name));
    await ask(c, 'USE master', [], 'execSqlBatch');
    await ask(c, 'USE test', [], 'execSqlBatch');
    assert.deepStrictEqual(told, ['master', 'test']);
    await fails(911, ask(c, 'USE elsewhere', [], 'execSqlBatch'));
  },
  async 'a bulk load, which is refused'(c) {
    const load = c.newBulkLoad('dbo.js', () => {});
    load.addColumn('id', TYPES.Int, { nullable: false });
    const error = await new Promise((done) => { load.callback = done; c.execBulkLoad(load, [{ id: 5 }]); });
    assert.ok(error);
    assert.strictEqual(await one(c, 'SELECT 1'), 1);
  },
  async 'a login to no database'() {
    const error = await connect({ database: 'elsewhere' }).then(() => assert.fail('no error'), (e) => e);
    assert.match(error.message, /Login failed|Cannot open database/);
  },
};

(async () => {
  const c = await connect();
  for (const [name, check] of Object.entries(checks)) {
    try {
      await check(c);
      console.log('ok ' + name);
    } catch (error) {
      console.log(`not ok ${name}: ${String(error.stack).replaceAll('\n', ' | ')}`);
    }
  }
  console.log('ok all ' + Object.keys(checks).length);
  c.close();
})().catch((error) => { console.log('not ok it connects: ' + error.stack.replaceAll('\n', ' | ')); });
