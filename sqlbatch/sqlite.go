package sqlbatch

import "errors"

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
		OneWriter: true, Prepare: true, PrepareTells: true, Schema: "main",
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
			// SQLite has no code of its own for a missing table, nor for a connection
			// that is in a transaction already, nor for a function that fails in
			// somebody's trigger. What fails in the run is undone.
			if ran := (*RunError)(nil); errors.As(err, &ran) {
				return Refused
			}
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
