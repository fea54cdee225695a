package demo

import (
	"strconv"
	"strings"

	"github.com/chanq/chanq/sqlbatch"
	"github.com/chanq/chanq/sqlbatch/postgres"
	"github.com/chanq/chanq/sqlbatch/sqlserver"
)

// texts are the ledger's statements. Their parameters are @p1, @p2 … as in SQL Server. PostgreSQL
// has $1, $2 …, SQLite ?1, ?2 …
type texts struct {
	create                                                                              []string
	state, foreign, begin, forget, reset, number, listed, into, record, sent, done, all string

	parameter string // prefix of a parameter's number
}

var common = texts{
	state: `SELECT dir, next_file, listed FROM {run} WHERE id = 1;`,
	// The registry of queues, by its primary key.
	foreign: `SELECT name FROM {queues} WHERE name IN (@p1, @p2);`,
	begin:   `INSERT INTO {run} (id, dir, next_file, listed) SELECT 1, @p1, 0, 0 WHERE NOT EXISTS (SELECT 1 FROM {run} AS r WHERE r.id = 1);`,
	forget:  `DELETE FROM {files};`,
	reset:   `UPDATE {run} SET dir = @p1, next_file = 0, listed = 0 WHERE id = 1;`,
	// number and listed change a row only if no other process has done so first.
	number: `UPDATE {run} SET next_file = @p1 WHERE id = 1 AND next_file = @p2 AND listed = 0;`,
	listed: `UPDATE {run} SET listed = 1 WHERE id = 1 AND next_file = @p1;`,
	into:   `INSERT INTO {files} (file_no, path, size, mtime, message_id, skipped) VALUES `,
	// By the primary key. The message must be the file's own.
	record: `UPDATE {files} SET digest = @p1, problem = @p2, counted = counted + 1 WHERE file_no = @p3 AND message_id = @p4;`,
	sent:   `SELECT COUNT(*) FROM {files} WHERE skipped = '';`,
	done:   `SELECT COUNT(*) FROM {files} WHERE skipped = '' AND counted > 0;`,
	all:    `SELECT file_no, path, size, mtime, message_id, skipped, digest, problem, counted FROM {files} ORDER BY file_no;`,
}

var sqliteTables = []string{`CREATE TABLE IF NOT EXISTS {run} (
  id        INTEGER NOT NULL PRIMARY KEY,
  dir       TEXT    NOT NULL,
  next_file INTEGER NOT NULL,
  listed    INTEGER NOT NULL
)`, `CREATE TABLE IF NOT EXISTS {files} (
  file_no    INTEGER NOT NULL PRIMARY KEY,
  path       TEXT    NOT NULL,
  size       INTEGER NOT NULL,
  mtime      INTEGER NOT NULL,
  message_id BLOB    NOT NULL,
  skipped    TEXT    NOT NULL,
  digest     BLOB,
  problem    TEXT    NOT NULL DEFAULT '',
  counted    INTEGER NOT NULL DEFAULT 0
)`}

// The lock prevents demos that begin at the same time from creating the same table, which
// PostgreSQL's IF NOT EXISTS does not. It ends with the transaction.
var postgresTables = []string{`SELECT pg_advisory_xact_lock(426952978034)`, `CREATE TABLE IF NOT EXISTS {run} (
  id        integer NOT NULL PRIMARY KEY,
  dir       text    NOT NULL,
  next_file integer NOT NULL,
  listed    integer NOT NULL
)`, `CREATE TABLE IF NOT EXISTS {files} (
  file_no    integer NOT NULL PRIMARY KEY,
  path       text    NOT NULL,
  size       bigint  NOT NULL,
  mtime      bigint  NOT NULL,
  message_id bytea   NOT NULL,
  skipped    text    NOT NULL,
  digest     bytea,
  problem    text    NOT NULL DEFAULT '',
  counted    integer NOT NULL DEFAULT 0
)`}

var sqlServerTables = []string{`IF OBJECT_ID(N'{run}', N'U') IS NULL
    CREATE TABLE {run} (
        id int NOT NULL,
        dir nvarchar(4000) NOT NULL,
        next_file int NOT NULL,
        listed bit NOT NULL,
        CONSTRAINT [PK_chanq_demo_run] PRIMARY KEY CLUSTERED (id)
    );`, `IF OBJECT_ID(N'{files}', N'U') IS NULL
    CREATE TABLE {files} (
        file_no int NOT NULL,
        path nvarchar(4000) NOT NULL,
        size bigint NOT NULL,
        mtime bigint NOT NULL,
        message_id binary(16) NOT NULL,
        skipped nvarchar(400) NOT NULL,
        digest varbinary(32) NULL,
        problem nvarchar(400) NOT NULL CONSTRAINT [DF_chanq_demo_files_problem] DEFAULT (N''),
        counted int NOT NULL CONSTRAINT [DF_chanq_demo_files_counted] DEFAULT (0),
        CONSTRAINT [PK_chanq_demo_files] PRIMARY KEY CLUSTERED (file_no)
    );`}

func newTexts(d sqlbatch.Dialect, schema string) texts {
	t := common
	open, shut, standard := `"`, `"`, "main"
	t.create, t.parameter = sqliteTables, "?"
	switch d {
	case sqlserver.Dialect:
		open, shut, standard = "[", "]", "dbo"
		t.create, t.parameter = sqlServerTables, "@p"
		t.forget = `DELETE {files};` // tsqlcheck accepts the form without FROM; the other engines need FROM
	case postgres.Dialect:
		standard = "public"
		t.create, t.parameter = postgresTables, "$"
	}
	if schema == "" {
		schema = standard
	}
	quote := func(name string) string { return open + strings.ReplaceAll(name, shut, shut+shut) + shut }
	in := quote(schema) + "."
	named := strings.NewReplacer(
		"@p", t.parameter,
		// A name inside a literal: its quotes are doubled again.
		"N'{run}'", "N'"+strings.ReplaceAll(in+quote("chanq_demo_run"), "'", "''")+"'",
		"N'{files}'", "N'"+strings.ReplaceAll(in+quote("chanq_demo_files"), "'", "''")+"'",
		"{run}", in+quote("chanq_demo_run"),
		"{files}", in+quote("chanq_demo_files"),
		"{queues}", in+quote("chanq__queues"),
	)
	create := make([]string, len(t.create))
	for i, text := range t.create {
		create[i] = named.Replace(text)
	}
	t.create = create
	for _, text := range []*string{&t.state, &t.foreign, &t.begin, &t.forget, &t.reset, &t.number, &t.listed, &t.into, &t.record, &t.sent, &t.done, &t.all} {
		*text = named.Replace(*text)
	}
	return t
}

// insert returns the text that lists n files: (@p1, …, @p6), (@p7, …). A demo uses two such texts:
// for insertRows files and for the last few.
func (t *texts) insert(n int) string {
	const columns = 6
	var b strings.Builder
	b.WriteString(t.into)
	for i := range n * columns {
		switch {
		case i == 0:
			b.WriteString("(")
		case i%columns == 0:
			b.WriteString("), (")
		default:
			b.WriteString(", ")
		}
		b.WriteString(t.parameter + strconv.Itoa(i+1))
	}
	b.WriteString(");")
	return b.String()
}
