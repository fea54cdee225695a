// Runs the script of its standard input by tedious, batch after batch; they end with a line GO.
// CHANQ_HOST, CHANQ_PORT, CHANQ_USER, CHANQ_PASSWORD and CHANQ_DATABASE say where.
'use strict';
const fs = require('fs');
const { Connection, Request } = require('tedious');

const env = process.env;
const batches = fs.readFileSync(0, 'utf8').split(/\nGO\n/).filter((text) => text.trim() !== '');

const connection = new Connection({
  server: env.CHANQ_HOST,
  authentication: { type: 'default', options: { userName: env.CHANQ_USER, password: env.CHANQ_PASSWORD } },
  options: { port: +env.CHANQ_PORT, database: env.CHANQ_DATABASE, encrypt: false },
});

const end = (error) => {
  if (error) {
    console.error(error);
    process.exitCode = 1;
  }
  connection.close();
};

const next = () => {
  const text = batches.shift();
  if (text === undefined) {
    end();
    return;
  }
  connection.execSqlBatch(new Request(text, (error) => error ? end(error) : next()));
};

connection.connect((error) => error ? end(error) : next());
