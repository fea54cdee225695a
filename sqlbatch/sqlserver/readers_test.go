package sqlserver_test

import (
	"context"
	"database/sql"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/chanq/chanq"
	"github.com/chanq/chanq/mssqltest"
	"github.com/chanq/chanq/prove/testdb"
	"github.com/chanq/chanq/sqlbatch"
	"github.com/chanq/chanq/sqlbatch/internal/suite"
	"github.com/chanq/chanq/sqlbatch/sqlserver"
)

// Readers of other programs that keep shared locks: a report at REPEATABLE READ or SERIALIZABLE.

// besideReaders has a plain and an ordered queue, and a reader, in a bubble.
type besideReaders struct {
	*testing.T
	ctx    context.Context
	server *mssqltest.Server
	orders *chanq.Queue[int]
	table  string
}

// eachQueueBesideReaders runs a test with queues of both kinds, and with READ_COMMITTED_SNAPSHOT off and on.
func eachQueueBesideReaders(t *testing.T, test func(w *besideReaders)) {
	testdb.Emulator.Require(t)
	t.Parallel()
	for _, rcsi := range []bool{false, true} {
		for _, spec := range []chanq.Spec{{}, {Kind: chanq.KindOrdered, Slots: 4}} {
			t.Run(fmt.Sprintf("%v, snapshots=%v", spec.Kind, rcsi), func(t *testing.T) {
				t.Parallel()
				inBubble(t, func(t *testing.T) {
					w := &besideReaders{T: t, ctx: testdb.Soon(t), table: "dbo.chanq_orders"}
					w.server = mssqltest.Start(t, mssqltest.Options{InMemory: true, ReadCommittedSnapshot: rcsi})
					cfg := chanq.Config{Spec: spec}
					require.NoError(t, chanq.Migrate(w.ctx, w.server.DB(), "orders", cfg))
					var err error
					w.orders, err = chanq.Open[int](w.ctx, w.server.DB(), "orders", cfg)
					require.NoError(t, err)
					test(w)
				})
			})
		}
	}
}

// read holds the locks of a query until end, or the end of the test. %s is the table.
func (w *besideReaders) read(query string, args ...any) (end func()) {
	w.Helper()
	tx, err := connect(w.T, w.server.DSN()).BeginTx(w.ctx, nil)
	require.NoError(w, err)
	end = func() { _ = tx.Rollback() }
	w.Cleanup(end)
	_, err = suite.Rows(w.ctx, tx, sqlbatch.Statement{Text: fmt.Sprintf(query, w.table), Args: args})
	require.NoError(w, err)
	return end
}

func (w *besideReaders) send(first, last int) { send(w.T, w.ctx, w.orders, first, last) }

// receive receives n leases without settling them.
func (w *besideReaders) receive(c *chanq.Consumer[int], n int) (leases []*chanq.Lease[int]) {
	w.Helper()
	for range n {
		leases = append(leases, testdb.Receive(w, c.C(), fmt.Sprintf("a message after %d", len(leases))))
	}
	return leases
}

// TestLaterMessagesArriveWhileAReaderHasLockedEarlierOnes: they arrive within a second, and the locked ones after the reader has ended.
func TestLaterMessagesArriveWhileAReaderHasLockedEarlierOnes(t *testing.T) {
	for name, query := range map[string]string{
		"repeatable read": "SELECT COUNT(*) FROM %s WITH (REPEATABLEREAD) WHERE attempts < 3",
		"first row":       "SELECT TOP (1) body FROM %s WITH (REPEATABLEREAD) ORDER BY id",
		"hold lock":       "SELECT TOP (3) body FROM %s WITH (HOLDLOCK) ORDER BY id",
	} {
		t.Run(name, func(t *testing.T) {
			eachQueueBesideReaders(t, func(w *besideReaders) {
				w.send(1, 10)
				end := w.read(query)
				w.send(11, 30)
				c := consume(w.T, w.ctx, w.orders, chanq.ConsumerConfig{})
				began, later, got := time.Now(), 0, map[int]bool{}
				for later < 20 {
					l := testdb.Receive(w, c.C(), "a later message")
					require.NoError(w, l.Ack())
					if got[l.Body] = true; l.Body > 10 {
						later++
					}
				}
				require.Less(w, time.Since(began), time.Second)
				end()
				began = time.Now()
				for len(got) < 30 {
					l := testdb.Receive(w, c.C(), "an earlier message")
					require.NoError(w, l.Ack())
					got[l.Body] = true
				}
				require.Less(w, time.Since(began), 3*time.Second)
				w.shutdown(c)
			})
		})
	}
}

func (w *besideReaders) shutdown(c *chanq.Consumer[int]) {
	w.Helper()
	require.NoError(w, c.Shutdown(w.ctx))
}

// lockOne makes a reader lock the row of one lease.
func (w *besideReaders) lockOne(l *chanq.Lease[int]) (end func()) {
	return w.read("SELECT body FROM %s WITH (REPEATABLEREAD) WHERE id = @p1", l.ID[:])
}

// TestFreeRowsAreSettledWhileAReaderHasLockedAnother: of a batch of settles, those whose rows are free take two waits for a lock, and the other one follows.
func TestFreeRowsAreSettledWhileAReaderHasLockedAnother(t *testing.T) {
	for name, settle := range map[string]func(*chanq.Lease[int]) error{
		"ack":         (*chanq.Lease[int]).Ack,
		"nack":        func(l *chanq.Lease[int]) error { return l.Nack(chanq.RetryAfter(time.Hour, nil)) },
		"snooze":      func(l *chanq.Lease[int]) error { return l.Settle(chanq.Snooze(time.Hour, nil)) },
		"dead-letter": func(l *chanq.Lease[int]) error { return l.Nack(chanq.DeadLetter(context.Canceled)) },
	} {
		t.Run(name, func(t *testing.T) {
			eachQueueBesideReaders(t, func(w *besideReaders) {
				w.send(1, 100)
				c := consume(w.T, w.ctx, w.orders, chanq.ConsumerConfig{Prefetch: 100})
				leases := w.receive(c, 100)
				end := w.lockOne(leases[50])
				began := time.Now()
				for _, l := range leases {
					require.NoError(w, settle(l))
				}
				for i, l := range leases {
					if i != 50 {
						require.NoError(w, l.Wait(w.ctx))
					}
				}
				require.LessOrEqual(w, time.Since(began), 2*sqlbatch.LockWait)
				time.AfterFunc(20*time.Second, end)
				require.NoError(w, leases[50].Wait(w.ctx), "its lease was extended until then")
				w.shutdown(c)
			})
		})
	}
}

// TestLaterMessagesAreSettledDuringACount: a count of all messages locks the entries of one index. Later messages are settled before it ends,
// and the counted ones afterwards.
func TestLaterMessagesAreSettledDuringACount(t *testing.T) {
	for _, index := range []string{"IX_chanq_orders__due", "PK_chanq_orders"} {
		t.Run(index, func(t *testing.T) {
			eachQueueBesideReaders(t, func(w *besideReaders) {
				w.send(1, 300)
				c := consume(w.T, w.ctx, w.orders, chanq.ConsumerConfig{Prefetch: 300})
				counted := w.receive(c, 300)
				end := w.read("SELECT COUNT(*) FROM %s WITH (REPEATABLEREAD, INDEX (" + index + "))")
				w.send(301, 320)
				began := time.Now()
				for _, l := range counted {
					require.NoError(w, l.Ack())
				}
				for range 20 {
					l := w.receive(c, 1)[0]
					require.NoError(w, l.Ack())
					require.NoError(w, l.Wait(w.ctx))
				}
				require.Less(w, time.Since(began), time.Second)
				time.AfterFunc(20*time.Second, end)
				for _, l := range counted {
					require.NoError(w, l.Wait(w.ctx))
				}
				w.shutdown(c)
			})
		})
	}
}

// TestLeasesAreExtendedWhileAReaderHasLockedARow: a locked row costs no other lease its extension, nor its own if the reader ends in time.
func TestLeasesAreExtendedWhileAReaderHasLockedARow(t *testing.T) {
	eachQueueBesideReaders(t, func(w *besideReaders) {
		w.send(1, 100)
		c := consume(w.T, w.ctx, w.orders, chanq.ConsumerConfig{Prefetch: 100, LeaseFor: 6 * time.Second})
		leases := w.receive(c, 100)
		end := w.lockOne(leases[50])
		time.Sleep(4500 * time.Millisecond)
		end()
		time.Sleep(4500 * time.Millisecond)
		end = w.lockOne(leases[50])
		time.Sleep(20 * time.Second)
		for i, l := range leases {
			if i == 50 {
				require.ErrorIs(w, l.Context().Err(), context.Canceled, "the reader did not end before the lease")
			} else {
				require.NoError(w, l.Context().Err())
				require.NoError(w, l.Ack())
				require.NoError(w, l.Wait(w.ctx))
			}
		}
		end()
		w.shutdown(c)
	})
}

// TestAPipeReplacesInputsWhileAReaderHasLockedARow: the inputs whose rows are free become outputs.
func TestAPipeReplacesInputsWhileAReaderHasLockedARow(t *testing.T) {
	eachQueueBesideReaders(t, func(w *besideReaders) {
		require.NoError(w, chanq.Migrate(w.ctx, w.server.DB(), "bills", chanq.Config{}))
		bills, err := chanq.Open[int](w.ctx, w.server.DB(), "bills", chanq.Config{})
		require.NoError(w, err)
		w.send(1, 40)
		from, to := consume(w.T, w.ctx, w.orders, chanq.ConsumerConfig{}), consume(w.T, w.ctx, bills, chanq.ConsumerConfig{})
		var end func()
		begun := make(chan struct{}, 40)
		locked := make(chan struct{})
		piped := make(chan error, 1)
		go func() {
			piped <- chanq.Pipe(from, bills, 40, func(ctx context.Context, l *chanq.Lease[int]) ([]chanq.Message[int], error) {
				if l.Body == 20 {
					end = w.lockOne(l)
					close(locked)
				}
				begun <- struct{}{}
				<-locked
				return []chanq.Message[int]{{Body: l.Body}}, nil
			})
		}()
		for range 40 {
			testdb.Receive(w, begun, "an input")
		}
		began := time.Now()
		for _, l := range w.receive(to, 39) {
			require.NotEqual(w, 20, l.Body)
			require.NoError(w, l.Ack())
		}
		require.Less(w, time.Since(began), time.Second)
		end()
		require.Equal(w, 20, w.receive(to, 1)[0].Body)
		from.Stop()
		require.NoError(w, testdb.Receive(w, piped, "the end of the pipe"))
		w.shutdown(from)
	})
}

// TestSendsWaitForAReaderOfTheRangeAndSayWhy: they wait while a reader at SERIALIZABLE holds the range of new messages, and are stored after it.
func TestSendsWaitForAReaderOfTheRangeAndSayWhy(t *testing.T) {
	eachQueueBesideReaders(t, func(w *besideReaders) {
		w.send(1, 1)
		end := w.read("SELECT COUNT(*) FROM %s WITH (SERIALIZABLE) WHERE attempts < 3")
		names := sqlbatch.Names{Queue: "orders"}
		if w.orders.Spec().Kind == chanq.KindOrdered {
			names.Slots = w.orders.Spec().Slots
		}
		began := time.Now()
		_, err := suite.Rows(w.ctx, w.server.DB(), sqlserver.Dialect.Queue(names).Enqueue(makeRows(1, 0)))
		require.Equal(w, int32(1222), numberOf(err), "undone, and it says why")
		require.Equal(w, sqlbatch.LockWait, time.Since(began))
		stored := make(chan error, 1)
		go func() {
			_, err := w.orders.Send(w.ctx, chanq.Message[int]{Body: 3})
			stored <- err
		}()
		time.Sleep(2 * time.Second)
		end()
		began = time.Now()
		require.NoError(w, testdb.Receive(w, stored, "the send"))
		require.Less(w, time.Since(began), 2*time.Second)
	})
}

// TestOperatorsChangeMessagesWhileAReaderHasLockedOne: they change the other messages.
func TestOperatorsChangeMessagesWhileAReaderHasLockedOne(t *testing.T) {
	for _, n := range []sqlbatch.Names{suite.Orders, suite.Ordered} {
		q := &queue{sqlserver.Dialect.Queue(n), mssqltest.Start(t, mssqltest.Options{Clock: mssqltest.Stopped(), InMemory: true}), t}
		testdb.Emulator.Require(t)
		testdb.MigrateTables(t, sqlserver.Dialect, q.DB(), n)
		ctx := testdb.Soon(t)
		beside := func(table string, id [16]byte, run func()) {
			tx := begin(t, ctx, q)
			_, err := suite.Rows(ctx, tx, sqlbatch.Statement{Text: "SELECT body FROM dbo." + table + " WITH (REPEATABLEREAD) WHERE id = @p1", Args: []any{id[:]}})
			require.NoError(t, err)
			run()
			require.NoError(t, tx.Rollback())
		}
		rows := makeRows(3, 0)
		var ids [][16]byte
		for _, r := range rows {
			ids = append(ids, r.ID)
		}
		rest := func(of [][]any) (list [][16]byte) {
			for _, r := range of {
				list = append(list, suite.IDOf(r[0]))
			}
			slices.SortFunc(list, func(a, b [16]byte) int { return slices.Compare(a[:], b[:]) })
			return list
		}
		others := [][16]byte{ids[0], ids[2]}
		die := func() {
			q.exec(q.Enqueue(rows))
			items := suite.Items(q.rows(q.Look(ids)), 1)
			require.Len(t, q.rows(suite.Settles(q.Queue, items...)["dead-letter"]), 3)
			q.Clock().Advance(time.Second)
		}
		q.exec(q.Enqueue(rows))
		beside("chanq_orders", ids[1], func() {
			require.Equal(t, others, rest(q.rows(q.Purge(sqlbatch.Ready, 10, sqlbatch.Window{}))))
		})
		q.rows(q.Cancel(ids))
		for name, st := range map[string]sqlbatch.Statement{
			"purge":   q.Purge(sqlbatch.Dead, 10, sqlbatch.Window{}),
			"trim":    q.Trim(sqlbatch.Dead, 0, 10, 0),
			"redrive": q.Redrive(10, nil, sqlbatch.Window{}),
		} {
			die()
			beside("chanq_orders__dead", ids[1], func() { require.Equal(t, others, rest(q.rows(st)), name) })
			q.rows(q.Cancel(ids))
			q.rows(q.Discard(ids))
		}
	}
}

// TestMarksAndSlotsPassRowsThatAReaderHasLocked: the statement changes the other rows, without a wait.
func TestMarksAndSlotsPassRowsThatAReaderHasLocked(t *testing.T) {
	eachReading(t, 2, func(t *testing.T, q *ordered) {
		ctx := testdb.Soon(t)
		q.fill(0, 3)
		rows := q.rows(sqlbatch.Statement{Text: "SELECT id, fence FROM dbo.chanq_orders ORDER BY seq"})
		var marks []sqlbatch.MarkItem
		for _, item := range suite.Items(rows, 1) {
			marks = append(marks, sqlbatch.MarkItem{Item: item, SlotFence: q.fences[0]})
		}
		lock := func(what string, args ...any) *sql.Tx {
			tx := begin(t, ctx, q.queue)
			_, err := suite.Rows(ctx, tx, sqlbatch.Statement{Text: what, Args: args})
			require.NoError(t, err)
			return tx
		}
		reader := lock("SELECT body FROM dbo.chanq_orders WITH (REPEATABLEREAD) WHERE id = @p1", marks[1].ID[:])
		require.Len(t, q.rows(q.MarkOrdered(q.consumer, marks)), 2)
		require.NoError(t, reader.Rollback())
		require.Len(t, q.rows(q.MarkOrdered(q.consumer, marks[1:2])), 1)

		reader = lock("SELECT fence FROM dbo.chanq__slots WITH (REPEATABLEREAD) WHERE queue = 'orders' AND slot = 1")
		require.Len(t, q.rows(q.TakeSlots(q.consumer, 1, []int{0, 1})), 1)
		require.NoError(t, reader.Rollback())
	})
	q := newQueue(t, mssqltest.Options{Clock: mssqltest.Stopped()})
	q.exec(q.Enqueue(makeRows(1, 0)))
	q.leased(1)
	q.Clock().Advance(time.Hour)
	reader := begin(t, testdb.Soon(t), q)
	_, err := suite.Rows(context.Background(), reader, sqlbatch.Statement{Text: "SELECT id FROM dbo.chanq_orders WITH (REPEATABLEREAD)"})
	require.NoError(t, err)
	rescue := q.Rescue(sqlbatch.RescueParams{MaxCrashes: 8})
	require.Empty(t, q.rows(rescue))
	require.NoError(t, reader.Rollback())
	require.Len(t, q.rows(rescue), 1)
}
