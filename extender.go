package chanq

import (
	"cmp"
	"context"
	"slices"
	"sync/atomic"
	"time"

	"github.com/chanq/chanq/internal/base"
	"github.com/chanq/chanq/internal/batch"
	"github.com/chanq/chanq/internal/session"
	"github.com/chanq/chanq/sqlbatch"
)

// extension is a lease in the keeper's writer, which groups extensions and isolates those that fail alone. A lease is in
// it at most once.
//
// A statement takes a sixth of LeaseFor at most, whatever the driver does, and the next one another session: a connection
// that hangs costs time and no lease. The database keeps the later of two ends, so extensions may overlap, and one that
// was left behind does no harm when it is carried out after all.
type extension struct {
	batch.Place

	lease   *lease
	pending atomic.Bool // it is in the writer
}

// Kinds of extensions. SQLite writes all of a row again to extend its lease, so heavy ones have statements of their own,
// after those of the others.
const (
	extendLight = iota
	extendHeavy
)

// heavyBody is how many bytes of a body make a lease heavy: more than almost all messages have,
// and written in a moment.
const heavyBody = 4 << 20

// newWriter makes the writer. While one worker looks for extensions that fail alone, the other one goes on with those that are due.
func (k *keeper) newWriter(h *base.Availability) *batch.Writer[*extension] {
	return batch.New(batch.Config[*extension]{
		Full:    []int{extendLight: max(1, k.queue.dialect.Traits().AckItems), extendHeavy: 1},
		Workers: 2, Moment: k.patience() / 2, Longest: k.patience(),
		Loop:  batch.Loop{Health: h, Classify: k.queue.classify, Waited: session.Unconnected, Timeout: k.patience(), Longest: k.leaseFor / 6},
		Write: k.write, Absent: k.absent, Done: k.done,
	})
}

// patience is how long a statement may take: so short that several fit what is left of a
// lease, where it is not shorter than what a healthy database may need.
func (k *keeper) patience() time.Duration {
	return min(k.timeout, max(k.leaseFor/6, min(k.leaseFor/2, settleMoment)))
}

// extendAll hands leases to the writer: light ones by their deadlines, then heavy ones by their sizes.
func (k *keeper) extendAll(leases []*lease) {
	slices.SortStableFunc(leases, func(a, b *lease) int {
		return cmp.Or(cmp.Compare(a.heavy, b.heavy), cmp.Compare(a.deadlineAt(), b.deadlineAt()))
	})
	for _, l := range leases {
		if l.extension == nil {
			l.extension = &extension{lease: l}
			if l.heavy > 0 {
				l.extension.Kind = extendHeavy
			}
		}
		l.extension.pending.Store(true)
	}
	if len(leases) > 0 {
		_ = k.writer.AddAll(len(leases), func(i int) *extension { return leases[i].extension }, batch.Now)
	}
}

// write extends leases in one statement. It leaves out those that were settled meanwhile, or acked in a transaction, which
// keeps their rows: they count as written.
func (k *keeper) write(ctx context.Context, extensions []*extension, skipLocked bool) (written []*extension, err error) {
	slices.SortFunc(extensions, func(a, b *extension) int { return compareItems(a.lease.item, b.lease.item) })
	items := make([]sqlbatch.Item, 0, len(extensions))
	for _, e := range extensions {
		if s := e.lease.state.Load(); s == leaseHeld || s == leaseSettling {
			items = append(items, e.lease.item)
		} else {
			written = append(written, e)
		}
	}
	if len(items) == 0 {
		return written, batch.ErrNotAsked
	}
	sql := k.queue.sql
	if skipLocked {
		sql = sql.SkipLocked()
	}
	start := base.Now()
	member, ends := k.member()
	changed, _, err := k.sessions.Items(ctx, sql.Extend(member, items, k.leaseFor), make([]sqlbatch.Item, 0, len(items)))
	k.sessions.Expect(k.leaseFor / 2) // of the next tick, if they are held then
	if err != nil {
		return written, err
	}
	slices.SortFunc(changed, compareItems)
	for _, e := range extensions {
		if _, held := slices.BinarySearchFunc(changed, e.lease.item, compareItems); held {
			e.lease.prolong(min(deadlineAfter(start, k.leaseFor), ends))
			written = append(written, e)
		}
	}
	return written, nil
}

// absent looks for leases that an extension did not return. It leaves out those whose rows are locked.
func (k *keeper) absent(ctx context.Context, extensions []*extension) (outcomes []batch.Outcome[*extension], err error) {
	leases := make([]*lease, len(extensions))
	for i, e := range extensions {
		leases[i] = e.lease
	}
	seen, err := k.queue.look(ctx, k.sessions, k.patience(), leases)
	if err != nil {
		return nil, err
	}
	for _, e := range extensions {
		if seen.of(e.lease.item) != standsOurs {
			outcomes = append(outcomes, batch.Outcome[*extension]{Item: e, Err: ErrLeaseLost})
		}
	}
	return outcomes, nil
}

// done ends leases that are lost. A lease that is held and was not extended for another reason is due at the next tick.
func (k *keeper) done(_ time.Time, outcomes []batch.Outcome[*extension]) {
	for _, o := range outcomes {
		l := o.Item.lease
		switch state := l.state.Load(); {
		case o.Err == nil:
		case o.Err != ErrLeaseLost:
			mind(k.owner, "extend", o.Err)
		case state == leaseExpired: // meanwhile, and reported
			l.lose(leaseLost)
		default:
			// Not if it is being settled, by which it may have gone: then the settle finds out.
			k.loseLease(l, leaseLost)
		}
		o.Item.pending.Store(false)
	}
}
