package sqlite

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/chanq/chanq/sqlbatch"
	"github.com/chanq/chanq/sqlbatch/internal/build"
)

// Begin takes the write lock immediately: it excludes every other writer of the file, in this process and in others.
func (dialect) Begin() []string { return []string{"BEGIN IMMEDIATE"} }
func (dialect) Commit() string  { return "COMMIT" }

func (dialect) Text(n sqlbatch.Names, text string) string {
	return build.Text(n, text, build.TextWords{
		Table: func(name string) string {
			return build.Quote(`"`, cmp.Or(n.Schema, "main"), `"`) + "." + build.Quote(`"`, name, `"`)
		},
		Create: func(t string) string { return "CREATE TABLE IF NOT EXISTS " + t },
		Now:    now, Parameter: "?", Text: "TEXT", Bytes: "BLOB",
	})
}

// Fresh makes the file keep the data that shrinking it in steps requires (Queue.Shrink). SQLite decides that with the first page of a
// file, which journal_mode = WAL writes: a file with that page, and without a table, must be rewritten. A DSN cannot set it for all
// files: the PRAGMA takes the write lock. An in-memory database is not changed.
func (dialect) Fresh(n sqlbatch.Names) sqlbatch.Fresh {
	text := newRenderer(n).Replace
	return sqlbatch.Fresh{
		Ask: text(`SELECT 1 FROM pragma_database_list WHERE name = {schema_text} COLLATE NOCASE AND file <> ''
  AND NOT EXISTS (SELECT 1 FROM {database}.sqlite_master) AND EXISTS (SELECT 1 FROM pragma_auto_vacuum({schema_text}) WHERE auto_vacuum = 0)`),
		Set:     text(`PRAGMA {database}.auto_vacuum = INCREMENTAL`),
		Rewrite: text(`VACUUM {database}`),
	}
}

func (dialect) Migrations(n sqlbatch.Names) []sqlbatch.Migration {
	texts := append(slices.Clip(migration1), plainMigration1)
	if n.Slots > 0 {
		texts = append(slices.Clip(migration1), orderedMigration1...)
	}
	r := newRenderer(n)
	formers := []sqlbatch.Former{
		{Ask: r.Replace(formerText("{dead_text}", "noticed_at")), Add: r.all([]string{addNoticedText, addToLiveText, addToDeadText, addToDoneText})},
		{Ask: r.Replace(formerText("'chanq__consumers'", "heard_at")), Add: r.all([]string{addHeardText})},
	}
	return []sqlbatch.Migration{{Number: sqlbatch.Version, Registry: 1, Formers: formers, Statements: append(r.all(texts), dialect{}.Text(n, build.LogTable))}}
}

// formerText finds a table of version 2, which lacks a column.
func formerText(table, column string) string {
	return `SELECT 1 FROM (SELECT count(*) AS columns, sum(name = '` + column + `') AS has FROM pragma_table_info(` + table + `, {schema_text})) WHERE columns > 0 AND has = 0`
}

// addHeardText changes no row. Programs of version 2 leave the column NULL.
const addHeardText = `ALTER TABLE {consumers} ADD COLUMN heard_at INTEGER`

// These change no row. noticed_at has no default, which SQLite would apply to the rows that exist: they stay NULL, as old. So the INSERT
// of a dead message names the column. What programs of version 2 dead-letter in such a file is not noticed.
const (
	addNoticedText = `ALTER TABLE {dead} ADD COLUMN noticed_at INTEGER`
	addToLiveText  = `ALTER TABLE {live} ADD COLUMN history TEXT`
	addToDeadText  = `ALTER TABLE {dead} ADD COLUMN history TEXT`
	addToDoneText  = `ALTER TABLE {done} ADD COLUMN history TEXT`
)

// The schema. Times are Unix milliseconds. Ordinary rowid tables: an index leads straight to the row, which costs less than a clustered
// id here.
//
// due_at is a message's place, lease_until the end of its lease, which is in the past if no consumer holds it. The columns that a claim
// and an extension change are in no index.
//
// Every column except body has a default, so that the INSERT of any program is a message. The table is STRICT: SQLite checks the types
// of all columns at once, which costs less than a check for each. The checks refuse rows that no statement of chanq could find or read,
// and more bytes than a consumer could read. Bodies and headers can be text or blobs. The length of a text is in characters, and up to
// the first zero: only the length of a blob is in bytes.
var migration1 = []string{
	`CREATE TABLE IF NOT EXISTS {queues} (
  name           TEXT    NOT NULL PRIMARY KEY,
  version        INTEGER NOT NULL,
  min_version    INTEGER NOT NULL DEFAULT 1,
  features       INTEGER NOT NULL DEFAULT 0,
  kind           INTEGER NOT NULL,
  slots          INTEGER NOT NULL,
  {policy types},
  paused         INTEGER NOT NULL DEFAULT 0,
  paused_at      INTEGER,
  paused_by      TEXT,
  pause_reason   TEXT,
  shard          INTEGER NOT NULL,
  shards         INTEGER NOT NULL,
  shard_set      TEXT    NOT NULL,
  redriven       INTEGER NOT NULL DEFAULT 0,
  created_at     INTEGER NOT NULL
)`,
	`CREATE TABLE IF NOT EXISTS {consumers} (
  id      BLOB    NOT NULL PRIMARY KEY,
  queue   TEXT    NOT NULL,
  name    TEXT    NOT NULL,
  host    TEXT    NOT NULL,
  process INTEGER NOT NULL,
  since   INTEGER NOT NULL,
  until   INTEGER NOT NULL,
  heard_at INTEGER
)`,
	`CREATE TABLE IF NOT EXISTS {live} ({live order}
  id          BLOB    NOT NULL {id key} DEFAULT (` + newID + `),
  priority    INTEGER NOT NULL DEFAULT 0,
  due_at      INTEGER NOT NULL DEFAULT ({now}),
  lease_until INTEGER NOT NULL DEFAULT 0,
  enqueued_at INTEGER NOT NULL DEFAULT ({now}),
  expires_at  INTEGER,
  fence       INTEGER NOT NULL DEFAULT 0,
  attempts    INTEGER NOT NULL DEFAULT 0,
  lapses      INTEGER NOT NULL DEFAULT 0,
  dedup_key   TEXT,
  type        TEXT,
  leased_by   BLOB,
  last_error  TEXT,
  history     TEXT,
  headers     ANY,
  body        ANY     NOT NULL,
  CHECK (length(id) = 16),
  CHECK (priority BETWEEN -1 AND 2),
  CHECK (due_at BETWEEN 0 AND {last time}),
  CHECK (lease_until BETWEEN 0 AND {last time}),
  CHECK (enqueued_at BETWEEN 0 AND {last time}),
  CHECK (expires_at BETWEEN 0 AND {last time}),
  CHECK (fence BETWEEN 0 AND {last fence}),
  CHECK (attempts BETWEEN lapses + (leased_by IS NOT NULL) AND {last attempt}),
  CHECK (lapses BETWEEN 0 AND {last lapse}),
  CHECK ({bytes of body} <= {most body}),
  CHECK (headers IS NULL OR {bytes of headers} <= {most headers}),
  CHECK (dedup_key IS NULL OR length(CAST(dedup_key AS BLOB)) BETWEEN 1 AND {most key}),
  CHECK (type IS NULL OR length(CAST(type AS BLOB)) BETWEEN 1 AND {most type} AND type NOT GLOB '*[^ -~]*'){order checks}
) STRICT`,
	`CREATE UNIQUE INDEX IF NOT EXISTS {dedup_ix} ON {live_unqualified} (dedup_key) WHERE dedup_key IS NOT NULL`,
	`CREATE TABLE IF NOT EXISTS {dead} (` + endedWith(deadOwn),
	`CREATE INDEX IF NOT EXISTS {dead_ix} ON {dead_unqualified} (ended_at, id)`,
	`CREATE INDEX IF NOT EXISTS {dead_cause_ix} ON {dead_unqualified} (cause, fingerprint, ended_at, id)`,
	`CREATE INDEX IF NOT EXISTS {dead_key_ix} ON {dead_unqualified} (dedup_key, id) WHERE dedup_key IS NOT NULL`,
	`CREATE INDEX IF NOT EXISTS {dead_new_ix} ON {dead_unqualified} (ended_at, id) WHERE noticed_at = 0`,
	`CREATE TABLE IF NOT EXISTS {done} (` + endedWith(doneOwn),
	`CREATE INDEX IF NOT EXISTS {done_ix} ON {done_unqualified} (ended_at, id)`,
	samplesTableText,
	convertText,
	`INSERT INTO {queues} (name, version, min_version, created_at, kind, slots, shard, shards, shard_set, {policy columns}) VALUES ({name}, {version}, {least}, {now}, {kind and slots}, {shard values}, {policy values}) ON CONFLICT (name) DO NOTHING`,
	`UPDATE {queues} SET version = {version}, min_version = {least} WHERE name = {name} AND version < {version}`, // programs of version 1 refuse it
}

// convertText keeps messages of version 1 from being dead-lettered for expired leases that did not count before. Their table keeps two columns
// that nothing reads any more.
const convertText = `UPDATE {live} SET attempts = attempts - (lapses - {kept lapses}), lapses = {kept lapses}
WHERE lapses > {kept lapses} AND EXISTS (SELECT 1 FROM {queues} WHERE name = {name} AND version < 2)`

// plainMigration1 is the rest of the first migration of a plain queue: the index that claims walk.
const plainMigration1 = `CREATE INDEX IF NOT EXISTS {due_ix} ON {live_unqualified} (priority, due_at, id)`

// The columns that only one of the two tables has. noticed_at is when a handler of dead messages has noticed the death
// (chanqjobs.Deaths): 0 is not yet, and NULL a death before there was this column, which is never noticed.
const (
	deadOwn = `
  cause       INTEGER NOT NULL,
  fingerprint INTEGER,
  noticed_at  INTEGER DEFAULT 0,`
	doneOwn = `
  outcome     INTEGER NOT NULL,`
)

func endedWith(own string) string { return strings.Replace(endedColumns, "{own}", own, 1) }

// endedColumns are those of the dead-letter and the done table.
const endedColumns = `
  id          BLOB    NOT NULL PRIMARY KEY,
  priority    INTEGER NOT NULL,{own}{ended order}
  enqueued_at INTEGER NOT NULL,
  ended_at    INTEGER NOT NULL,
  fence       INTEGER NOT NULL,
  attempts    INTEGER NOT NULL,
  dedup_key   TEXT,
  type        TEXT,
  last_error  TEXT,
  history     TEXT,
  headers     BLOB,
  body        BLOB    NOT NULL
)`

// newID makes a UUIDv7: 48 bits of milliseconds, the version, the variant, and random bits between and after them. SQLite before 3.41
// cannot convert a number to a byte, so each byte is cut out of a list of all bytes. The first byte, which is 1 until 2039, is cut out
// of a short list that lasts as long as fences do.
const newID = `CAST(substr(x'0001020304050607', 1 + ({now} >> 40), 1)
    || {byte 32} || {byte 24} || {byte 16} || {byte 8} || {byte 0}
    || substr(x'707172737475767778797a7b7c7d7e7f', 1 + (random() & 15), 1) || randomblob(1)
    || substr(x'808182838485868788898a8b8c8d8e8f909192939495969798999a9b9c9d9e9fa0a1a2a3a4a5a6a7a8a9aaabacadaeafb0b1b2b3b4b5b6b7b8b9babbbcbdbebf', 1 + (random() & 63), 1) || randomblob(7) AS BLOB)`

// timeBytes returns the replacements of {byte n}: eight bits of the time, from the nth on.
func timeBytes() []string {
	const digits = "0123456789abcdef"
	var all strings.Builder
	for i := range 256 {
		all.WriteByte(digits[i>>4])
		all.WriteByte(digits[i&15])
	}
	var pairs []string
	for _, shift := range []string{"32", "24", "16", "8", "0"} {
		pairs = append(pairs, "{byte "+shift+"}", "substr(x'"+all.String()+"', 1 + ("+now+" >> "+shift+" & 255), 1)")
	}
	return pairs
}

const now = `CAST(round((julianday('now') - 2440587.5) * 86400000.0) AS INTEGER)`

// bytesOf returns how many bytes a column has. A cast would write out the zeros of a zeroblob.
func bytesOf(column string) string {
	return "CASE WHEN " + column + " >= x'' THEN length(" + column + ") ELSE length(CAST(" + column + " AS BLOB)) END"
}

// indexNames returns the indexes that the migrations create, as a list of values.
func indexNames(n sqlbatch.Names) string {
	list := []string{"ux_%s__dedup", "ix_%s__dead_ended", "ix_%s__dead_cause", "ix_%s__dead_dedup", "ix_%s__dead_new", "ix_%s__done_ended"}
	if n.Slots > 0 {
		list = append(list, "ix_%s__dead_key")
	} else {
		list = append(list, "ix_%s__due")
	}
	for i, name := range list {
		list[i] = "(" + build.Quote("'", fmt.Sprintf(name, "chanq_"+n.Queue), "'") + ")"
	}
	if n.Slots > 0 {
		list = append(list, "('chanq__slots')")
	}
	return strings.Join(list, ", ")
}

// names replaces the names in braces of all texts.
func names(n sqlbatch.Names) build.Words {
	schema := n.Schema
	if schema == "" {
		schema = "main"
	}
	q := func(name string) string { return build.Quote(`"`, name, `"`) }
	live := "chanq_" + n.Queue
	in := q(schema) + "."
	return build.NewWords(append(append(timeBytes(), policy.Words(n)...),
		"{queues}", in+q("chanq__queues"), "{shard values}", build.ShardValues(n), "{kind and slots}", build.KindAndSlots(n),
		"{consumers}", in+q("chanq__consumers"), "{samples}", in+q("chanq__samples"),
		"{slots}", in+q("chanq__slots"), "{sequence}", in+q("sqlite_sequence"), "{dead_line_ix}", in+q("ix_"+live+"__dead_key"),
		"{live}", in+q(live), "{live_unqualified}", q(live), "{live_text}", build.Quote("'", live, "'"),
		"{dead}", in+q(live+"__dead"), "{dead_unqualified}", q(live+"__dead"),
		"{done}", in+q(live+"__done"), "{done_unqualified}", q(live+"__done"),
		"{messages}", in+q(live+"__messages"),
		"{due_ix}", in+q("ix_"+live+"__due"), "{due_ix_unqualified}", q("ix_"+live+"__due"),
		"{dedup_ix}", in+q("ux_"+live+"__dedup"),
		"{dead_ix}", in+q("ix_"+live+"__dead_ended"),
		"{dead_cause_ix}", in+q("ix_"+live+"__dead_cause"), "{dead_cause_ix_unqualified}", q("ix_"+live+"__dead_cause"),
		"{dead_key_ix}", in+q("ix_"+live+"__dead_dedup"), "{dead_new_ix}", in+q("ix_"+live+"__dead_new"), "{dead_text}", build.Quote("'", live+"__dead", "'"),
		"{done_ix}", in+q("ix_"+live+"__done_ended"),
		"{index names}", indexNames(n),
		"{schema_text}", build.Quote("'", schema, "'"), "{database}", q(schema),
		"{name}", "'"+n.Queue+"'",
		"{last fence}", fmt.Sprint(sqlbatch.LastFence), "{high fence}", fmt.Sprint(sqlbatch.HighFence),
		"{last attempt}", fmt.Sprint(sqlbatch.LastAttempt), "{last lapse}", fmt.Sprint(sqlbatch.LastLapse), "{version}", fmt.Sprint(sqlbatch.Version), "{least}", fmt.Sprint(sqlbatch.Least), "{kept lapses}", fmt.Sprint(sqlbatch.KeptLapses), "{rescued}", fmt.Sprint(sqlbatch.RescueRows), "{passed}", fmt.Sprint(sqlbatch.PassedRows), "{scatter of lapses}", build.Scatter("lapses"), "{seq bits}", fmt.Sprint(sqlbatch.SeqBits), "{last time}", fmt.Sprint(sqlbatch.LastTime), "{most body}", fmt.Sprint(sqlbatch.MaxBody),
		"{most headers}", fmt.Sprint(sqlbatch.MaxHeaders), "{most key}", fmt.Sprint(sqlbatch.MaxKey), "{most type}", fmt.Sprint(sqlbatch.MaxType), "{acked}", fmt.Sprint(sqlbatch.OutcomeAcked),
		"{expired}", sqlbatch.TextExpired, "{most name}", fmt.Sprint(sqlbatch.MostName), "{most text}", fmt.Sprint(sqlbatch.MostText), "{most history}", fmt.Sprint(sqlbatch.MostHistory),
		"{bytes of body}", bytesOf("body"), "{bytes of headers}", bytesOf("headers"), "{last seq}", fmt.Sprint(uint64(lastSeq)),
		"{no fingerprint}", "(-9223372036854775807 - 1)", "{now}", now, "{margin}", fmt.Sprint(sqlbatch.HeadMargin.Milliseconds()),
	)...)
}
