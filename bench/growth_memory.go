package main

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"runtime"

	"github.com/chanq/chanq"
	"github.com/chanq/chanq/bench/internal/measure"
	"github.com/chanq/chanq/sqlbatch"
	"github.com/chanq/chanq/sqlbatch/postgres"
	"github.com/chanq/chanq/sqlbatch/sqlite"
	"github.com/chanq/chanq/sqlbatch/sqlserver"
)

// Memory compared with the buffers that a user configures. These constants measure the formula of
// docs/internals/performance.md.
const (
	// leaseOverhead bounds the memory of a lease without its body: the lease and its entries in the
	// channel, the extender and a backlog.
	leaseOverhead = 600
	// fixedOverhead bounds the memory of a producer or consumer without messages: connections,
	// prepared statements, driver buffers.
	fixedOverhead = 2 << 20
)

// heap returns the live heap.
func heap() float64 {
	var m runtime.MemStats
	runtime.GC()
	runtime.GC() // collects objects that finalizers and pools released in the first run
	runtime.ReadMemStats(&m)
	return float64(m.HeapAlloc)
}

// beginPrefetch holds as many leases as Prefetch allows, without settling any.
func beginPrefetch(_ context.Context, o options, _ string, _ []int) (growthRun, error) {
	return growthRun{measure: func(ctx context.Context, leases int) ([]measure.Result, error) {
		r := newResult(o, "chanq")
		r.N = leases
		err := onFilled(ctx, o, &r, func(s *store) error {
			queue, err := s.open(ctx)
			if err != nil {
				return err
			}
			before := heap()
			consumer, err := queue.Consume(ctx, chanq.ConsumerConfig{Prefetch: leases, LeaseFor: leaseFor})
			if err != nil {
				return err
			}
			held := make([]*chanq.Lease[[]byte], 0, leases)
			for lease := range consumer.C() {
				if held = append(held, lease); len(held) == leases {
					break
				}
			}
			if len(held) < leases {
				return errors.Join(fmt.Errorf("got %d of %d leases", len(held), leases), consumer.Err())
			}
			r.HeapBytes = heap() - before
			r.HeapPerMsg = r.HeapBytes / float64(leases)
			r.FormulaBytes = float64(leases*(o.body+leaseOverhead) + fixedOverhead)
			for _, lease := range held {
				err = errors.Join(err, lease.Ack())
			}
			return errors.Join(err, consumer.Shutdown(context.WithoutCancel(ctx)))
		})
		return []measure.Result{r}, err
	}}, nil
}

// beginBuffer fills BufferBytes while the table is locked, so that nothing is stored.
func beginBuffer(_ context.Context, o options, _ string, _ []int) (growthRun, error) {
	return growthRun{measure: func(ctx context.Context, size int) ([]measure.Result, error) {
		const rowOverhead = 256 // as producers count per message
		r := newResult(o, "chanq")
		r.N, r.Batch = max(size/(o.body+rowOverhead), 1), o.batch
		err := onStore(ctx, o, "chanq", func(s *store, _ strategy) error {
			r.Server = s.about(ctx)
			queue, err := s.open(ctx)
			if err != nil {
				return err
			}
			unlock, err := s.lockTable(ctx)
			if err != nil {
				return err
			}
			before := heap()
			producer, err := queue.Producer(ctx, chanq.ProducerConfig{BatchRows: o.batch, BufferBytes: size})
			if err != nil {
				return errors.Join(err, unlock())
			}
			for range r.N {
				producer.C() <- chanq.Message[[]byte]{Body: make([]byte, o.body)}
			}
			r.HeapBytes = heap() - before
			r.HeapPerMsg = r.HeapBytes / float64(r.N)
			statement := min(o.batch*(o.body+rowOverhead), 4<<20)
			r.FormulaBytes = float64(2*size + 3*statement + fixedOverhead)
			return errors.Join(unlock(), producer.Close(context.WithoutCancel(ctx)))
		})
		return []measure.Result{r}, err
	}}, nil
}

// lockTable blocks every writer of the table.
func (s *store) lockTable(ctx context.Context) (unlock func() error, err error) {
	tx, err := s.db.BeginTx(ctx, nil)
	if err != nil {
		return nil, err
	}
	text := map[sqlbatch.Dialect]string{
		sqlite.Dialect:    "DELETE FROM " + s.liveTable() + " WHERE 0",
		postgres.Dialect:  "LOCK TABLE " + s.liveTable() + " IN EXCLUSIVE MODE",
		sqlserver.Dialect: "DELETE FROM " + s.liveTable() + " WITH (TABLOCKX) WHERE 1 = 0",
	}[s.dialect]
	if _, err := tx.ExecContext(ctx, text); err != nil {
		return nil, errors.Join(err, tx.Rollback())
	}
	return func() error {
		if err := tx.Rollback(); !errors.Is(err, sql.ErrTxDone) {
			return err
		}
		return nil
	}, nil
}
