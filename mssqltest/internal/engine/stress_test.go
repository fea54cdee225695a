package engine

import (
	"context"
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sync/errgroup"

	"github.com/chanq/chanq/mssqltest/internal/tds"
)

// checkTable requires that every index has exactly the live rows that its filter includes, each under its own key, and
// that nothing else is left.
func checkTable(t *testing.T, tbl *table) {
	t.Helper()
	for _, ix := range tbl.indexes {
		want := tbl.live
		if ix.filter != nil {
			want = 0
			for l := tbl.base().tree.first; l != nil; l = l.next {
				for _, rec := range l.recs {
					if key, err := ix.keyOf(rec.head.row, rec.id); err == nil && key != "" {
						want++
					}
				}
			}
		}
		require.Equal(t, want, ix.tree.count, ix.name)
		for l := ix.tree.first; l != nil; l = l.next {
			for i, rec := range l.recs {
				require.NotNil(t, rec.head.row)
				require.Nil(t, rec.head.prev, "old versions are gone")
				require.Equal(t, rec.head.key(ix), lockKey(l.keys[i]))
				key, err := ix.keyOf(rec.head.row, rec.id)
				require.NoError(t, err)
				require.Equal(t, key, lockKey(l.keys[i]))
			}
		}
	}
}

// TestTransfersKeepTheSum moves amounts between rows in several sessions, in an order that provokes deadlocks, with
// rollbacks in between. Meanwhile readers at different levels add up: each consistent snapshot has the same sum.
func TestTransfersKeepTheSum(t *testing.T) {
	for _, o := range []Options{{}, {ReadCommittedSnapshot: true, AllowSnapshotIsolation: true}} {
		e := New(o)
		setup := e.NewSession(tds.Login{ODBC: true})
		run := func(s *Session, text string) *recorder {
			w := &recorder{}
			require.NoError(t, s.Run(context.Background(), &tds.Request{Kind: tds.Batch, Text: text}, w))
			return w
		}
		const rows, each = 8, 100
		run(setup, "CREATE TABLE dbo.acc (id int PRIMARY KEY, amount int NOT NULL, pad int NULL); CREATE INDEX IX ON dbo.acc (amount)")
		for i := range rows {
			run(setup, fmt.Sprintf("INSERT dbo.acc VALUES (%d, %d, 0)", i, each))
		}
		group, ctx := errgroup.WithContext(t.Context())
		for w := range 6 {
			group.Go(func() error {
				s := e.NewSession(tds.Login{ODBC: true})
				defer s.Close()
				rng := rand.New(rand.NewPCG(uint64(w), 7))
				for range 60 {
					if ctx.Err() != nil {
						return nil
					}
					a, b, n := rng.IntN(rows), rng.IntN(rows), rng.IntN(9)
					end := "COMMIT"
					if rng.IntN(4) == 0 {
						end = "ROLLBACK"
					}
					text := fmt.Sprintf(`SET XACT_ABORT ON; BEGIN TRAN;
UPDATE dbo.acc SET amount = amount - %[3]d WHERE id = %[1]d;
UPDATE dbo.acc WITH (ROWLOCK) SET amount = amount + %[3]d WHERE id = %[2]d; %[4]s`, a, b, n, end)
					out := &recorder{}
					if err := s.Run(context.Background(), &tds.Request{Kind: tds.Batch, Text: text}, out); err != nil {
						return err
					}
					if n := out.number(); n != 0 && n != 1205 {
						return out.errors[0]
					}
				}
				return nil
			})
		}
		level := "SERIALIZABLE"
		if o.AllowSnapshotIsolation {
			level = "SNAPSHOT"
		}
		group.Go(func() error {
			s := e.NewSession(tds.Login{ODBC: true})
			defer s.Close()
			for range 30 {
				out := &recorder{}
				if err := s.Run(context.Background(), &tds.Request{Kind: tds.Batch, Text: "SET TRANSACTION ISOLATION LEVEL " + level + "; SET DEADLOCK_PRIORITY HIGH; SELECT amount FROM dbo.acc"}, out); err != nil {
					return err
				}
				if out.number() == 1205 {
					continue
				}
				var sum int64
				for _, amount := range out.values() {
					sum += amount.(int64)
				}
				if sum != rows*each {
					return fmt.Errorf("sum %d", sum)
				}
			}
			return nil
		})
		require.NoError(t, group.Wait())
		setup.Close()
		require.Empty(t, e.Locks())
		checkTable(t, e.db.object("dbo", "acc").table)
	}
}

// TestPollersShareAQueue claims with READPAST by the secondary index in some sessions while others settle by the
// clustered index: each row is claimed once and none is lost.
func TestPollersShareAQueue(t *testing.T) {
	for _, o := range []Options{{}, {ReadCommittedSnapshot: true}} {
		e := New(o)
		setup := e.NewSession(tds.Login{ODBC: true})
		defer setup.Close()
		w := &recorder{}
		require.NoError(t, setup.Run(context.Background(), &tds.Request{Kind: tds.Batch, Text: itemsTable}, w))
		require.Empty(t, w.errors)
		const total, producers, pollers = 400, 2, 3
		taken := make([]map[int64]int, pollers)
		group, ctx := errgroup.WithContext(t.Context())
		for p := range producers {
			group.Go(func() error {
				s := e.NewSession(tds.Login{ODBC: true})
				defer s.Close()
				for i := p; i < total && ctx.Err() == nil; i += producers {
					out := &recorder{}
					if err := s.Run(context.Background(), &tds.Request{Kind: tds.Batch, Text: fmt.Sprintf("INSERT dbo.items WITH (ROWLOCK) (id, due) VALUES (%d, %d)", i, i%7)}, out); err != nil {
						return err
					}
					if len(out.errors) > 0 {
						return out.errors[0]
					}
				}
				return nil
			})
		}
		left := make(chan struct{}, total)
		for range total {
			left <- struct{}{}
		}
		for p := range pollers {
			taken[p] = map[int64]int{}
			group.Go(func() error {
				s := e.NewSession(tds.Login{ODBC: true})
				defer s.Close()
				const claim = `SET NOCOUNT, XACT_ABORT ON;
WITH c AS (SELECT TOP (5) id, due, note FROM dbo.items WITH (UPDLOCK, READPAST, ROWLOCK, INDEX (IX_items_due), FORCESEEK) WHERE due < 100 ORDER BY due, id)
UPDATE c SET due = due + 1000, note = 'leased' OUTPUT inserted.id`
				for len(left) > 0 && ctx.Err() == nil {
					out := &recorder{}
					if err := s.Run(context.Background(), &tds.Request{Kind: tds.Batch, Text: claim}, out); err != nil {
						return err
					}
					if len(out.errors) > 0 {
						return out.errors[0]
					}
					for _, id := range out.values() {
						taken[p][id.(int64)]++
						ack := &recorder{}
						if err := s.Run(context.Background(), &tds.Request{Kind: tds.Batch, Text: fmt.Sprintf("DELETE q OUTPUT deleted.id FROM (VALUES (%d)) AS a (id) INNER JOIN dbo.items AS q WITH (ROWLOCK, INDEX (PK_items), FORCESEEK) ON q.id = a.id", id)}, ack); err != nil {
							return err
						}
						if len(ack.errors) > 0 || len(ack.values()) != 1 {
							return fmt.Errorf("ack of %v: %v %v", id, ack.errors, ack.values())
						}
						<-left
					}
				}
				return nil
			})
		}
		require.NoError(t, group.Wait())
		seen := map[int64]int{}
		for _, m := range taken {
			for id, n := range m {
				seen[id] += n
			}
		}
		require.Len(t, seen, total)
		for id, n := range seen {
			require.Equal(t, 1, n, id)
		}
		require.Empty(t, e.Locks())
		checkTable(t, e.db.object("dbo", "items").table)
	}
}
