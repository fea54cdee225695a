package claim

import (
	"bytes"
	"cmp"
	"context"
	"slices"
	"time"

	"github.com/chanq/chanq/internal/base"
	"github.com/chanq/chanq/internal/batch"
	"github.com/chanq/chanq/internal/lease"
	"github.com/chanq/chanq/internal/table"
	"github.com/chanq/chanq/sqlbatch"
)

// intake processes the rows of claims of a Plain: it makes leases, reads contents that were left out, and puts the
// leases into the buffer for the feed. The goroutine of Run uses it.
type intake struct {
	cfg      *Config
	pace     *Pace
	table    PlainTable
	consumer [16]byte
	loop     batch.Loop
	buffer   *buffer
}

// run runs a statement once. It is not cancelled by Stop.
func (k *intake) run(statement func() error) *batch.Failure {
	return k.loop.Try(k.cfg.Abandoned, func(context.Context) error { return statement() })
}

// compareRows compares rows by order of delivery.
func compareRows(a, b table.Claimed) int {
	return cmp.Or(cmp.Compare(b.Priority, a.Priority), cmp.Compare(a.Due, b.Due),
		bytes.Compare(a.Item.ID[:], b.Item.ID[:]))
}

// deliver registers the leases of a claim for extension, reads the contents that the claim left out, and passes the
// leases to the feed. It returns how many are not released. Leases that no reader may get are settled.
//
// At most PrefetchBytes of contents that were left out are in memory, or one message. The rest of the claim is
// released. After a failed read, leases that need no read are passed on first.
func (k *intake) deliver(b Batch, bytes int, took time.Duration) (kept int) {
	leases, rows := b.Leases, b.Rows
	k.pace.claims.Add(1)
	k.pace.claimed.Add(int64(len(leases)))
	k.cfg.Holder.Claimed(rows)
	k.cfg.Holder.Track(slices.Clone(leases)) // it drops from its own
	var settling []*lease.Lease
	var unread []int              // to be read at the end: from the first failed read on
	var failed *batch.Failure     // of that read
	passed, read, back := 0, 0, 0 // leases that were passed on or settled, bytes, and released leases
	pass := func(to int, whole []table.Claimed) {
		b, other := split(Batch{leases[passed:to], rows[passed:to]})
		settling = append(settling, other...)
		k.buffer.put(b, whole)
		passed = to
	}
	for i := range rows {
		l, row := leases[i], &rows[i]
		crashed := row.Lapses >= k.cfg.MaxCrashes
		left := row.LeftOut && !row.Expired && !crashed
		if left {
			read += row.Size
		}
		switch {
		case back > 0, left && read > max(row.Size, k.cfg.PrefetchBytes):
			back++
			l.Take(lease.Release)
		case row.Expired:
			k.cfg.deadLetter(l, row, sqlbatch.CauseExpired, base.ReasonExpired)
		case crashed:
			k.cfg.deadLetter(l, row, sqlbatch.CauseKilled, killed(row))
		case left:
			pass(i, nil) // a reader need not wait for the rows that follow
			found := false
			if len(unread) == 0 {
				found, failed = k.read(row)
			}
			if !found {
				unread = append(unread, i)
				passed = i + 1
			}
		}
	}
	whole := rows
	if passed > 0 { // earlier rows might still wait
		whole = nil
	}
	pass(len(rows), whole)
	for n, i := range unread {
		found := false
		if n > 0 {
			found, failed = k.read(&rows[i])
		}
		if !found {
			k.readAgain(leases[i], &rows[i], failed)
		}
		passed = i
		pass(i+1, nil)
	}
	k.pace.held(slices.ContainsFunc(leases, lapsed))
	k.pace.drop(len(settling) - back)
	if len(settling) > 0 {
		k.cfg.Holder.SettleAll(settling...)
	}
	k.cfg.Holder.Delivered(len(leases), bytes, took)
	return len(leases) - back
}

// lapsed reports that earlier leases of the message expired, and that a reader may get it.
func lapsed(l *lease.Lease) bool { return l.Lapses > 0 && l.State() == lease.Held }

// read tries to read the contents of a leased message into its row. If it is not found and there is no failure, the
// message is lost or locked.
func (k *intake) read(row *table.Claimed) (found bool, failure *batch.Failure) {
	failure = k.run(func() (err error) {
		found, err = k.table.Contents(k.cfg.readTime(row.Size), row)
		return err
	})
	return found && failure == nil, failure
}

// readAgain reads the contents of a leased message into its row after a failed first read. If it fails again, the lease
// is lost or in state Settling, to be released or settled as a failed attempt.
func (k *intake) readAgain(l *lease.Lease, row *table.Claimed, failure *batch.Failure) {
	failed, locked := 0, false
	for found := false; !found; found, failure = k.read(row) {
		if failure != nil && table.IsPermanent(failure.Class) {
			k.cfg.Holder.Broken("claim", failure.Err)
		}
		seen, err := k.table.Look(k.cfg.LookTimeout(), [][16]byte{l.Item.ID})
		_, _, hidden := seen.Of(l.Item.ID)
		locked = locked || failure == nil || failure.Class == sqlbatch.RolledBack || hidden
		switch {
		case l.Ended():
			return
		case k.cfg.Stop.Err() != nil:
			l.Take(lease.Release)
			return
		case err != nil: // the database does not answer
			failed = 0
		case l.Row(seen) != lease.RowHeld:
			k.cfg.Holder.Lose(l, lease.Lost)
			return
		default:
			failed++
		}
		switch {
		case failed < 2:
		case !l.Take(lease.Release):
			return
		case locked:
			cause := errLocked
			if failure != nil {
				cause = failure.Err
			}
			l.Op, l.Rare.Write().Delay = lease.Snooze, k.cfg.Holder.Delay(l, row, cause)
			return
		default:
			k.cfg.blame(l, row, failure.Err, k.cfg.readTime(row.Size))
			return
		}
		pause := batch.ShortPause
		if failure != nil {
			pause = k.loop.Failed(k.cfg.Abandoned, failure)
		}
		batch.Sleep(k.cfg.Stop, pause)
	}
}
