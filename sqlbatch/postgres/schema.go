package postgres

import (
	"cmp"
	"slices"
	"strings"

	"github.com/chanq/chanq/sqlbatch"
	"github.com/chanq/chanq/sqlbatch/internal/build"
)

// Fresh: nothing is required.
func (dialect) Fresh(sqlbatch.Names) sqlbatch.Fresh { return sqlbatch.Fresh{} }

// Begin takes the advisory lock that every migration of the database takes: the letters chanq as a number. It is
// released with the transaction. Bodies are bytes, but keys, names and error texts are text, which a database that
// cannot hold all of Unicode would refuse in the middle of a settle.
func (dialect) Begin() []string {
	return []string{
		`BEGIN ISOLATION LEVEL READ COMMITTED`,
		`SELECT pg_advisory_xact_lock(426952978033)`,
		`DO $$
BEGIN
  IF current_setting('server_encoding') NOT IN ('UTF8', 'SQL_ASCII') THEN
    RAISE EXCEPTION 'chanq: this database has the encoding %, and chanq needs UTF8', current_setting('server_encoding')
      USING ERRCODE = 'feature_not_supported';
  END IF;
END
$$`,
	}
}

func (dialect) Commit() string { return `COMMIT` }

func (dialect) Text(n sqlbatch.Names, text string) string {
	return build.Text(n, text, build.TextWords{
		Table: func(name string) string {
			return build.Quote(`"`, cmp.Or(n.Schema, "public"), `"`) + "." + build.Quote(`"`, name, `"`)
		},
		Create: func(t string) string { return "CREATE TABLE IF NOT EXISTS " + t },
		Now:    clock, Parameter: "$", Text: `text COLLATE "C"`, Bytes: "bytea",
	})
}

// Migrations can be run again. They run as text without parameters, so that a DBA can run them by hand unchanged.
func (dialect) Migrations(n sqlbatch.Names) []sqlbatch.Migration {
	r := newRenderer(n)
	m := sqlbatch.Migration{Number: sqlbatch.Version, Registry: 1}
	before, index, after := []string(nil), []string{dueIndexText}, []string(nil)
	if r.ordered {
		before, index, after = []string{slotsTableText, numbersText, slotRowsText}, []string{seqIndexText}, []string{deadLineIndexText}
	}
	for _, template := range slices.Concat(
		[]string{queuesTableText, consumersTableText, consumersIndexText}, before, []string{liveTableText}, index, []string{keyIndexText,
			deadTableText, addColumnsText, deadEndedIndexText, deadCauseIndexText, deadKeyIndexText, deadNewIndexText}, after, []string{doneTableText, doneEndedIndexText, samplesTableText, addHeardText, convertText, firstRecordText, raiseText},
	) {
		m.Statements = append(m.Statements, r.Replace(template))
	}
	m.Statements = append(m.Statements, dialect{}.Text(n, build.LogTable))
	return []sqlbatch.Migration{m}
}

// convertText keeps messages of version 1 from being dead-lettered for expired leases that did not count before. Their table keeps two columns
// that nothing reads any more.
const convertText = `UPDATE {live} SET attempts = attempts - (lapses - {kept lapses}), lapses = {kept lapses}
WHERE lapses > {kept lapses} AND EXISTS (SELECT 1 FROM {queues} WHERE name = {name} AND version < 2)`

// raiseText lets programs of version 1 refuse the queue.
const raiseText = `UPDATE {queues} SET version = {version}, min_version = {least} WHERE name = {name} AND version < {version}`

// firstRecordText lets Open find a queue that was created by hand.
const firstRecordText = `INSERT INTO {queues} (name, version, min_version, created_at, kind, slots, shard, shards, shard_set, {policy columns}) VALUES ({name}, {version}, {least}, {clock}, {kind and slots}, {shard values}, {policy values}) ON CONFLICT (name) DO NOTHING`

const queuesTableText = `CREATE TABLE IF NOT EXISTS {queues} (
  name           text COLLATE "C" NOT NULL,
  version        integer  NOT NULL,
  min_version    integer  NOT NULL DEFAULT 1,
  features       bigint   NOT NULL DEFAULT 0,
  kind           smallint NOT NULL,
  slots          smallint NOT NULL,
  {policy types},
  paused         boolean  NOT NULL DEFAULT false,
  paused_at      bigint,
  paused_by      text,
  pause_reason   text,
  shard          smallint NOT NULL,
  shards         smallint NOT NULL,
  shard_set      text COLLATE "C" NOT NULL,
  redriven       bigint   NOT NULL DEFAULT 0,
  created_at     bigint   NOT NULL,
  CONSTRAINT {queues pk} PRIMARY KEY (name)
)`

// consumersTableText has a row for each consumer of each queue, which the consumer rewrites several times a minute. heard_at is when it did so
// last; until is when its leases end. No
// index has the changed columns, and there is room on the page: such a write touches no index.
const consumersTableText = `CREATE TABLE IF NOT EXISTS {consumers} (
  id      uuid   NOT NULL,
  since   bigint NOT NULL,
  until   bigint NOT NULL,
  heard_at bigint,
  process bigint NOT NULL,
  queue   text COLLATE "C" NOT NULL,
  name    text   NOT NULL,
  host    text   NOT NULL,
  CONSTRAINT {consumers pk} PRIMARY KEY (id)
) WITH (fillfactor = 50)`

// consumersIndexText is for the count of a queue's consumers, which each look of each consumer reads: of a thousand
// consumers of two hundred queues it reads five rows, not all.
var consumersIndexText = indexText("{'consumers queue'}", `CREATE INDEX {consumers queue} ON {consumers} (queue)`)

// Times are Unix milliseconds, not timestamptz: they compare and add as they are, whatever the session's time zone.
// (to_timestamp(due_at / 1000.0) converts them.) Columns of fixed width come first, in order of alignment, and among
// these the columns that are never NULL: their offsets in the row are known.
//
// Every column except body has a default, so that INSERT INTO chanq_orders (body) by any program is a message. Its id
// is a UUIDv7: the first 48 bits are the time, the others those of a random UUID. The checks refuse rows that no claim
// would ever see, and rows that would make one fail: sums that are too large, keys that the index of dead messages
// cannot hold, more bytes than a consumer could read. The length of a body outside of the row is known without reading
// it.
//
// due_at is a message's place, lease_until the end of its lease, which is in the past if no consumer holds it. A claim
// and an extension change only columns without an index. fillfactor 50 leaves room for the new version of the row on
// the page of the first, so no index entry is written (a heap-only update: docs/internals/decisions.md). Dead versions are
// vacuumed early, but vacuum keeps the file's length: cutting it takes a lock that claims wait for, and the queue needs
// the space again.
//
// Bodies above 2 kB are compressed with lz4, and what remains above 2 kB is stored outside of the row, so that a claim
// does not copy it. Where the server has no lz4 they are not compressed: they are read once and deleted, and with pglz
// the insert takes three times as long (docs/internals/decisions.md). Storage and settings apply only to a new table, so that the
// next migration keeps a DBA's choice.
const liveTableText = `CREATE TABLE IF NOT EXISTS {live} (
  id          uuid     NOT NULL DEFAULT {new id},
  due_at      bigint   NOT NULL DEFAULT {clock},
  lease_until bigint   NOT NULL DEFAULT 0,
  enqueued_at bigint   NOT NULL DEFAULT {clock},
  fence       bigint   NOT NULL DEFAULT 0,{live seq}
  attempts    integer  NOT NULL DEFAULT 0,
  priority    smallint NOT NULL DEFAULT 0,
  lapses      smallint NOT NULL DEFAULT 0,{live slot}
  leased_by   uuid,
  expires_at  bigint,{live key}
  dedup_key   text COLLATE "C",
  type        text COLLATE "C",
  last_error  text,
  history     text,
  headers     bytea,
  body        bytea    NOT NULL,
  CONSTRAINT {live pk} PRIMARY KEY (id),
  CONSTRAINT {live priority} CHECK (priority BETWEEN -1 AND 2),
  CONSTRAINT {live values} CHECK (due_at BETWEEN 0 AND {last time} AND lease_until BETWEEN 0 AND {last time} AND enqueued_at BETWEEN 0 AND {last time}
    AND expires_at BETWEEN 0 AND {last time} AND lapses >= 0
    AND attempts BETWEEN lapses + CASE WHEN leased_by IS NULL THEN 0 ELSE 1 END AND {last attempt} AND fence BETWEEN 0 AND {last fence}),
  CONSTRAINT {live sizes} CHECK (octet_length(body) <= {most body} AND octet_length(headers) <= {most headers} AND octet_length(dedup_key) BETWEEN 1 AND {most key}
    AND octet_length(type) BETWEEN 1 AND {most type} AND type !~ '[^ -~]'){order checks}
) WITH (fillfactor = 50,
  autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_threshold = 1000, vacuum_truncate = off,
  toast.autovacuum_vacuum_scale_factor = 0.02, toast.autovacuum_vacuum_threshold = 1000, toast.vacuum_truncate = off)`

const newID = `(lpad(to_hex((extract(epoch FROM clock_timestamp()) * 1000)::bigint), 12, '0') || '7' || substr(gen_random_uuid()::text, 16))::uuid`

// dueIndexText is what claims walk: due time, delay and retry are all due_at. Columns that a claim changes must not be
// in it.
//
// The last part is the id in another form: with the column itself the planner could use this index to find a row by id,
// by reading all of it. If statistics show an empty table, as after a vacuum in a quiet moment, that seems as cheap as
// the primary key.
var dueIndexText = indexText("{'due'}", newTableText, `CREATE INDEX {due} ON {live} (priority, due_at, uuid_send(id))`)

// newTableText runs with the first index of a live table, which is missing only if the table is new: CREATE TABLE
// accepts no storage before PostgreSQL 16. Before 14 there is no COMPRESSION (a syntax error), and a server may be built
// without lz4. Citus refuses a storage, and compresses.
const newTableText = `BEGIN
      EXECUTE 'ALTER TABLE ' || {'live'} || ' ALTER COLUMN body SET COMPRESSION lz4';
    EXCEPTION WHEN syntax_error OR feature_not_supported THEN
      BEGIN
        ALTER TABLE {live} ALTER COLUMN body SET STORAGE EXTERNAL;
      EXCEPTION WHEN feature_not_supported THEN
        NULL;
      END;
    END`

// keyIndexText has only the messages with a key; others cost nothing.
var keyIndexText = indexText("{'key'}", `CREATE UNIQUE INDEX {key} ON {live} (dedup_key) WHERE dedup_key IS NOT NULL`)

// The columns that only one of the two tables has. fingerprint is an integer: eight bytes, which compare fast.
// noticed_at is when a handler of dead messages has noticed the death (chanqjobs.Deaths): 0 is not yet, and NULL a death
// before there was this column, which is never noticed.
const (
	deadOwn = `
  cause       smallint NOT NULL,
  fingerprint bigint,
  noticed_at  bigint DEFAULT 0,`
	doneOwn = `
  outcome     smallint NOT NULL,`
)

func endedWith(own string) string { return strings.Replace(endedColumns, "{own}", own, 1) }

// endedColumns are those of the dead-letter and the done table.
const endedColumns = `
  id          uuid     NOT NULL,
  enqueued_at bigint   NOT NULL,
  ended_at    bigint   NOT NULL,
  fence       bigint   NOT NULL,
  attempts    integer  NOT NULL,
  priority    smallint NOT NULL,{own}{ended order}
  dedup_key   text COLLATE "C",
  type        text COLLATE "C",
  last_error  text,
  history     text,
  headers     bytea,
  body        bytea    NOT NULL,`

var deadTableText = `CREATE TABLE IF NOT EXISTS {dead} (` + endedWith(deadOwn) + `
  CONSTRAINT {dead pk} PRIMARY KEY (id)
)`

// addColumnsText changes only the catalog of tables of version 2: the rows that exist stay NULL, as old. The default is for new
// ones, whichever program inserts them.
const addColumnsText = `DO {$}
BEGIN
  IF NOT EXISTS (SELECT 1 FROM pg_catalog.pg_attribute AS a WHERE a.attrelid = to_regclass({'dead'}) AND a.attname = 'noticed_at') THEN
    ALTER TABLE {dead} ADD COLUMN noticed_at bigint;
    ALTER TABLE {dead} ALTER COLUMN noticed_at SET DEFAULT 0;
    ALTER TABLE {live} ADD COLUMN history text;
    ALTER TABLE {dead} ADD COLUMN history text;
    ALTER TABLE {done} ADD COLUMN history text;
  END IF;
END
{$}`

// addHeardText is for the table of version 2, whose programs leave the column NULL. It locks the table only if the column is missing.
const addHeardText = `DO {$}
BEGIN
  IF NOT EXISTS (SELECT 1 FROM pg_catalog.pg_attribute AS a WHERE a.attrelid = to_regclass({'consumers'}) AND a.attname = 'heard_at') THEN
    ALTER TABLE {consumers} ADD COLUMN heard_at bigint;
  END IF;
END
{$}`

// deadEndedIndexText: peeks and redrives use the order of death.
var deadEndedIndexText = indexText("{'dead ended'}", `CREATE INDEX {dead ended} ON {dead} (ended_at, id)`)

// deadCauseIndexText has the groups of dead messages, each with its first and its last.
var deadCauseIndexText = indexText("{'dead cause'}", `CREATE INDEX {dead cause} ON {dead} (cause, fingerprint, ended_at, id)`)

// deadKeyIndexText: a redrive looks for other dead messages with the same key.
var deadKeyIndexText = indexText("{'dead key'}", `CREATE INDEX {dead key} ON {dead} (dedup_key, id) WHERE dedup_key IS NOT NULL`)

// deadNewIndexText has the deaths that were not noticed yet, in their order.
var deadNewIndexText = indexText("{'dead new'}", `CREATE INDEX {dead new} ON {dead} (ended_at, id) WHERE noticed_at = 0`)

var doneTableText = `CREATE TABLE IF NOT EXISTS {done} (` + endedWith(doneOwn) + `
  CONSTRAINT {done pk} PRIMARY KEY (id)
)`

var doneEndedIndexText = indexText("{'done ended'}", `CREATE INDEX {done ended} ON {done} (ended_at, id)`)

// indexText creates an index if it is missing. IF NOT EXISTS would check only after it has locked the table: a starting
// process would wait for a vacuum, or for an open transaction with a send, and all others would wait behind that
// process.
func indexText(name string, create ...string) string {
	return `DO {$}
BEGIN
  IF to_regclass(` + name + `) IS NULL THEN
    ` + strings.Join(create, ";\n    ") + `;
  END IF;
END
{$}`
}
