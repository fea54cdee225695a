package main

import (
	"context"
	"database/sql"
	"fmt"
	"strings"
	"time"

	"github.com/chanq/chanq/bench/internal/measure"
	"github.com/chanq/chanq/chanqadmin"
	"github.com/chanq/chanq/sqlbatch"
)

// beginOperation measures operations on all messages of a table, which run in many statements: the
// cost per row must not depend on the number of rows. Each measurement fills its own table.
func beginOperation(_ context.Context, o options, axis string, _ []int) (growthRun, error) {
	operation := operations[axis]
	return growthRun{measure: func(ctx context.Context, size int) ([]measure.Result, error) {
		r := newResult(o, "chanq")
		r.N = size
		err := onFilled(ctx, o, &r, func(s *store) error {
			if err := s.end(ctx, operation.state); err != nil {
				return err
			}
			queue, err := chanqadmin.Open(ctx, s.db, s.place.Queue, s.config())
			if err != nil {
				return err
			}
			c, err := timed(ctx, s, fmt.Sprintf("%s of %d", axis, size), func(ctx context.Context) error {
				n, err := operation.run(ctx, s, queue)
				if err == nil && n != size {
					err = fmt.Errorf("%s of %d messages of %d", axis, n, size)
				}
				return err
			})
			n := float64(size)
			r.WallPerMsg, r.CPUPerMsg, r.StatementsPerMessage = 1e6*c.Seconds/n, 1e6*c.CPU/n, c.Statements/n
			return err
		})
		return []measure.Result{r}, err
	}}, nil
}

var operations = map[string]struct {
	state sqlbatch.State
	run   func(context.Context, *store, *chanqadmin.Queue) (int, error)
}{
	"purge": {sqlbatch.Ready, func(ctx context.Context, _ *store, q *chanqadmin.Queue) (int, error) {
		done, err := q.Purge(ctx, chanqadmin.Select{State: chanqadmin.StateReady, All: true}, chanqadmin.Change{})
		return done.Messages, err
	}},
	"redrive": {sqlbatch.Dead, func(ctx context.Context, _ *store, q *chanqadmin.Queue) (int, error) {
		done, err := q.Redrive(ctx, chanqadmin.Select{All: true}, chanqadmin.Change{})
		return done.Messages, err
	}},
	"trim": {sqlbatch.Done, func(ctx context.Context, s *store, _ *chanqadmin.Queue) (int, error) {
		return s.trim(ctx)
	}},
}

// trim does the trim of a consumer without waiting a minute.
func (s *store) trim(ctx context.Context) (total int, err error) {
	const step = 1000
	for after := int64(0); ; {
		deleted := 0
		st := s.sql.Trim(sqlbatch.Done, time.Millisecond, step, after)
		rows, err := s.db.QueryContext(ctx, st.Text, st.Args...)
		if err != nil {
			return total, err
		}
		for ; rows.Next(); deleted++ {
			var id sql.RawBytes
			var place int64
			if err := rows.Scan(&id, &place); err != nil {
				_ = rows.Close()
				return total, err
			}
			after = max(after, place)
		}
		if err := rows.Err(); err != nil {
			return total, err
		}
		if total += deleted; deleted < step {
			return total, nil
		}
	}
}

// end moves all live messages to the dead or the done table, with their due times as their ends.
func (s *store) end(ctx context.Context, state sqlbatch.State) error {
	if state.Live() {
		return nil
	}
	live := s.liveTable()
	ended, kind := strings.TrimRight(live, `"]`)+"__"+string(state)+live[len(live)-1:], "cause"
	if state == sqlbatch.Done {
		kind = "outcome"
	}
	texts := []string{
		`INSERT INTO ` + ended + ` (id, priority, enqueued_at, ended_at, fence, attempts, body, ` + kind + `) SELECT id, priority, enqueued_at, due_at, fence, attempts, body, 1 FROM ` + live,
		`DELETE FROM ` + live,
	}
	switch s.place.Engine {
	case "postgres":
		texts = append(texts, `VACUUM ANALYZE `+live, `VACUUM ANALYZE `+ended)
	case "sqlite":
		texts = append(texts, `PRAGMA wal_checkpoint(TRUNCATE)`)
	}
	for _, text := range texts {
		if _, err := s.db.ExecContext(ctx, text); err != nil {
			return err
		}
	}
	return nil
}
