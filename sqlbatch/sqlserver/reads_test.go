package sqlserver_test

import (
	"context"
	"database/sql"
	"fmt"
	"maps"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/chanq/chanq/mssqltest"
	"github.com/chanq/chanq/prove/testdb"
	"github.com/chanq/chanq/sqlbatch"
	"github.com/chanq/chanq/sqlbatch/internal/suite"
	"github.com/chanq/chanq/sqlbatch/sqlserver"
)

// Reads by owners of slots during open transactions.

// owned returns slots with their fences.
func (q *ordered) owned(slots ...int) (list []sqlbatch.OwnedSlot) {
	for _, slot := range slots {
		list = append(list, sqlbatch.OwnedSlot{Slot: slot, Fence: q.fences[slot]})
	}
	return list
}

func (q *ordered) readOf(slots ...int) sqlbatch.ReadParams {
	return sqlbatch.ReadParams{Consumer: q.consumer, Slots: q.owned(slots...), Upto: math.MaxInt64, Rows: 1000, Behind: 1000, Inline: sqlbatch.MaxBody}
}

// seen is what a read has returned, by number: the bodies of messages with contents, and the numbers of locked ones.
type seen struct {
	bodies      []byte
	locked      []int64
	drawn, upto int64
}

func (q *ordered) see(st sqlbatch.Statement) (s seen, err error) {
	q.t.Helper()
	rows, err := suite.Rows(context.Background(), q.DB(), st)
	if err != nil {
		return s, err
	}
	last := rows[len(rows)-1]
	require.Nil(q.t, last[0])
	require.Equal(q.t, int64(1), last[1], "it was walked")
	s.drawn, s.upto = last[2].(int64), last[7].(int64)
	s.bodies = bodiesOf(q.t, rows)
	for _, row := range rows[:len(rows)-1] {
		if row[22] == int64(1) {
			require.Equal(q.t, []any{nil, nil, nil, nil, int64(0)}, append(row[9:13:13], row[21]), "it has no contents")
			s.locked = append(s.locked, row[15].(int64))
		}
	}
	slices.Sort(s.locked)
	return s, nil
}

// bodiesOf returns the bodies of an answer, by number.
func bodiesOf(t require.TestingT, rows [][]any) (bodies []byte) {
	rows = slices.DeleteFunc(slices.Clone(rows), func(row []any) bool { return row[0] == nil || row[21] == int64(0) })
	slices.SortFunc(rows, func(a, b []any) int { return int(a[15].(int64) - b[15].(int64)) })
	for _, row := range rows {
		bodies = append(bodies, row[12].(string)...)
	}
	return bodies
}

// requireRead reads, and requires these bodies, and these messages as locked ones.
func (q *ordered) requireRead(r sqlbatch.ReadParams, want, locked []byte) {
	q.t.Helper()
	s, err := q.see(q.Read(r))
	require.NoError(q.t, err)
	require.Equal(q.t, want, s.bodies)
	require.Equal(q.t, q.numbers(locked...), s.locked)
	require.EqualValues(q.t, int64(math.MaxInt64), s.upto)
}

// numbers returns the numbers of messages, committed or not.
func (q *ordered) numbers(bodies ...byte) (list []int64) {
	q.t.Helper()
	for _, n := range bodies {
		rows := q.rows(sqlbatch.Statement{Text: fmt.Sprintf("SELECT seq FROM dbo.chanq_orders WITH (READUNCOMMITTED) WHERE body = 0x%02x", n)})
		require.Len(q.t, rows, 1)
		list = append(list, rows[0][0].(int64))
	}
	return list
}

// requireWaits requires that the read fails after it has waited for a lock.
func (q *ordered) requireWaits(st sqlbatch.Statement) {
	q.t.Helper()
	_, err := q.see(st)
	require.Equal(q.t, int32(1222), numberOf(err), "%v", err)
	require.Equal(q.t, sqlbatch.RolledBack, sqlserver.Dialect.Classify(err))
}

func (q *ordered) refillOf(keys []string, slots ...int) sqlbatch.ReadParams {
	return sqlbatch.ReadParams{Consumer: q.consumer, Slots: q.owned(slots...), Upto: math.MaxInt64, Rows: 1000, Keys: keys, Inline: sqlbatch.MaxBody}
}

func (q *ordered) clear() {
	q.t.Helper()
	q.exec(sqlbatch.Statement{Text: "DELETE FROM dbo.chanq_orders"})
	q.exec(sqlbatch.Statement{Text: "DELETE FROM dbo.chanq_orders__dead"})
	q.last = 0
}

// Each disturbance is a transaction on slot 0, whose message 1 is committed; message 2 is in slot 1, and 3 is dead, in slot 0. A read of
// slot 0 waits for a delete, and returns a message that was sent or changed as a locked one. A read of slot 1 meets neither. A read after
// the end of the transaction returns the messages that were committed then.
func TestAReadMissesNoRowOfAnOpenTransaction(t *testing.T) {
	for name, disturbance := range map[string]struct {
		begin                 func(q *ordered, tx *sql.Tx)
		committed, rolledBack []byte
		given, locked         []byte // of slot 0; if both are empty, the read waits
	}{
		"a delete":   {begin: func(q *ordered, tx *sql.Tx) { q.do(tx, 1, q.InTx().Ack(q.itemOf(0))) }, committed: []byte{2}, rolledBack: []byte{1, 2}},
		"an archive": {begin: func(q *ordered, tx *sql.Tx) { q.do(tx, 1, q.InTx().Archive(q.itemOf(0))) }, committed: []byte{2}, rolledBack: []byte{1, 2}},
		"a dead-letter": {begin: func(q *ordered, tx *sql.Tx) {
			q.do(tx, 1, q.InTx().DeadLetter([]sqlbatch.DeadLetterItem{{Item: q.itemOf(0)[0]}}))
		}, committed: []byte{2}, rolledBack: []byte{1, 2}},
		"a nack": {begin: func(q *ordered, tx *sql.Tx) { q.do(tx, 1, q.InTx().Nack([]sqlbatch.NackItem{{Item: q.itemOf(0)[0]}})) },
			committed: []byte{1, 2}, rolledBack: []byte{1, 2}, locked: []byte{1}},
		"an insert": {begin: func(q *ordered, tx *sql.Tx) { q.line(tx, q.InTx(), 0, "a", 1) }, committed: []byte{1, 2, 4}, rolledBack: []byte{1, 2}, given: []byte{1}, locked: []byte{4}},
		"an insert elsewhere": {begin: func(q *ordered, tx *sql.Tx) {
			q.do(tx, 0, sqlbatch.Statement{Text: "INSERT INTO dbo.chanq_orders (slot, body) VALUES (0, 0x05)"})
		}, committed: []byte{1, 2, 5}, rolledBack: []byte{1, 2}, given: []byte{1}, locked: []byte{5}},
		"a redrive": {begin: func(q *ordered, tx *sql.Tx) { q.do(tx, 1, q.InTx().Redrive(10, nil, sqlbatch.Window{})) },
			committed: []byte{1, 2, 3}, rolledBack: []byte{1, 2}, given: []byte{1}, locked: []byte{3}},
	} {
		t.Run(name, func(t *testing.T) {
			eachReading(t, 2, func(t *testing.T, q *ordered) {
				for _, commit := range []bool{true, false} {
					q.clear()
					q.line(q.DB(), q.Queue, 0, "a", 1)
					q.line(q.DB(), q.Queue, 1, "b", 1)
					q.line(q.DB(), q.Queue, 0, "c", 1)
					q.do(q.DB(), 1, q.DeadLetter([]sqlbatch.DeadLetterItem{{Item: q.itemOf(0)[1]}}))
					q.requireRead(q.readOf(0, 1), []byte{1, 2}, nil)
					tx := begin(t, t.Context(), q.queue)
					disturbance.begin(q, tx)
					if disturbance.locked == nil {
						q.requireWaits(q.Read(q.readOf(0, 1)))
						q.requireWaits(q.Read(q.readOf(0)))
					} else {
						q.requireRead(q.readOf(0, 1), slices.Sorted(slices.Values(append([]byte{2}, disturbance.given...))), disturbance.locked)
						q.requireRead(q.readOf(0), disturbance.given, disturbance.locked)
					}
					q.requireRead(q.readOf(1), []byte{2}, nil)
					want := disturbance.committed
					if commit {
						require.NoError(t, tx.Commit())
					} else {
						want = disturbance.rolledBack
						require.NoError(t, tx.Rollback())
					}
					s, err := q.see(q.Read(q.readOf(0, 1)))
					require.NoError(t, err)
					slices.Sort(s.bodies)
					require.Equal(t, want, s.bodies)
					require.Empty(t, s.locked)
				}
			})
		})
	}
}

// eachWay runs a part of a test with a read of several slots and with one of only slot 0.
func (q *ordered) eachWay(test func(slots ...int)) {
	test(0)
	test(0, 2)
}

// Slot 1 belongs to another consumer.
func TestAReadSkipsLockedRowsButNotRowsBeingDeleted(t *testing.T) {
	eachReading(t, 3, func(t *testing.T, q *ordered) {
		q.eachWay(func(slots ...int) {
			q.clear()
			q.line(q.DB(), q.Queue, 0, "a", 1)
			first, second, foreign, gone := begin(t, t.Context(), q.queue), begin(t, t.Context(), q.queue), begin(t, t.Context(), q.queue), begin(t, t.Context(), q.queue)
			q.line(first, q.InTx(), 0, "a", 2)
			q.line(q.DB(), q.Queue, 0, "b", 1)
			q.line(foreign, q.InTx(), 1, "a", 1)
			q.line(q.DB(), q.Queue, 0, "c", 1)
			q.line(second, q.InTx(), 0, "c", 1)
			q.line(q.DB(), q.Queue, 0, "a", 1)
			q.requireRead(q.readOf(slots...), []byte{1, 4, 6, 8}, []byte{2, 3, 7})

			s, err := q.see(q.Refill(q.refillOf([]string{"a"}, slots...)))
			require.NoError(t, err)
			require.Equal(t, []byte{1, 8}, s.bodies)
			require.Equal(t, q.numbers(2, 3), s.locked, "those of its key")
			require.EqualValues(t, int64(math.MaxInt64), s.upto)

			items := q.itemOf(0)
			for _, i := range []int{3, 4} { // 4 and 6, between the locked ones
				q.do(gone, 1, q.InTx().Ack(items[i:i+1]))
				q.requireWaits(q.Read(q.readOf(slots...)))
				q.requireWaits(q.Refill(q.refillOf([]string{"a"}, slots...)))
				require.NoError(t, gone.Rollback())
				q.requireRead(q.readOf(slots...), []byte{1, 4, 6, 8}, []byte{2, 3, 7})
				gone = begin(t, t.Context(), q.queue)
			}
			q.do(gone, 1, q.InTx().Ack(items[3:4]))
			require.NoError(t, gone.Commit())
			require.NoError(t, first.Rollback())
			q.requireRead(q.readOf(slots...), []byte{1, 6, 8}, []byte{7})
			require.NoError(t, second.Commit())
			require.NoError(t, foreign.Commit())
			q.requireRead(q.readOf(slots...), []byte{1, 6, 7, 8}, nil)
		})
	})
}

// A locked row has only the columns that identify it: the others might be old, or not committed.
func TestALockedRowHasItsColumnsOfOrder(t *testing.T) {
	eachReading(t, 3, func(t *testing.T, q *ordered) {
		q.eachWay(func(slots ...int) {
			q.clear()
			q.line(q.DB(), q.Queue, 0, "a", 1)
			before := q.rows(q.Read(q.readOf(slots...)))[0]
			tx := begin(t, t.Context(), q.queue)
			q.do(tx, 1, q.InTx().Nack([]sqlbatch.NackItem{{Item: q.itemOf(0)[0], Delay: time.Hour}}))
			for _, st := range []sqlbatch.Statement{q.Read(q.readOf(slots...)), q.Refill(q.refillOf([]string{"a"}, slots...))} {
				rows := q.rows(st)
				require.Len(t, rows, 2)
				require.Equal(t, before[0], rows[0][0])
				require.Equal(t, before[14:17], rows[0][14:17], "slot, seq, order_key")
				require.Equal(t, int64(1), rows[0][22])
			}
			require.NoError(t, tx.Rollback())
			q.requireRead(q.readOf(slots...), []byte{1}, nil)
		})
	})
}

// A read with more locked rows than it skips ends before the next one.
func TestAReadOfManyLockedRowsIsCut(t *testing.T) {
	eachReading(t, 3, func(t *testing.T, q *ordered) {
		q.eachWay(func(slots ...int) {
			q.clear()
			q.line(q.DB(), q.Queue, 0, "a", 1)
			tx := begin(t, t.Context(), q.queue)
			q.line(tx, q.InTx(), 0, "b", 150)
			q.line(q.DB(), q.Queue, 0, "b", 1)
			first := q.numbers(2)[0]
			r, refill := q.readOf(slots...), q.refillOf([]string{"a", "b"}, slots...)
			both := func(numbers int64, bodies []byte, upto int64) {
				t.Helper()
				for _, st := range []sqlbatch.Statement{q.Read(r), q.Refill(refill)} {
					s, err := q.see(st)
					require.NoError(t, err)
					require.Equal(t, bodies, s.bodies)
					require.Len(t, s.locked, int(numbers))
					require.Equal(t, upto, s.upto)
				}
			}
			both(100, []byte{1}, first+99)
			r.From, refill.From = first+99, first+99
			both(50, []byte{152}, math.MaxInt64)
			r.From, r.Cursor, refill.From = first+49, first+49, first+49
			both(100, []byte{152}, math.MaxInt64)

			// The locked rows up to the cursor and above it are counted separately. Rows up to the cursor have no contents.
			r.From, r.Cursor = 0, first+74
			s, err := q.see(q.Read(r))
			require.NoError(t, err)
			require.Len(t, s.locked, 150)
			require.EqualValues(t, int64(math.MaxInt64), s.upto)
			r.Cursor = first + 120
			s, err = q.see(q.Read(r))
			require.NoError(t, err)
			require.Len(t, s.locked, 100+29)
			require.Equal(t, []byte{152}, s.bodies, "above the cursor all rows were read")
			require.Equal(t, first+99, s.upto)

			require.NoError(t, tx.Rollback())
			r.From, r.Cursor, refill.From = 0, 0, 0
			both(0, []byte{1, 152}, math.MaxInt64)
		})
	})
}

// The dirty read does not find a row that was locked when its entry was read and then deleted. Only a committed delete makes it absent.
func TestARowWhoseDeleteIsOpenDuringAReadIsNotLeftOut(t *testing.T) {
	eachReading(t, 3, func(t *testing.T, q *ordered) {
		q.eachWay(func(slots ...int) {
			for _, ends := range []string{"committed", "rolled back", "rolled back at once"} {
				q.clear()
				q.line(q.DB(), q.Queue, 0, "a", 2)
				items := q.itemOf(0)
				nack, ack := begin(t, t.Context(), q.queue), begin(t, t.Context(), q.queue)
				q.do(nack, 1, q.InTx().Nack([]sqlbatch.NackItem{{Item: items[0]}}))
				reads := 0
				q.SetHooks(mssqltest.Hooks{Before: func(_ context.Context, st mssqltest.Statement) error {
					if !strings.Contains(st.Text, "@passed") || !strings.Contains(strings.Split(st.Text, "\n")[st.Line-1], "INSERT INTO @rows") {
						return nil
					}
					switch reads++; reads {
					case 3: // the dirty read; the first read skipped no rows, and the second read those that are not locked
						assert.NoError(t, nack.Rollback())
						q.do(ack, 1, q.InTx().Ack(items[:1]))
						if ends == "committed" {
							assert.NoError(t, ack.Commit())
						}
					case 4: // the others
						if ends == "rolled back at once" {
							assert.NoError(t, ack.Rollback())
						}
					}
					return nil
				}})
				s, err := q.see(q.Read(q.readOf(slots...)))
				q.SetHooks(mssqltest.Hooks{})
				require.Equal(t, 4, reads)
				switch ends {
				case "committed":
					require.NoError(t, err)
					require.Equal(t, []byte{2}, s.bodies)
					require.Empty(t, s.locked)
				case "rolled back at once":
					require.NoError(t, err)
					require.Equal(t, []byte{2}, s.bodies)
					require.Equal(t, q.numbers(1), s.locked)
				default:
					require.Equal(t, int32(1222), numberOf(err), "%v", err)
					require.NoError(t, ack.Rollback())
					q.requireRead(q.readOf(slots...), []byte{1, 2}, nil)
				}
			}
		})
	})
}

// Locked rows count for each limit.
func TestTheLimitsOfAReadCountLockedRows(t *testing.T) {
	eachReading(t, 3, func(t *testing.T, q *ordered) {
		q.eachWay(func(slots ...int) {
			q.clear()
			q.line(q.DB(), q.Queue, 0, "a", 1)
			tx := begin(t, t.Context(), q.queue)
			q.line(tx, q.InTx(), 0, "a", 2)
			q.line(q.DB(), q.Queue, 0, "a", 3)
			n := q.numbers(1, 2, 3, 4, 5, 6)
			for rows := range 7 {
				given := []byte{1, 4, 5, 6}[:max(min(rows, 1), rows-2)]
				locked := n[1:3][:min(2, max(0, rows-1))]
				r := q.readOf(slots...)
				r.Rows = rows
				s, err := q.see(q.Read(r))
				require.NoError(t, err)
				require.Equal(t, len(given), len(s.bodies), rows)
				require.Equal(t, len(locked), len(s.locked), rows)
				require.Equal(t, append([]int64{math.MaxInt64}, n...)[rows], s.upto)

				r.Rows, r.Behind, r.Cursor = 0, rows, n[5]
				all := q.rows(q.Read(r))
				require.Len(t, all, min(rows, 6)+1)
				require.Equal(t, append([]int64{math.MaxInt64}, n...)[rows], all[len(all)-1][7])
				for i, row := range all[:len(all)-1] {
					require.Equal(t, n[i], row[15])
				}

				refill := q.refillOf([]string{"a"}, slots...)
				refill.Rows = rows
				s, err = q.see(q.Refill(refill))
				require.NoError(t, err)
				require.Equal(t, len(given), len(s.bodies), rows)
				require.Equal(t, len(locked), len(s.locked), rows)
				if rows > 0 {
					require.Equal(t, n[rows-1], s.upto)
				}
			}
			require.NoError(t, tx.Rollback())
		})
	})
}

// Rows that a read has counted might be gone before it looks them up. Its limit has ended the range nevertheless, and the answer states
// where.
func TestARowThatGoesDuringAReadDoesNotHideTheEndOfItsRange(t *testing.T) {
	eachReading(t, 3, func(t *testing.T, q *ordered) {
		q.eachWay(func(slots ...int) {
			for _, behind := range []bool{false, true} {
				for _, sender := range []bool{false, true} {
					q.clear()
					q.line(q.DB(), q.Queue, 0, "a", 1)
					tx := begin(t, t.Context(), q.queue)
					if sender {
						q.line(tx, q.InTx(), 0, "a", 1)
					} else {
						q.line(q.DB(), q.Queue, 0, "a", 1)
					}
					q.line(q.DB(), q.Queue, 0, "a", 3)
					numbers, items := q.numbers(1, 2, 3, 4, 5), q.itemOf(0)
					read := q.readOf(slots...)
					if read.Rows = 2; behind {
						read.Rows, read.Behind, read.Cursor = 1000, 2, numbers[3]
					}
					gone := false
					q.SetHooks(mssqltest.Hooks{Before: func(_ context.Context, st mssqltest.Statement) error {
						if line := strings.Split(st.Text, "\n")[st.Line-1]; !gone && strings.Contains(st.Text, "@walked") &&
							(sender && strings.Contains(line, "INSERT INTO @passed") || !sender && strings.Contains(line, "INSERT INTO @rows")) {
							gone = true
							if sender {
								assert.NoError(t, tx.Rollback())
							} else {
								q.do(q.DB(), 1, q.Ack(items[1:2]))
							}
						}
						return nil
					}})
					rows := q.rows(q.Read(read))
					q.SetHooks(mssqltest.Hooks{})
					require.True(t, gone)
					require.Equal(t, numbers[:1], numbersIn(rows, 0, numbers[1]))
					below, above := ranges(read, rows)
					if behind {
						require.Equal(t, numbers[1], below)
					} else {
						require.Equal(t, numbers[1], above)
					}
					if !sender {
						require.NoError(t, tx.Rollback())
					}
				}
			}
		})
	})
}

// A step of a purge that finds only rows with a U lock, which reads do not notice, passes them. An empty step would end the purge.
func TestAStepOfAPurgePassesLockedRows(t *testing.T) {
	eachReading(t, 1, func(t *testing.T, q *ordered) {
		q.line(q.DB(), q.Queue, 0, "a", 4)
		numbers := q.numbers(1, 2, 3, 4)
		items, tx := q.itemOf(0), begin(t, t.Context(), q.queue)
		for _, item := range items[:2] {
			q.do(tx, 1, sqlbatch.Statement{Text: fmt.Sprintf("SELECT id FROM dbo.chanq_orders WITH (UPDLOCK, INDEX (PK_chanq_orders), FORCESEEK) WHERE id = 0x%x", item.ID)})
		}
		rows := q.rows(q.Purge(sqlbatch.Ready, 1, sqlbatch.Window{}))
		require.Len(t, rows, 1)
		require.Equal(t, numbers[2], rows[0][1])
		require.NoError(t, tx.Rollback())
	})
}

// A refill that walks as many rows as its limit allows counts locked ones.
func TestARefillCountsLockedRowsThatItWalks(t *testing.T) {
	t.Parallel()
	q := newOrdered(t, 1, mssqltest.Options{})
	q.fill(0, sqlbatch.MostWalked-1)
	tx := begin(t, t.Context(), q.queue)
	q.line(tx, q.InTx(), 0, "a", 1)
	q.line(q.DB(), q.Queue, 0, "a", 1)
	s, err := q.see(q.Refill(q.refillOf([]string{"a"}, 0)))
	require.NoError(t, err)
	require.Equal(t, q.rows(sqlbatch.Statement{Text: "SELECT MIN(seq) FROM dbo.chanq_orders WITH (READUNCOMMITTED) WHERE order_key IS NOT NULL"}), [][]any{{s.locked[0]}})
	require.Len(t, s.locked, 1)
	require.Empty(t, s.bodies)
	require.Equal(t, s.locked[0], s.upto)
	require.NoError(t, tx.Rollback())
	s, err = q.see(q.Refill(q.refillOf([]string{"a"}, 0)))
	require.NoError(t, err)
	require.Equal(t, []byte{2}, s.bodies)
}

// do runs a statement that returns this many rows.
func (q *ordered) do(on testdb.Runner, rows int, st sqlbatch.Statement) {
	q.t.Helper()
	got, err := suite.Rows(context.Background(), on, st)
	require.NoError(q.t, err)
	require.Len(q.t, got, rows)
}

// itemOf returns the messages of a slot, by number.
func (q *ordered) itemOf(slot int) (items []sqlbatch.Item) {
	q.t.Helper()
	rows := q.rows(q.Read(q.readOf(slot)))
	rows = slices.DeleteFunc(rows, func(row []any) bool { return row[0] == nil })
	slices.SortFunc(rows, func(a, b []any) int { return int(a[15].(int64) - b[15].(int64)) })
	return suite.Items(rows, 2)
}

// While a sender is between its draw and its insert there is no watermark. The rows are the same.
func TestAReadWithoutAWatermarkReturnsTheRows(t *testing.T) {
	eachReading(t, 1, func(t *testing.T, q *ordered) {
		q.line(q.DB(), q.Queue, 0, "a", 2)
		r := q.readOf(0)
		first, err := q.see(q.Read(r))
		require.NoError(t, err)
		require.Equal(t, []byte{1, 2}, first.bodies)
		require.Greater(t, first.drawn, q.numbers(2)[0])
		q.line(q.DB(), q.Queue, 0, "a", 1)
		tx, sender := begin(t, t.Context(), q.queue), begin(t, t.Context(), q.queue)
		q.line(sender, q.InTx(), 0, "a", 1)
		_, err = tx.Exec("DECLARE @gate nvarchar(255) = N'chanq senders of ' + CONVERT(nvarchar(11), CHECKSUM(N'dbo')) + N'.orders'; DECLARE @granted int; EXEC @granted = sys.sp_getapplock @Resource = @gate, @LockMode = N'Shared', @LockOwner = N'Transaction'")
		require.NoError(t, err)
		r.Cursor = first.drawn
		without, err := q.see(q.Read(r))
		require.NoError(t, err)
		require.Equal(t, int64(-1), without.drawn)
		require.NoError(t, tx.Commit())
		with, err := q.see(q.Read(r))
		require.NoError(t, err)
		require.Greater(t, with.drawn, q.numbers(4)[0])
		with.drawn = -1
		require.Equal(t, seen{bodies: []byte{3}, locked: q.numbers(4), drawn: -1, upto: math.MaxInt64}, with)
		require.Equal(t, with, without)
		require.NoError(t, sender.Rollback())
	})
}

// [dbo] and [DBO] are one schema by the collation of the database, and have one lock of senders. There is no watermark while a sender that
// uses the other spelling is between its draw and its insert.
func TestTheLockOfSendersHasOneNameForAllSpellingsOfTheSchema(t *testing.T) {
	eachReading(t, 1, func(t *testing.T, q *ordered) {
		other := sqlserver.Dialect.Queue(sqlbatch.Names{Schema: "DBO", Queue: "orders", Slots: 1})
		var drawn int64
		q.beforeLine("INSERT INTO [DBO].[chanq_orders] ", func() error {
			s, err := q.see(q.Read(q.readOf(0)))
			drawn = s.drawn
			return err
		})
		q.line(q.DB(), other, 0, "a", 1)
		require.Equal(t, int64(-1), drawn)
		s, err := q.see(q.Read(q.readOf(0)))
		require.NoError(t, err)
		require.Positive(t, s.drawn)
	})
}

// A look distinguishes locked rows from rows that are gone, and a fetch skips locked rows.
func TestALookDistinguishesLockedFromAbsentRows(t *testing.T) {
	eachReading(t, 1, func(t *testing.T, q *ordered) {
		q.line(q.DB(), q.Queue, 0, "a", 4)
		items := q.itemOf(0)
		tx := begin(t, t.Context(), q.queue)
		q.do(tx, 2, q.InTx().Ack(items[:2]))
		q.do(q.DB(), 1, q.Ack(items[3:]))
		ids := idsOf(items)
		locked := func() map[byte]int64 {
			t.Helper()
			all := map[byte]int64{}
			for _, row := range q.rows(q.LookOrdered(q.consumer, q.owned(0), ids)) {
				if row[0] != nil {
					n := slices.IndexFunc(items, func(i sqlbatch.Item) bool { return i.ID == suite.IDOf(row[0]) })
					all[byte(n+1)] = row[22].(int64)
				}
			}
			return all
		}
		require.Equal(t, map[byte]int64{1: 1, 2: 1, 3: 2}, locked())
		rows := q.rows(q.Fetch(q.consumer, q.owned(0), ids))
		require.Equal(t, []byte{3}, bodiesOf(t, rows))
		require.NoError(t, tx.Rollback())
		require.Equal(t, map[byte]int64{1: 2, 2: 2, 3: 2}, locked())
	})
}

// A sender or a settle waits at most for the one entry or row that a read is reading, and for nothing that the read has passed.
func TestAReadLocksOneRowAtATime(t *testing.T) {
	t.Parallel()
	for _, rcsi := range []bool{false, true} {
		t.Run(fmt.Sprintf("snapshots=%v", rcsi), func(t *testing.T) {
			testdb.Emulator.Require(t)
			var watched atomic.Bool
			var most, seen atomic.Int64
			var q *ordered
			q = newOrderedHolding(t, 2, mssqltest.Options{ReadCommittedSnapshot: rcsi, OnLock: func(got mssqltest.Lock) {
				if !watched.Load() || got.Key == "" {
					return
				}
				seen.Add(1)
				held := int64(0)
				for _, l := range q.Locks() {
					if l.Session == got.Session && l.Key != "" && !l.Waiting {
						assert.Equal(t, "S", l.Mode, "%v", l)
						held++
					}
				}
				most.Store(max(most.Load(), held))
			}})
			q.line(q.DB(), q.Queue, 0, "a", 20)
			q.line(q.DB(), q.Queue, 1, "b", 20)
			items := q.itemOf(0)
			q.do(q.DB(), 1, q.DeadLetter([]sqlbatch.DeadLetterItem{{Item: items[0]}}))
			ids := idsOf(items)
			tx := begin(t, t.Context(), q.queue)
			read, catchUp := q.readOf(0, 1), q.readOf(0, 1)
			read.Keys = []string{"b"}
			catchUp.Cursor, catchUp.Rows = math.MaxInt64-1, 0
			refill := sqlbatch.ReadParams{Consumer: q.consumer, Slots: q.owned(0, 1), Upto: math.MaxInt64, Rows: 100, Keys: []string{"a"}, Inline: 100}
			for _, disturbed := range []bool{false, true} {
				if disturbed {
					q.do(tx, 1, q.InTx().Nack([]sqlbatch.NackItem{{Item: items[5]}}))
					q.line(tx, q.InTx(), 0, "a", 2)
				}
				for name, st := range map[string]sqlbatch.Statement{
					"read": q.Read(read), "read one": q.Read(q.readOf(0)), "catch up": q.Read(catchUp), "refill": q.Refill(refill), "fetch": q.Fetch(q.consumer, q.owned(0), ids), "look": q.LookOrdered(q.consumer, q.owned(0), ids),
					"held": q.HeldKeys([]int{0, 1}, []string{"a", "b"}),
				} {
					most.Store(0)
					seen.Store(0)
					watched.Store(true)
					rows := q.rows(st)
					watched.Store(false)
					require.NotEmpty(t, rows, name)
					require.Positive(t, seen.Load(), name)
					require.LessOrEqual(t, most.Load(), int64(1), name)
					if name == "read" || name == "refill" {
						locked := slices.DeleteFunc(rows, func(row []any) bool { return row[22] != int64(1) })
						require.Equal(t, disturbed, len(locked) == 3, name)
					}
				}
			}
			require.NoError(t, tx.Rollback())
		})
	}
}

// newOrderedHolding is newOrdered with a queue whose dead messages hold their keys.
func newOrderedHolding(t *testing.T, slots int, o mssqltest.Options) *ordered {
	q := newOrdered(t, slots, o)
	p := sqlbatch.DefaultPolicy
	p.Holds = true
	q.exec(q.Record(sqlbatch.Version, p))
	return q
}

// disturbed is a consumer that reads while other transactions run between the statements of a read.
type disturbed struct {
	*ordered
	*rand.Rand
	live, dead map[byte]sqlbatch.Item // committed
	slots      map[byte]int
	numbers    map[byte]int64
	open       []*change
	busy       bool
	acts       int
}

// change is an open transaction, and the effect of its commit.
type change struct {
	tx     *sql.Tx
	commit func()
	of     byte          // the message that it changes, or 0
	sent   sqlbatch.Item // the message that it has sent, if any
}

// act begins a transaction, or ends one.
func (d *disturbed) act() {
	d.acts++
	if len(d.open) > 0 && d.IntN(2) == 0 {
		i := d.IntN(len(d.open))
		c := d.open[i]
		d.open = slices.Delete(d.open, i, i+1)
		if d.IntN(3) == 0 {
			assert.NoError(d.t, c.tx.Rollback())
			return
		}
		assert.NoError(d.t, c.tx.Commit())
		c.commit()
		return
	}
	if d.last > 200 {
		return
	}
	tx, err := d.DB().Begin()
	assert.NoError(d.t, err)
	c := &change{tx: tx, commit: func() {}}
	free := func(list map[byte]sqlbatch.Item) (byte, bool) {
		for n := range byte(d.last + 1) {
			_, ok := list[n]
			if ok && !slices.ContainsFunc(d.open, func(o *change) bool { return o.of == n }) && d.IntN(3) == 0 {
				return n, true
			}
		}
		return 0, false
	}
	n, ok := free(d.live)
	m, isDead := free(d.dead)
	switch kind := d.IntN(8); {
	case kind == 0 && ok:
		d.do(tx, 1, d.InTx().Ack([]sqlbatch.Item{d.live[n]}))
		c.of, c.commit = n, func() { delete(d.live, n) }
	case kind == 1 && ok:
		item := d.live[n]
		d.do(tx, 1, d.InTx().DeadLetter([]sqlbatch.DeadLetterItem{{Item: item}}))
		c.of, c.commit = n, func() {
			delete(d.live, n)
			item.Fence++
			d.dead[n] = item
		}
	case kind == 3 && ok:
		item := d.live[n]
		d.do(tx, 1, d.InTx().Nack([]sqlbatch.NackItem{{Item: item}}))
		c.of, c.commit = n, func() {
			item.Fence++
			d.live[n] = item
		}
	case kind == 2 && isDead && !slices.ContainsFunc(d.open, func(o *change) bool { return o.of == 255 }):
		item := d.dead[m]
		rows, err := suite.Rows(context.Background(), tx, d.InTx().Redrive(0, [][16]byte{item.ID}, sqlbatch.Window{}))
		assert.NoError(d.t, err)
		c.of = 255 // one at a time: they lock the row of the queue
		if len(rows) == 1 {
			c.commit = func() {
				delete(d.dead, m)
				item.Fence++
				d.live[m] = item
			}
		}
	default:
		slot := d.IntN(2)
		d.line(tx, d.InTx(), slot, string("ab"[d.IntN(2)]), 1)
		n := d.last
		d.slots[n] = slot
		item := sqlbatch.Item{}
		rows, err := suite.Rows(context.Background(), tx, sqlbatch.Statement{Text: fmt.Sprintf("SELECT id, fence FROM dbo.chanq_orders WITH (READUNCOMMITTED) WHERE body = 0x%02x", n)})
		assert.NoError(d.t, err)
		if assert.Len(d.t, rows, 1) {
			item = suite.Items(rows, 1)[0]
		}
		c.of, c.sent, c.commit = n, item, func() { d.live[n] = item }
		d.numbers[n] = item.Fence // its first fence
	}
	d.open = append(d.open, c)
}

// numbersIn returns the numbers of an answer above one and up to another.
func numbersIn(rows [][]any, above, upto int64) (list []int64) {
	for _, row := range rows[:len(rows)-1] {
		if seq := row[15].(int64); seq > above && seq <= upto {
			list = append(list, seq)
		}
	}
	return list
}

// ranges returns up to which number the rows of an answer are complete: of those up to the cursor, and of those above it. As many rows as
// the limit allows end a range, and so does the number that the answer states.
func ranges(r sqlbatch.ReadParams, rows [][]any) (behind, ahead int64) {
	rows, last := rows[:len(rows)-1], rows[len(rows)-1]
	upto := last[7].(int64)
	behind, ahead = min(r.Cursor, upto), upto
	below, above, lowest, highest := 0, 0, int64(0), r.Cursor
	for _, row := range rows {
		if seq := row[15].(int64); seq <= r.Cursor {
			below, lowest = below+1, max(lowest, seq)
		} else {
			above, highest = above+1, max(highest, seq)
		}
	}
	if below >= r.Behind {
		behind = min(behind, lowest)
	}
	if above >= r.Rows {
		ahead = min(ahead, highest)
	}
	return behind, ahead
}

// TestAReadReturnsEachMessageThatWasThereThroughout: between the statements of a read, transactions begin, commit and roll back. A message
// exists from its INSERT on, committed or not, until a delete commits or its INSERT is rolled back. Half of the reads have limits, which are
// reached: they return each message up to where their range ends.
func TestAReadReturnsEachMessageThatWasThereThroughout(t *testing.T) {
	for _, versions := range []bool{false, true} {
		t.Run(fmt.Sprintf("READ_COMMITTED_SNAPSHOT=%t", versions), func(t *testing.T) {
			t.Parallel()
			testdb.Emulator.Require(t)
			read, locked, cut, acts := 0, 0, 0, 0
			for seed := range testdb.Of[uint64](3, 20) {
				d := &disturbed{Rand: rand.New(rand.NewPCG(seed, 1)), live: map[byte]sqlbatch.Item{}, dead: map[byte]sqlbatch.Item{}, slots: map[byte]int{}, numbers: map[byte]int64{}}
				d.ordered = newOrdered(t, 2, mssqltest.Options{ReadCommittedSnapshot: versions})
				reading := false
				d.SetHooks(mssqltest.Hooks{Before: func(_ context.Context, st mssqltest.Statement) error {
					between := slices.Contains([]string{"InsertStatement", "UpdateStatement", "DeleteStatement", "SelectStatement"}, st.Kind) // while the read does not hold the application lock
					if reading && !d.busy && between && strings.Contains(st.Text, "@walks") && d.IntN(3) == 0 {
						d.busy = true
						d.act()
						d.busy = false
					}
					return nil
				}})
				for range 30 {
					for range d.IntN(3) {
						d.act()
					}
					r := d.readOf([][]int{{0, 1}, {0}, {1}}[d.IntN(3)]...)
					if d.last > 0 && d.IntN(2) == 0 {
						r.Rows, r.Behind, r.Cursor = d.IntN(6), 1+d.IntN(6), d.numbers[byte(1+d.IntN(int(d.last)))]
					}
					before, sent := maps.Clone(d.live), map[byte]*change{}
					for _, c := range d.open {
						if c.sent != (sqlbatch.Item{}) {
							sent[c.of] = c
						}
					}
					reading = true
					rows, err := suite.Rows(context.Background(), d.DB(), d.Read(r))
					reading = false
					if err != nil {
						require.Equal(t, sqlbatch.RolledBack, sqlserver.Dialect.Classify(err), "%v", err)
						continue
					}
					read++
					bodies, found := bodiesOf(t, rows), map[[16]byte]bool{}
					for _, row := range rows[:len(rows)-1] {
						found[suite.IDOf(row[0])] = true
						locked += int(row[22].(int64))
					}
					behind, ahead := ranges(r, rows)
					if behind < r.Cursor || ahead < math.MaxInt64 {
						cut++
					}
					owned := func(n byte) bool {
						seq := d.numbers[n]
						return slices.ContainsFunc(r.Slots, func(o sqlbatch.OwnedSlot) bool { return o.Slot == d.slots[n] }) &&
							(seq <= behind || seq > r.Cursor && seq <= ahead)
					}
					for n, item := range before {
						if d.live[n] == item && owned(n) {
							require.True(t, found[item.ID], "message %d was committed before the read and is there", n)
						}
					}
					for n, c := range sent {
						if (d.live[n] == c.sent || slices.Contains(d.open, c)) && owned(n) {
							require.True(t, found[c.sent.ID], "message %d was inserted before the read and is there", n)
						}
					}
					for _, n := range bodies {
						_, was := before[n]
						_, is := d.live[n]
						_, dies := d.dead[n]
						require.True(t, was || is || dies, "message %d was never committed", n)
					}
				}
				acts += d.acts
				d.SetHooks(mssqltest.Hooks{})
				for _, c := range d.open {
					require.NoError(t, c.tx.Rollback())
				}
			}
			require.Greater(t, read, testdb.Of(10, 60))
			require.Greater(t, locked, testdb.Of(10, 60))
			require.Greater(t, cut, testdb.Of(5, 30))
			require.Greater(t, acts, testdb.Of(50, 300))
		})
	}
}
