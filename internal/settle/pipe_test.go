package settle_test

import (
	"context"
	"database/sql"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/chanq/chanq/internal/lease"
	"github.com/chanq/chanq/internal/settle"
	"github.com/chanq/chanq/sqlbatch"
)

// target is a queue of outputs.
type target struct {
	mu     sync.Mutex
	stored []string
	groups []int // numbers of outputs, by transaction
	fail   func(ctx context.Context, body string) error
	sent   []string
	failed []string
}

func (to *target) Store(ctx context.Context, _ *sql.Tx, rows []sqlbatch.Row, _ bool) error {
	var bodies []string
	for _, row := range rows {
		if to.fail != nil {
			if err := to.fail(ctx, string(row.Body)); err != nil {
				return err
			}
		}
		bodies = append(bodies, string(row.Body))
	}
	to.mu.Lock()
	defer to.mu.Unlock()
	to.stored, to.groups = append(to.stored, bodies...), append(to.groups, len(bodies))
	return nil
}

func (to *target) Stored(inputs []*settle.Input, messages int, _ bool, _ time.Duration) {
	to.mu.Lock()
	defer to.mu.Unlock()
	to.sent = append(to.sent, fmt.Sprint(messages, " of ", len(inputs)))
}

func (to *target) Unstored(in *settle.Input, err error) {
	to.mu.Lock()
	defer to.mu.Unlock()
	to.failed = append(to.failed, fmt.Sprint(in.In.Item.ID[0], ": ", err))
	in.In.Rare.Write().Delay = time.Minute
}

// piped is a fake with a pipe of its leases.
type piped struct {
	*fake
	pipe    *settle.Pipe
	running sync.WaitGroup
	acked   []*lease.Lease
}

func piping(t *testing.T) (p *piped, to *target, end func()) {
	p, to = &piped{fake: newFake(t)}, &target{}
	endSettler := p.start(func(c *settle.Config) { c.LeaseFor = 9 * time.Second })
	p.pipe = p.settler.Pipe(p, to, func(int, error) {})
	return p, to, func() {
		for _, l := range p.acked {
			_ = l.Wait(context.Background())
		}
		endSettler()
		p.running.Wait()
	}
}

// ack acks leases with outputs, each with these bodies and its number, and then runs the pipe, so that they are one
// batch.
func (p *piped) ack(leases []*lease.Lease, bodies ...string) {
	p.t.Helper()
	for _, l := range leases {
		in := &settle.Input{In: l}
		for _, body := range bodies {
			in.Rows = append(in.Rows, sqlbatch.Row{Body: fmt.Append([]byte(body), l.Item.ID[0])})
			in.Size += len(body) + 1
		}
		require.True(p.t, l.Take(lease.Ack))
		p.pipe.Add(in)
	}
	p.acked = append(p.acked, leases...)
	p.running.Go(p.pipe.Run)
}

func TestInputsAreReplacedInOneTransaction(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p, to, end := piping(t)
		leases := p.leases(3)
		p.ack(leases, "a", "b")
		end()
		for _, l := range leases {
			require.Equal(t, lease.Settled, l.State())
			require.NoError(t, l.Outcome())
		}
		require.Equal(t, []string{"a0", "b0", "a1", "b1", "a2", "b2"}, to.stored)
		require.Equal(t, []int{6}, to.groups)
		require.Equal(t, []string{"6 of 3"}, to.sent)
		require.Equal(t, []settle.Tally{{Acked: 3}}, p.stored)
	})
}

func TestAnInputWithoutOutputsIsAcked(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p, to, end := piping(t)
		p.ack(p.leases(2))
		end()
		require.Equal(t, []settle.Tally{{Acked: 2}}, p.stored)
		require.Empty(t, to.sent)
	})
}

func TestATransactionHasOutputsOfFourMiBAtMost(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p, to, end := piping(t)
		p.ack(p.leases(3), strings.Repeat(".", 2<<20-1))
		end()
		require.Equal(t, []int{2, 1}, to.groups)
	})
}

func TestOutputsOfALostInputAreNotStored(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p, to, end := piping(t)
		leases := p.leases(3)
		locked := leases[1]
		p.locked[locked.Item.ID] = true
		p.ack(leases, "a")
		time.Sleep(3 * time.Second)
		synctest.Wait()
		require.Equal(t, lease.Settling, locked.State())
		require.ElementsMatch(t, []string{"a0", "a2"}, to.stored, "a locked row delays no other input")
		p.mu.Lock()
		p.rows[locked.Item.ID], p.locked[locked.Item.ID] = 8, false // leased by another consumer
		p.mu.Unlock()
		require.ErrorIs(t, locked.Wait(t.Context()), lease.ErrLost)
		end()
		require.Len(t, to.stored, 2)
	})
}

func TestAnInputThatWasLockedIsReplacedLater(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p, to, end := piping(t)
		leases := p.leases(2)
		p.locked[leases[1].Item.ID] = true
		p.ack(leases, "a")
		time.Sleep(3 * time.Second)
		p.mu.Lock()
		clear(p.locked)
		p.mu.Unlock()
		require.NoError(t, leases[1].Wait(t.Context()))
		end()
		require.Equal(t, []string{"a0", "a1"}, to.stored)
	})
}

func TestOnlyTheInputWhoseOutputIsRefusedIsDeadLettered(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p, to, end := piping(t)
		to.fail = func(_ context.Context, body string) error {
			if body == "a2" {
				return classed{sqlbatch.BadRow}
			}
			return nil
		}
		leases := p.leases(4)
		p.ack(leases, "a")
		for _, l := range leases {
			require.NoError(t, l.Wait(t.Context()))
		}
		end()
		slices.Sort(to.stored)
		require.Equal(t, []string{"a0", "a1", "a3"}, to.stored)
		require.Equal(t, lease.Dead, leases[2].Op)
		require.Equal(t, sqlbatch.CauseOutput, leases[2].Rare.Read().Cause)
		require.Equal(t, "chanq: an output cannot be stored: bad row", leases[2].Rare.Read().Text)
	})
}

func TestAnInputWhoseOutputsAreUndoneForLongIsNacked(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p, to, end := piping(t)
		to.fail = func(_ context.Context, body string) error {
			if body == "a1" {
				return classed{sqlbatch.RolledBack}
			}
			return nil
		}
		leases := p.leases(2)
		began := time.Now()
		p.ack(leases, "a")
		require.NoError(t, leases[0].Wait(t.Context()))
		require.NoError(t, leases[1].Wait(t.Context()))
		require.InDelta(t, 30, time.Since(began).Seconds(), 10, "after Longest")
		end()
		require.Equal(t, lease.Nack, leases[1].Op)
		require.Equal(t, time.Minute, leases[1].Rare.Read().Delay)
		require.Equal(t, sqlbatch.CauseOutput, leases[1].Rare.Read().Cause)
		require.Equal(t, []string{"1: chanq: an output cannot be stored: rolled back"}, to.failed)
		require.Equal(t, []string{"a0"}, to.stored)
	})
}

func TestACommitOfUnknownOutcomeIsFoundOut(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p, to, end := piping(t)
		first := true
		p.failing(nil, func(string) error {
			if first {
				first = false
				return classed{sqlbatch.Unknown}
			}
			return nil
		})
		leases := p.leases(2)
		p.ack(leases, "a")
		for _, l := range leases {
			require.NoError(t, l.Wait(t.Context()), "a missing input was replaced")
		}
		end()
		require.Equal(t, []string{"a0", "a1"}, to.stored, "once")
		require.Equal(t, []string{"2 of 2"}, to.sent)
	})
}

// TestANackDoesNotWaitForTheOutputsOfAPipe: more inputs wait than a batch has, and the queue of their outputs hangs.
func TestANackDoesNotWaitForTheOutputsOfAPipe(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p, to, end := piping(t)
		to.fail = func(ctx context.Context, _ string) error {
			<-ctx.Done()
			return classed{sqlbatch.RolledBack}
		}
		leases := p.leases(200)
		p.ack(leases, "a")
		for range 20 {
			time.Sleep(time.Second)
			l, began := p.lease(250), time.Now()
			settleAs(t, l, lease.Nack)
			require.NoError(t, l.Wait(t.Context()))
			require.LessOrEqual(t, time.Since(began), 10*time.Millisecond, "the usual time")
		}
		end()
		require.Empty(t, to.stored)
		require.Len(t, to.failed, 200)
		for _, l := range leases {
			require.Equal(t, lease.Nack, l.Op)
			require.NoError(t, l.Outcome())
		}
	})
}

func TestInputsThatAreGivenUpHaveAnOutcome(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p, to := &piped{fake: newFake(t)}, &target{}
		to.fail = func(context.Context, string) error { return classed{sqlbatch.Unknown} }
		ctx, giveUp := context.WithCancel(t.Context())
		settler := settle.New(settle.Config{Shared: shared(p, time.Second), Owner: p, Room: 10}, ctx)
		p.pipe = settler.Pipe(p, to, func(int, error) {})
		leases := p.leases(2)
		p.ack(leases, "a")
		time.Sleep(5 * time.Second)
		require.Equal(t, lease.Settling, leases[0].State())
		giveUp()
		p.running.Wait()
		for _, l := range leases {
			var failed *lease.FailedError
			require.ErrorAs(t, l.Outcome(), &failed)
			require.True(t, failed.Unknown)
		}
	})
}
