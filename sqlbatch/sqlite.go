package sqlbatch

import (
	"errors"
	"strings"
)

// SQLite is the dialect of SQLite 3.35 and later.
//
// A batch travels as one packed blob of fixed-width records beside one blob of
// all variable-length values, and the statement cuts them apart with substr:
// two parameters and one text whatever the count of rows. Binding six
// parameters a row costs three to four times as much (docs/decisions.md).
var SQLite Dialect = sqlite{}

type sqlite struct{}

func (sqlite) Name() string { return "sqlite" }

func (sqlite) Traits() Traits {
	return Traits{
		OneWriter: true, Prepare: true, Schema: "main",
		EnqueueRows: 1000, ClaimRows: 1000,
		AckItems: 1000, NackItems: 1000, ReleaseItems: 1000, BuryItems: 1000, FindIDs: 1000,
	}
}

// SQLite's result codes (sqlite.org/rescode.html); the low byte is the primary one.
const (
	sqliteError, sqlitePerm, sqliteAbort, sqliteBusy, sqliteLocked = 1, 3, 4, 5, 6
	sqliteNoMem, sqliteReadOnly, sqliteInterrupt, sqliteIOErr      = 7, 8, 9, 10
	sqliteCorrupt, sqliteFull, sqliteCantOpen, sqliteProtocol      = 11, 13, 14, 15
	sqliteSchema, sqliteTooBig, sqliteConstraint, sqliteMismatch   = 17, 18, 19, 20
	sqliteAuth, sqliteNotADB                                       = 23, 26
	sqliteConstraintPrimaryKey, sqliteConstraintUnique             = 1555, 2067
	sqliteConstraintRowID                                          = 2579
)

func (sqlite) Classify(err error) Class {
	if c, ok := classifyCommon(err); ok {
		return c
	}
	var coded interface{ Code() int }
	if !errors.As(err, &coded) {
		return Unknown
	}
	switch code := coded.Code(); code {
	case sqliteConstraintPrimaryKey, sqliteConstraintUnique, sqliteConstraintRowID:
		return Duplicate
	default:
		switch code & 0xff {
		case sqliteAbort, sqliteBusy, sqliteLocked, sqliteNoMem, sqliteInterrupt, sqliteProtocol, sqliteSchema:
			return RolledBack
		case sqliteFull, sqliteCantOpen:
			return Refused
		case sqliteConstraint, sqliteTooBig, sqliteMismatch:
			return BadRow
		case sqliteError:
			// SQLite has no code of its own for a missing table; chanq's texts are
			// fixed and tested, so nothing else in them is a logic error.
			return NoSchema
		case sqlitePerm, sqliteReadOnly, sqliteAuth, sqliteCorrupt, sqliteNotADB:
			return Permanent
		case sqliteIOErr:
			return Unknown
		}
	}
	return Unknown
}

// Begin takes the write lock at once: it excludes every other writer of the
// file, in this process and in others.
func (sqlite) Begin() []string { return []string{"BEGIN IMMEDIATE"} }

func (sqlite) Commit() string { return "COMMIT" }

func (sqlite) Migrations(n Names) []Migration {
	return []Migration{{Number: 1, Registry: 1, Statements: sqliteNames(n).all(sqliteMigration1)}}
}

// The schema. due_at holds the due time that the last claim replaced by its
// lease, because RETURNING in SQLite sees new values only. Times are Unix
// milliseconds. Ordinary rowid tables: the claim index leads straight to the
// row, which costs less than a clustered id here.
var sqliteMigration1 = []string{
	`CREATE TABLE IF NOT EXISTS {queues} (
  name       TEXT    NOT NULL PRIMARY KEY,
  version    INTEGER NOT NULL,
  paused     INTEGER NOT NULL DEFAULT 0,
  created_at INTEGER NOT NULL
)`,
	`CREATE TABLE IF NOT EXISTS {live} (
  id          BLOB    NOT NULL PRIMARY KEY,
  priority    INTEGER NOT NULL,
  visible_at  INTEGER NOT NULL,
  enqueued_at INTEGER NOT NULL,
  due_at      INTEGER NOT NULL,
  fence       INTEGER NOT NULL,
  attempts    INTEGER NOT NULL,
  dedup_key   TEXT,
  leased_by   TEXT,
  last_error  TEXT,
  headers     BLOB,
  body        BLOB    NOT NULL
)`,
	`CREATE INDEX IF NOT EXISTS {ready_ix} ON {live_unqualified} (priority, visible_at, id)`,
	`CREATE UNIQUE INDEX IF NOT EXISTS {dedup_ix} ON {live_unqualified} (dedup_key) WHERE dedup_key IS NOT NULL`,
	`CREATE TABLE IF NOT EXISTS {dead} (
  id          BLOB    NOT NULL PRIMARY KEY,
  priority    INTEGER NOT NULL,
  enqueued_at INTEGER NOT NULL,
  ended_at    INTEGER NOT NULL,
  fence       INTEGER NOT NULL,
  attempts    INTEGER NOT NULL,
  dedup_key   TEXT,
  last_error  TEXT,
  headers     BLOB,
  body        BLOB    NOT NULL
)`,
	`CREATE INDEX IF NOT EXISTS {dead_ix} ON {dead_unqualified} (ended_at, id)`,
	`CREATE INDEX IF NOT EXISTS {dead_key_ix} ON {dead_unqualified} (dedup_key, id) WHERE dedup_key IS NOT NULL`,
	`CREATE TABLE IF NOT EXISTS {done} (
  id          BLOB    NOT NULL PRIMARY KEY,
  priority    INTEGER NOT NULL,
  enqueued_at INTEGER NOT NULL,
  ended_at    INTEGER NOT NULL,
  fence       INTEGER NOT NULL,
  attempts    INTEGER NOT NULL,
  dedup_key   TEXT,
  last_error  TEXT,
  headers     BLOB,
  body        BLOB    NOT NULL
)`,
	`CREATE INDEX IF NOT EXISTS {done_ix} ON {done_unqualified} (ended_at, id)`,
	`INSERT INTO {queues} (name, version, created_at) VALUES ({name}, 1, {now}) ON CONFLICT (name) DO NOTHING`,
}

// sqliteNames replaces the names in braces of the texts below.
type sqliteReplacer struct{ *strings.Replacer }

func sqliteNames(n Names) sqliteReplacer {
	schema := n.Schema
	if schema == "" {
		schema = "main"
	}
	q := func(name string) string { return quoteWith(`"`, name, `"`) }
	live := "chanq_" + n.Queue
	in := q(schema) + "."
	return sqliteReplacer{strings.NewReplacer(
		"{queues}", in+q("chanq_queues"),
		"{live}", in+q(live), "{live_unqualified}", q(live),
		"{dead}", in+q(live+"_dead"), "{dead_unqualified}", q(live+"_dead"),
		"{done}", in+q(live+"_done"), "{done_unqualified}", q(live+"_done"),
		"{ready_ix}", in+q("ix_"+live+"_ready"),
		"{dedup_ix}", in+q("ux_"+live+"_dedup"),
		"{dead_ix}", in+q("ix_"+live+"_dead_ended"),
		"{dead_key_ix}", in+q("ix_"+live+"_dead_dedup"),
		"{done_ix}", in+q("ix_"+live+"_done_ended"),
		"{name}", "'"+n.Queue+"'",
		"{now}", `CAST(round((julianday('now') - 2440587.5) * 86400000.0) AS INTEGER)`,
	)}
}

func (r sqliteReplacer) all(texts []string) []string {
	out := make([]string, len(texts))
	for i, t := range texts {
		out[i] = r.Replace(t)
	}
	return out
}
