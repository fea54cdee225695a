package send_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/chanq/chanq/internal/batch"
	"github.com/chanq/chanq/internal/send"
	"github.com/chanq/chanq/sqlbatch"
)

func TestSendsShareStatementsAndEachHasItsOutcome(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFake(t)
		end := f.start(nil)
		var senders sync.WaitGroup
		returned := 0
		for n := range 50 {
			senders.Go(func() {
				require.NoError(t, f.send(context.Background(), n, n, nil)[0].Err)
				f.mu.Lock()
				defer f.mu.Unlock()
				returned++
				require.LessOrEqual(t, returned, f.notified, "consumers are woken first")
			})
		}
		senders.Wait()
		end()
		require.Len(t, f.stored(), 50)
		require.LessOrEqual(t, len(f.calls), 30)
		sum := [3]int{}
		for i, s := range f.sent {
			require.Equal(t, []string{fmt.Sprintf("insert(%d)", s[0]), "notify"}, f.calls[2*i:2*i+2])
			sum[0], sum[1], sum[2] = sum[0]+s[0], sum[1]+s[1], sum[2]+s[2]
		}
		require.Equal(t, [3]int{50, 0, 500}, sum)
	})
}

// TestBatchesAreStoredInOrder whatever fails.
func TestBatchesAreStoredInOrder(t *testing.T) {
	for name, failures := range map[string]func(n int) error{
		"nothing fails": func(int) error { return nil },
		"each third statement": func(n int) error {
			return map[bool]error{true: classed{sqlbatch.RolledBack}}[n%3 == 0]
		},
		"the database is away": func(n int) error {
			return map[bool]error{true: classed{sqlbatch.Refused}}[n > 4 && n < 30]
		},
		"each second, also the first": func(n int) error {
			return map[bool]error{true: classed{sqlbatch.RolledBack}}[n%2 == 1]
		},
	} {
		t.Run(name, func(t *testing.T) {
			for range 20 { // pauses are random
				synctest.Test(t, func(t *testing.T) {
					f := newFake(t)
					f.takes = 10 * time.Millisecond
					n := 0
					f.failing(func(string, []sqlbatch.Row) error {
						f.mu.Lock()
						defer f.mu.Unlock()
						n++
						return failures(n)
					}, nil)
					end := f.start(func(c *send.Config) { c.BufferBytes = 1 << 30 })
					ordered := func(i *send.Item) { keyed(i, sqlbatch.Row{OrderKey: "all"}) }
					for _, o := range f.send(t.Context(), 0, 899, ordered) {
						require.NoError(t, o.Err)
					}
					end()
					stored := f.stored()
					require.Len(t, stored, 900)
					for i := range stored {
						require.Equal(t, idOf(i), stored[i])
					}
					if name == "nothing fails" {
						require.Contains(t, f.calls, "insert begun(100)", "batches go ahead")
					}
				})
			}
		})
	}
}

func TestAMessageWhoseStatementBrokeIsStoredOnce(t *testing.T) {
	for _, n := range []int{10, 400} { // a statement, or transactions
		synctest.Test(t, func(t *testing.T) {
			f := newFake(t)
			end := f.start(nil)
			broke := 0
			f.failing(nil, func(string) error {
				f.mu.Lock()
				defer f.mu.Unlock()
				if broke++; broke <= 2 {
					return classed{sqlbatch.Unknown} // applied, and the connection broke
				}
				return nil
			})
			for _, o := range f.send(t.Context(), 0, n-1, nil) {
				require.NoError(t, o.Err)
			}
			end()
			require.Equal(t, n == 400, slices.Contains(f.calls, "commit(100)"))
			require.Len(t, f.stored(), n)
			for i, id := range f.stored() {
				require.Equal(t, idOf(i), id)
			}
			for _, s := range f.sent {
				require.Zero(t, s[1], "no message is a duplicate of itself")
			}
		})
	}
}

// busy starts a sender that stores the batches 0 to 99, 100 to 199 and 200 to 299 in transactions, and returns when all
// three have begun. The second call has the messages 100 to 149.
func (f *fake) busy(second context.Context) (outcomes [3]chan []send.Outcome, end func()) {
	f.takes = 10 * time.Millisecond
	end = f.start(nil)
	go f.send(context.Background(), 1000, 1000, nil)
	synctest.Wait() // its statement runs
	for i, call := range []struct {
		ctx         context.Context
		first, last int
	}{{context.Background(), 0, 99}, {second, 100, 149}, {context.Background(), 150, 299}} {
		outcomes[i] = make(chan []send.Outcome, 1)
		go func() { outcomes[i] <- f.send(call.ctx, call.first, call.last, nil) }()
		synctest.Wait()
	}
	time.Sleep(11 * time.Millisecond)
	synctest.Wait()
	f.mu.Lock()
	defer f.mu.Unlock()
	require.Equal(f.t, []string{"insert(1)", "notify", "insert begun(100)"}, f.calls[:3])
	return outcomes, end
}

// What a transaction has inserted while its batch waits is not committed if a message is withdrawn.
func TestAWithdrawnMessageIsNotStoredWithItsBatch(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFake(t)
		f.failing(func(op string, rows []sqlbatch.Row) error {
			if op == "commit" && rows[0].ID == idOf(0) {
				time.Sleep(100 * time.Millisecond)
			}
			return nil
		}, nil)
		ctx, cancel := context.WithCancel(t.Context())
		outcomes, end := f.busy(ctx)
		time.Sleep(80 * time.Millisecond)
		require.Len(t, f.stored(), 1, "no batch is visible before the previous one")
		cancel()
		for _, o := range <-outcomes[1] {
			require.ErrorIs(t, o.Err, context.Canceled)
			require.False(t, o.Unknown)
		}
		for _, o := range append(<-outcomes[0], <-outcomes[2]...) {
			require.NoError(t, o.Err)
		}
		end()
		require.Contains(t, f.calls, "rollback")
		stored := f.stored()[1:]
		require.Len(t, stored, 250)
		for i, id := range stored {
			require.Equal(t, idOf(i+map[bool]int{true: 50}[i >= 100]), id)
		}
	})
}

func TestATransactionThatFailsIsReplacedByAStatement(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFake(t)
		f.failing(func(op string, rows []sqlbatch.Row) error {
			if op == "insert begun" && rows[0].ID == idOf(100) {
				return classed{sqlbatch.RolledBack}
			}
			return nil
		}, nil)
		outcomes, end := f.busy(t.Context())
		for i := range outcomes {
			for _, o := range <-outcomes[i] {
				require.NoError(t, o.Err)
			}
		}
		end()
		require.Contains(t, f.calls, "insert(100)")
		require.NotContains(t, f.calls, "insert(50)", "the batch has not failed")
		for i, id := range f.stored()[1:] {
			require.Equal(t, idOf(i), id)
		}
		require.Len(t, f.stored(), 301)
	})
}

func TestTheLastTransactionsAreRolledBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFake(t)
		ctx, cancel := context.WithCancel(t.Context())
		f.failing(func(op string, rows []sqlbatch.Row) error {
			if op == "commit" {
				cancel() // the second batch is not full any more, and lingers
				time.Sleep(time.Millisecond)
			}
			return nil
		}, nil)
		f.takes = 10 * time.Millisecond
		end := f.start(nil)
		first := make(chan []send.Outcome, 1)
		go f.send(context.Background(), 1000, 1000, nil)
		synctest.Wait()
		go func() { first <- f.send(context.Background(), 0, 99, nil) }()
		synctest.Wait()
		for _, o := range f.send(ctx, 100, 299, nil) {
			require.False(t, o.Unknown)
		}
		for _, o := range <-first {
			require.NoError(t, o.Err)
		}
		began := time.Now()
		end()
		require.Less(t, time.Since(began), time.Second)
		require.Contains(t, f.calls, "rollback")
		require.Len(t, f.stored(), 101)
	})
}

func TestADuplicateIsReportedWithTheMessageThatIsThere(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFake(t)
		end := f.start(nil)
		keyed := func(i *send.Item) { keyed(i, sqlbatch.Row{Key: "k"}) }
		require.False(t, f.send(t.Context(), 1, 1, keyed)[0].Duplicate)
		o := f.send(t.Context(), 2, 2, keyed)[0]
		require.NoError(t, o.Err)
		require.Equal(t, send.Receipt{ID: idOf(1), Duplicate: true}, o.Receipt)
		end()
		require.Len(t, f.stored(), 1)
	})
}

func TestABadMessageIsReportedAndTheOthersAreStored(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFake(t)
		end := f.start(nil)
		f.failing(func(_ string, rows []sqlbatch.Row) error {
			if slices.ContainsFunc(rows, func(r sqlbatch.Row) bool { return r.ID == idOf(5) }) {
				return classed{sqlbatch.BadRow}
			}
			return nil
		}, nil)
		outcomes := f.send(t.Context(), 0, 9, nil)
		for n, o := range outcomes {
			require.Equal(t, n == 5, o.Err != nil, n)
			require.False(t, o.Unknown)
		}
		end()
		require.Len(t, f.stored(), 9)
	})
}

// TestACallThatGivesUpReturnsWhatMightBeStored: messages that no statement has had are
// certainly not stored.
func TestACallThatGivesUpReturnsWhatMightBeStored(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFake(t)
		f.takes = time.Minute // longer than the timeout of a statement
		end := f.start(func(c *send.Config) { c.BatchRows = 5 })
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		unknown := 0
		for _, o := range f.send(ctx, 0, 9, nil) {
			require.ErrorIs(t, o.Err, context.DeadlineExceeded)
			if o.Unknown {
				unknown++
			}
		}
		require.Equal(t, 5, unknown, "the items of the running statement")
		f.mu.Lock()
		f.takes = 0
		f.mu.Unlock()
		end()
		require.LessOrEqual(t, len(f.stored()), 5)
	})
}

func TestTheBufferBoundsWhatIsSent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFake(t)
		f.failing(func(string, []sqlbatch.Row) error { return classed{sqlbatch.Refused} }, nil)
		end := f.start(func(c *send.Config) { c.BufferBytes = 1000 })
		done := make(chan []send.Outcome, 1)
		go func() { done <- f.send(context.Background(), 0, 29, nil) }() // three times the buffer
		time.Sleep(time.Minute)
		require.LessOrEqual(t, f.sender.Stats().Open, 10)
		require.Empty(t, done)
		f.failing(nil, nil)
		for _, o := range <-done {
			require.NoError(t, o.Err)
		}
		end()
		require.Len(t, f.stored(), 30)
	})
}

func TestWhatHasNoCallIsKeptUntilItIsTaken(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFake(t)
		end := f.start(nil)
		f.failing(func(_ string, rows []sqlbatch.Row) error {
			if slices.ContainsFunc(rows, func(r sqlbatch.Row) bool { return r.ID == idOf(1) }) {
				return classed{sqlbatch.BadRow}
			}
			return nil
		}, nil)
		list := items(nil, 0, 2)
		for i := range list {
			list[i].Origin = i
		}
		f.sender.PushInTurn(len(list), func(i int) *send.Item { return &list[i] }, 300)
		unfit := send.Item{ID: idOf(7), Origin: 7}
		f.sender.KeepUnsent(&unfit, 100, errors.New("no JSON"))
		require.NoError(t, f.sender.Flush(t.Context()))
		end()
		require.ElementsMatch(t, [][16]byte{idOf(1), idOf(7)}, f.unsent, "each is reported once")
		_, n := f.sender.FirstUnsent()
		require.Equal(t, 2, n)
		ids := [][16]byte{}
		for _, u := range f.sender.TakeUnsent() {
			ids = append(ids, u.ID)
			require.Equal(t, idOf(u.Origin.(kept).int), u.ID, "the origin was copied by Keep")
			require.Error(t, u.Err)
			require.False(t, u.Unknown)
		}
		require.ElementsMatch(t, [][16]byte{idOf(1), idOf(7)}, ids)
		require.Empty(t, f.sender.TakeUnsent())
		require.Len(t, f.stored(), 2)
	})
}

func TestWhatIsTakenFreesItsRoom(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFake(t)
		f.failing(func(string, []sqlbatch.Row) error { return classed{sqlbatch.BadRow} }, nil)
		end := f.start(func(c *send.Config) { c.BufferBytes = 1000 })
		push := func(first, last int) {
			list := items(nil, first, last)
			for i := range list {
				list[i].Origin = first + i
			}
			f.sender.PushInTurn(len(list), func(i int) *send.Item { return &list[i] }, 100*len(list))
		}
		push(0, 6)
		unfit := send.Item{Place: batch.Place{Size: 5000}, ID: idOf(7), Origin: 7}
		f.sender.KeepUnsent(&unfit, 300, errors.New("no JSON"))
		pushed := make(chan struct{}, 1)
		go func() { push(8, 17); pushed <- struct{}{} }()
		time.Sleep(time.Minute)
		require.Empty(t, pushed, "the buffer is full")
		require.Len(t, f.sender.TakeUnsent(), 8)
		time.Sleep(time.Minute)
		require.NotEmpty(t, pushed, "there is room")
		require.NoError(t, f.sender.Flush(t.Context()))
		require.Len(t, f.sender.TakeUnsent(), 10)
		end()
	})
}

// TestGiveUpWaitsForNoStatement: its driver might take long to notice.
func TestGiveUpWaitsForNoStatement(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFake(t)
		f.takes = time.Hour
		f.start(func(c *send.Config) { c.StatementTimeout = 2 * time.Hour })
		done := make(chan []send.Outcome, 1)
		go func() { done <- f.send(context.Background(), 0, 4, nil) }()
		time.Sleep(time.Second)
		began := time.Now()
		f.sender.GiveUp()
		for _, o := range <-done {
			require.Error(t, o.Err)
			require.True(t, o.Unknown)
		}
		require.Less(t, time.Since(began), time.Second)
		require.Equal(t, 5, f.notified, "of what might be stored")
		require.ErrorIs(t, f.send(t.Context(), 5, 5, nil)[0].Err, batch.ErrClosed)
	})
}
