package table

import (
	"context"
	"database/sql"
	"fmt"
	"time"

	"github.com/chanq/chanq/sqlbatch"
)

// CountLimit is the maximum of each count of Counts, for operators and samples.
const CountLimit = 10_000

// Counts are the messages of a queue by state, as the Stats statement returns them.
type Counts struct {
	Ready, Scheduled, Leased, Dead, Done int
	OldestReady                          time.Duration
	Paused                               bool
}

// Scan reads the row of a Stats statement.
func (c *Counts) Scan(rows *sql.Rows) error {
	var oldest sql.NullInt64
	var paused sql.NullBool
	err := rows.Scan(&c.Ready, &c.Scheduled, &c.Leased, &c.Dead, &c.Done, &oldest, &paused)
	c.OldestReady, c.Paused = time.Duration(oldest.Int64)*time.Millisecond, paused.Bool
	return err
}

// Stored is the row of a queue in the database.
type Stored struct {
	Version    int   // 0: the queue does not exist
	MinVersion int   // the minimum version of a program that may use it
	Features   int64 // features that a program must know to use it
	Paused     bool
	Slots      int // of an ordered queue
	Policy     sqlbatch.Policy

	ShardIndex, ShardCount int
	ShardSet               string

	PausedAt              sql.NullInt64
	PausedBy, PauseReason sql.NullString

	Identity string // of this queue in this database
}

// Scan reads the row of a Version statement.
func (s *Stored) Scan(rows *sql.Rows) error {
	var kind int
	var retain, retainDead int64
	p := &s.Policy
	err := rows.Scan(&s.Version, &s.MinVersion, &s.Features, &s.Paused, &kind, &s.Slots,
		&p.Holds, &p.MaxKeys, &p.MaxAttempts, &p.MaxBody, &retain, &retainDead, &s.ShardIndex, &s.ShardCount,
		&s.ShardSet,
		&s.PausedAt, &s.PausedBy, &s.PauseReason, &s.Identity)
	p.Retain, p.RetainDead = time.Duration(retain)*time.Millisecond, time.Duration(retainDead)*time.Millisecond
	return err
}

// Unusable returns why a program of this version must not use the queue, or nil.
func (s *Stored) Unusable() error {
	switch unknown := s.Features &^ sqlbatch.Features; {
	case s.MinVersion > sqlbatch.Version:
		return fmt.Errorf("the schema's version is %d, for programs of version %d or later, and this one is of "+
			"version %d; upgrade this program", s.Version, s.MinVersion, sqlbatch.Version)
	case unknown != 0:
		return fmt.Errorf("the schema's version is %d, with features (%#x) that this program of version %d does not "+
			"know; upgrade this program", s.Version, unknown, sqlbatch.Version)
	}
	return nil
}

// ByID returns a function that runs a statement for messages, such as sqlbatch.Queue.Cancel. It returns the IDs of
// those that the statement found.
func ByID[ID ~[16]byte](ctx context.Context, ids []ID,
	build func(sqlbatch.Queue, [][16]byte) sqlbatch.Statement) func(Insert) ([]ID, error) {
	return func(in Insert) (found []ID, err error) {
		err = EachChunk(in.Dialect, ids, func(chunk [][16]byte) error {
			return in.Run(ctx, build(in.Build, chunk), func(rows *sql.Rows) error {
				var raw sql.RawBytes
				err := rows.Scan(&raw)
				found = append(found, ID(id(raw)))
				return err
			})
		})
		return found, err
	}
}

// EachChunk calls do with chunks of ids, each as large as one statement allows.
func EachChunk[ID ~[16]byte](d sqlbatch.Dialect, ids []ID, do func(chunk [][16]byte) error) error {
	for len(ids) > 0 {
		n := min(len(ids), d.Traits().FindIDs)
		chunk := make([][16]byte, n)
		for i := range chunk {
			chunk[i] = ids[i]
		}
		ids = ids[n:]
		if err := do(chunk); err != nil {
			return err
		}
	}
	return nil
}
