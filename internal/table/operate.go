package table

import (
	"database/sql"
	"time"

	"github.com/chanq/chanq/sqlbatch"
)

// CountLimit bounds each count of Counts, where operators and samples ask for them.
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

// Stored is what the database keeps of a queue.
type Stored struct {
	Version                int // 0: there is no such queue
	Paused, Slots, Holds   int
	ShardIndex, ShardCount int
	ShardSet               string
}

// Scan reads the row of a Version statement.
func (s *Stored) Scan(rows *sql.Rows) error {
	return rows.Scan(&s.Version, &s.Paused, &s.Slots, &s.Holds, &s.ShardIndex, &s.ShardCount, &s.ShardSet)
}

// EachChunk calls do with chunks of ids, of as many as one statement may name.
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
